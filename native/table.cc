// The table of tensors: slots, generations, scopes.
#include "engine.h"

namespace rt {

namespace {
constexpr double kSlots = 4294967296.0;  // 2^32
constexpr uint32_t kGenerations = 1u << 21;
// Minimum length of the queue of free slots: the handle of a freed tensor becomes valid again after 2^33 new tensors at the earliest.
constexpr size_t kWaiting = 4096;
}  // namespace

Engine& engine() {
  static Engine* e = new Engine();  // never destroyed, so the order of static destructors does not matter
  return *e;
}

double Table::put(at::Tensor t) {
  uint32_t index;
  if (free_.size() < kWaiting) {
    index = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    index = free_.front();
    free_.pop_front();
  }
  Slot& slot = slots_[index];
  slot.tensor = std::move(t);
  slot.used = true;
  live_++;
  created_++;
  if (scopes_.empty()) {
    slot.scope = -1;
  } else {
    slot.scope = static_cast<int32_t>(scopes_.size()) - 1;
    scopes_.back().push_back({index, slot.generation});
  }
  return index + kSlots * slot.generation;
}

Table::Slot* Table::find(double handle) {
  if (!(handle >= kSlots)) return nullptr;
  auto bits = static_cast<uint64_t>(handle);
  auto index = static_cast<uint32_t>(bits & 0xffffffffu);
  auto generation = static_cast<uint32_t>(bits >> 32);
  if (index >= slots_.size()) return nullptr;
  Slot& slot = slots_[index];
  return slot.used && slot.generation == generation ? &slot : nullptr;
}

at::Tensor& Table::get(double handle) {
  Slot* slot = find(handle);
  if (!slot) throw StaleHandle("the tensor was already freed (its scope ended or dispose() was called)");
  return slot->tensor;
}

bool Table::alive(double handle) const { return const_cast<Table*>(this)->find(handle) != nullptr; }

void Table::release(uint32_t index) {
  Slot& slot = slots_[index];
  const at::Tensor freed = std::move(slot.tensor);  // destroyed last, when the slot is consistent
  slot.tensor = at::Tensor();
  slot.used = false;
  slot.generation = slot.generation + 1 == kGenerations ? 1 : slot.generation + 1;
  slot.scope = -1;
  free_.push_back(index);
  live_--;
}

void Table::free(double handle) {
  Slot* slot = find(handle);
  if (slot) release(static_cast<uint32_t>(slot - slots_.data()));
}

void Table::keep(double handle) {
  Slot* slot = find(handle);
  if (!slot) throw StaleHandle("keep: the tensor was already freed");
  slot->scope = -1;
}

void Table::begin() { scopes_.emplace_back(); }

void Table::end(const double* kept, size_t n) {
  TORCH_CHECK(!scopes_.empty(), "no scope is open");
  auto entries = std::move(scopes_.back());
  scopes_.pop_back();
  const auto depth = static_cast<int32_t>(scopes_.size());
  for (size_t i = 0; i < n; i++) {
    Slot* slot = find(kept[i]);
    if (!slot || slot->scope != depth) continue;  // kept by keep(), or of an outer scope
    slot->scope = depth - 1;
    if (depth > 0) scopes_.back().push_back({static_cast<uint32_t>(slot - slots_.data()), slot->generation});
  }
  for (const Entry& e : entries) {
    const Slot& slot = slots_[e.slot];
    if (slot.used && slot.generation == e.generation && slot.scope == depth) release(e.slot);
  }
  if (depth == 0 && entries.capacity() > 65536) entries.shrink_to_fit();
}

void Table::clear() {
  scopes_.clear();
  for (uint32_t i = 0; i < slots_.size(); i++)
    if (slots_[i].used) release(i);
}

std::vector<double> Table::handles() const {
  std::vector<double> out;
  for (uint32_t i = 0; i < slots_.size(); i++)
    if (slots_[i].used) out.push_back(i + kSlots * slots_[i].generation);
  return out;
}

}  // namespace rt
