// Caching CPU allocator with exact counters. Scopes free many tensors at once; without a cache every step would get new pages from the
// operating system.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "engine.h"

namespace rt {

namespace {

constexpr size_t kAlign = 64;
constexpr int kClasses = 256;

struct Header {
  size_t bytes;   // as requested
  int sizeClass;  // -1: not cached
};

// Size classes: four per power of two, from 64 bytes.
int classOf(size_t n) {
  if (n <= kAlign) return 0;
  const int power = 63 - __builtin_clzll(n - 1);  // 2^power < n <= 2^(power+1)
  const size_t quarter = (n - 1) >> (power - 2) & 3;
  const int index = (power - 6) * 4 + static_cast<int>(quarter) + 1;
  return index < kClasses ? index : -1;
}

size_t classBytes(int index) {
  if (index == 0) return kAlign;
  const int power = (index - 1) / 4 + 6;
  return (size_t{1} << power) + ((index - 1) % 4 + 1) * (size_t{1} << (power - 2));
}

struct Cache {
  std::mutex lock;
  std::vector<void*> free[kClasses];
  int64_t live = 0, peak = 0, cached = 0;
  int64_t limit = int64_t{1} << 30;
};

Cache& cache() {
  static auto* c = new Cache();
  return *c;
}

void* takeCached(int index) {
  auto& list = cache().free[index];
  if (list.empty()) return nullptr;
  void* block = list.back();
  list.pop_back();
  cache().cached -= static_cast<int64_t>(classBytes(index));
  return block;
}

void countLive(int64_t bytes) {
  auto& c = cache();
  c.live += bytes;
  if (c.live > c.peak) c.peak = c.live;
}

void* allocateBlock(size_t n) {
  const int index = classOf(n);
  void* block = nullptr;
  {
    std::lock_guard<std::mutex> guard(cache().lock);
    if (index >= 0) block = takeCached(index);
    countLive(static_cast<int64_t>(n));
  }
  if (!block) {
    const size_t body = index >= 0 ? classBytes(index) : n;
    if (body > SIZE_MAX - kAlign || posix_memalign(&block, kAlign, body + kAlign) != 0) block = nullptr;
  }
  if (!block) {
    auto stats = allocStats();
    std::lock_guard<std::mutex> guard(cache().lock);
    cache().live -= static_cast<int64_t>(n);
    TORCH_CHECK(false, "out of memory: asked for ", n, " bytes, live ", stats.live - static_cast<int64_t>(n), ", peak ", stats.peak);
  }
  new (block) Header{n, index};
  return static_cast<char*>(block) + kAlign;
}

void freeBlock(void* data) {
  if (!data) return;
  char* block = static_cast<char*>(data) - kAlign;
  const Header header = *reinterpret_cast<Header*>(block);
  {
    std::lock_guard<std::mutex> guard(cache().lock);
    cache().live -= static_cast<int64_t>(header.bytes);
    const auto size = header.sizeClass >= 0 ? static_cast<int64_t>(classBytes(header.sizeClass)) : 0;
    if (header.sizeClass >= 0 && cache().cached + size <= cache().limit) {
      cache().free[header.sizeClass].push_back(block);
      cache().cached += size;
      return;
    }
  }
  std::free(block);
}

struct CachingAllocator final : c10::Allocator {
  // Depending on the torch version `allocate` is const or not, and copy_data exists or not: define all of them.
  c10::DataPtr allocate(size_t n) const { return make(n); }
  c10::DataPtr allocate(size_t n) { return make(n); }
  void copy_data(void* dst, const void* src, std::size_t n) const { std::memcpy(dst, src, n); }
  c10::DeleterFnPtr raw_deleter() const override { return &freeBlock; }

 private:
  static c10::DataPtr make(size_t n) {
    void* data = n == 0 ? nullptr : allocateBlock(n);
    return {data, data, &freeBlock, c10::Device(c10::DeviceType::CPU)};
  }
};

}  // namespace

void installAllocator() {
  static auto* a = new CachingAllocator();
  if (const char* text = std::getenv("ROUNDTRIP_CPU_CACHE_MB")) cache().limit = std::atoll(text) << 20;
  c10::SetCPUAllocator(a, 1);
}

AllocStats allocStats() {
  std::lock_guard<std::mutex> guard(cache().lock);
  return {cache().live, cache().peak, cache().cached};
}

void resetPeak() {
  std::lock_guard<std::mutex> guard(cache().lock);
  cache().peak = cache().live;
}

void emptyHostCache() {
  std::lock_guard<std::mutex> guard(cache().lock);
  for (auto& list : cache().free) {
    for (void* block : list) std::free(block);
    list.clear();
    list.shrink_to_fit();
  }
  cache().cached = 0;
}

}  // namespace rt
