// Calls for tensors and their bytes, scopes, memory, random generators, mapped files, and loops over many tensors.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>

#include "calls.h"
#include "kernels.h"

namespace {

using rt::buf;
using rt::engine;
using rt::num;
using rt::shapeAt;

// buffer[0] = handle -> dtype, device type, device index, requires_grad, is_leaf, numel, ndim, sizes...
ENTRY(meta) {
  BODY
  const at::Tensor& t = engine().table.get(buf()[0]);
  double* d = buf();
  *d++ = static_cast<double>(t.scalar_type());
  *d++ = static_cast<double>(t.device().type());
  *d++ = t.device().index();
  *d++ = t.requires_grad();
  *d++ = t.is_leaf();
  *d++ = static_cast<double>(t.numel());
  *d++ = static_cast<double>(t.dim());
  for (int64_t n : t.sizes()) *d++ = static_cast<double>(n);
  END_CALL
}

// buffer = dtype of the array, dtype and device of the tensor, ndim, sizes... ; argument: typed array -> buffer[0] = handle
ENTRY(fromTyped) {
  BODY
  auto [data, size] = a.bytes(0);
  const auto own = static_cast<at::ScalarType>(buf()[0]), dtype = static_cast<at::ScalarType>(buf()[1]);
  const c10::Device device = rt::deviceOf(buf()[2]);
  const auto shape = shapeAt(buf() + 3);
  const bool plain = dtype == own && device.is_cpu();
  at::Tensor t = plain ? at::empty(shape, own) : at::from_blob(data, shape, own);
  TORCH_CHECK(t.nbytes() == size, "the array has ", size, " bytes, shape ", t.sizes(), " needs ", t.nbytes());
  if (plain && size) std::memcpy(t.data_ptr(), data, size);
  if (dtype != own) t = t.to(dtype);  // on the host: fewer bytes to the device
  if (device.is_cuda() && t.nbytes() >= 1 << 20) t = at::empty(shape, t.options().pinned_memory(true)).copy_(t);  // by all threads
  if (!device.is_cpu()) t = t.to(device, dtype, /*non_blocking=*/true);
  buf()[0] = engine().table.put(std::move(t));
  END_CALL
}

// buffer[0] = handle; argument: typed array of the same number of bytes, which is filled
ENTRY(toTyped) {
  BODY
  auto [data, size] = a.bytes(0);
  at::NoGradGuard guardGrad;
  at::Tensor t = engine().table.get(buf()[0]).detach();
  TORCH_CHECK(t.nbytes() == size, "the array has ", size, " bytes, the tensor ", t.nbytes());
  if (!t.is_cpu() || !t.is_contiguous()) at::from_blob(data, t.sizes(), t.options().device(at::kCPU)).copy_(t);
  else if (size) std::memcpy(data, t.data_ptr(), size);
  END_CALL
}

// buffer[0] = handle -> buffer[0] = the only element
ENTRY(item) {
  BODY
  const at::Tensor& t = engine().table.get(buf()[0]);
  TORCH_CHECK(t.numel() == 1, "item() needs a tensor of one element, got shape ", t.sizes());
  const at::Scalar s = t.item();
  buf()[0] = s.isBoolean() ? (s.to<bool>() ? 1 : 0) : s.to<double>();
  END_CALL
}

DO(dispose, engine().table.free(buf()[0]))
DO(keep, engine().table.keep(buf()[0]))
DO(scopeBegin, engine().table.begin())
// buffer = n, handles...
DO(scopeEnd, engine().table.end(buf() + 1, static_cast<size_t>(buf()[0])))
// buffer[0] = handle -> buffer[0] = a second handle of the same tensor
DO(alias, buf()[0] = engine().table.put(engine().table.get(buf()[0])))
DO(alive, buf()[0] = engine().table.alive(buf()[0]))
// -> live tensors, scope depth, slots, created, live bytes, peak bytes, cached bytes
ENTRY(stats) {
  BODY
  const auto s = rt::allocStats();
  const auto& t = engine().table;
  const double values[] = {double(t.live()), double(t.depth()), double(t.capacity()), double(t.created()), double(s.live), double(s.peak), double(s.cached)};
  std::copy(std::begin(values), std::end(values), buf());
  END_CALL
}
ENTRY(liveHandles) {
  BODY
  napi_value out;
  auto all = engine().table.handles();
  napi_create_array_with_length(env, all.size(), &out);
  for (size_t i = 0; i < all.size(); i++) napi_set_element(env, out, i, num(env, all[i]));
  return out;
  END_CALL
}
DO(resetPeak, rt::resetPeak())
ENTRY(emptyCache) {
  BODY
  rt::emptyHostCache();
  rt::cudaEmptyCache();
  END_CALL
}

// Generators: id -1 is the CPU's default one, -2 - n that of CUDA device n.
at::Generator generatorAt(int id) {
  if (id == -1) return at::detail::getDefaultCPUGenerator();
  if (id < -1) return at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(-2 - id)));
  TORCH_CHECK(id < static_cast<int>(engine().generators.size()) && engine().generators[id].defined(), "unknown generator");
  return engine().generators[id];
}
ENTRY(generatorNew) {  // (device index or -1 for the CPU) -> id
  BODY
  const int device = a.integer(0);
  auto& all = engine().generators;
  size_t id = 0;
  while (id < all.size() && all[id].defined()) id++;
  if (id == all.size()) all.emplace_back();
  all[id] = device < 0 ? at::detail::createCPUGenerator() : rt::cudaGenerator(device);
  return num(env, static_cast<double>(id));
  END_CALL
}
// (id): frees the generator; the id is reused
ENTRY(generatorFree) {
  BODY
  const auto id = static_cast<size_t>(a.integer(0));
  TORCH_CHECK(id < engine().generators.size(), "unknown generator");
  engine().generators[id] = at::Generator();
  END_CALL
}
ENTRY(generatorSeed) {
  BODY
  auto g = generatorAt(a.integer(0));
  std::lock_guard<std::mutex> lock(g.mutex());
  g.set_current_seed(static_cast<uint64_t>(a.number(1)));
  END_CALL
}
// (id) -> buffer[0] = handle of the state
DO(generatorState, buf()[0] = engine().table.put(generatorAt(a.integer(0)).get_state()))
// (id), buffer[0] = handle of the state
DO(generatorRestore, generatorAt(a.integer(0)).set_state(engine().table.get(buf()[0])))

GIVE(mapOpen, rt::mapOpen(a.text(0)))
GIVE(mapSize, rt::mapSize(a.integer(0)))
// buffer = map, offset, dtype, ndim, sizes... -> handle
ENTRY(mapTensor) {
  BODY
  const double* d = buf();
  auto t = rt::mapTensor(static_cast<int>(d[0]), static_cast<int64_t>(d[1]), shapeAt(d + 3), static_cast<at::ScalarType>(d[2]));
  buf()[0] = engine().table.put(std::move(t));
  END_CALL
}
DO(mapClose, rt::mapClose(a.integer(0)))

float* plain(const at::Tensor& t, int64_t n) {
  TORCH_CHECK(t.scalar_type() == at::kFloat && t.device().is_cpu() && t.is_contiguous() && t.numel() == n,
              "expected a contiguous float32 CPU tensor of ", n, " elements, got ", t.scalar_type(), t.sizes());
  return static_cast<float*>(t.data_ptr());
}

// buffer = lr, beta1, beta2, eps, decay, 1-beta1^t, 1-beta2^t, n, then per tensor: parameter, gradient, mean, square
ENTRY(adamw) {
  BODY
  const double* d = buf();
  const rt::AdamW h{d[0], d[1], d[2], d[3], d[4], d[5], d[6]};
  const auto n = static_cast<size_t>(d[7]);
  d += 8;
  auto& table = engine().table;
  for (size_t i = 0; i < n; i++, d += 4) {
    const at::Tensor& p = table.get(d[0]);
    const int64_t size = p.numel();
    const at::Tensor g = table.get(d[1]).contiguous();
    rt::adamwStep(plain(p, size), plain(g, size), plain(table.get(d[2]), size), plain(table.get(d[3]), size), size, h);
  }
  END_CALL
}
// buffer = decay, n, then per tensor: target, source
ENTRY(ema) {
  BODY
  const double* d = buf();
  const auto decay = static_cast<float>(d[0]);
  const auto n = static_cast<size_t>(d[1]);
  d += 2;
  auto& table = engine().table;
  for (size_t i = 0; i < n; i++, d += 2) {
    const at::Tensor& dst = table.get(d[0]);
    rt::emaStep(plain(dst, dst.numel()), plain(table.get(d[1]), dst.numel()), dst.numel(), decay);
  }
  END_CALL
}
// buffer = target, the stream's two words, bound
ENTRY(uniformFill) {
  BODY
  const double* d = buf();
  const at::Tensor& t = engine().table.get(d[0]);
  rt::uniformFill(plain(t, t.numel()), t.numel(), static_cast<uint32_t>(d[1]), static_cast<uint32_t>(d[2]), d[3]);
  END_CALL
}

const std::vector<rt::Named> tensorCalls = {
    {"meta", meta}, {"fromTyped", fromTyped}, {"toTyped", toTyped}, {"item", item}, {"dispose", dispose}, {"keep", keep},
    {"scopeBegin", scopeBegin}, {"scopeEnd", scopeEnd}, {"alias", alias}, {"alive", alive}, {"stats", stats},
    {"liveHandles", liveHandles}, {"resetPeak", resetPeak}, {"emptyCache", emptyCache}, {"generatorNew", generatorNew},
    {"generatorFree", generatorFree}, {"generatorSeed", generatorSeed}, {"generatorState", generatorState},
    {"generatorRestore", generatorRestore}, {"mapOpen", mapOpen}, {"mapSize", mapSize}, {"mapTensor", mapTensor},
    {"mapClose", mapClose}, {"adamw", adamw}, {"ema", ema}, {"uniformFill", uniformFill},
};

}  // namespace

void rt::addTensorCalls(napi_env env, napi_value exports) { addCalls(env, exports, tensorCalls); }
