// Node-API entry points. Numbers travel in one shared Float64Array (the buffer); calls take as few JavaScript values as possible.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <dlfcn.h>
#include <node_api.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <functional>
#include <sstream>

#include "compat.h"
#include "engine.h"

namespace rt {
void addCollectives(napi_env env, napi_value exports);  // collectives.cc
}

namespace {

using rt::engine;
std::atomic<bool> claimed{false};

void setText(napi_env env, napi_value object, const char* key, const std::string& text) {
  napi_value value;
  napi_create_string_utf8(env, text.c_str(), text.size(), &value);
  napi_set_named_property(env, object, key, value);
}

// Error with code; for a failed op also the fields op, schema, args.
void raise(napi_env env, const std::string& what, const char* code, bool ofOp) {
  std::string op, schema, args, text = what;
  if (ofOp) {
    const auto index = static_cast<size_t>(engine().buffer[0]);
    if (index < engine().ops.size()) {
      op = engine().ops[index]->name;
      schema = engine().ops[index]->schema;
      args = rt::describeCall();
      text += "\n  in " + schema + "\n  with " + args;
    }
  }
  napi_value message, codeValue, error;
  napi_create_string_utf8(env, text.c_str(), text.size(), &message);
  napi_create_string_utf8(env, code, NAPI_AUTO_LENGTH, &codeValue);
  napi_create_error(env, codeValue, message, &error);
  if (ofOp) {
    setText(env, error, "op", op);
    setText(env, error, "schema", schema);
    setText(env, error, "args", args);
  }
  napi_throw(env, error);
}

bool isMemory(const std::string& text) {
  return text.find("out of memory") != std::string::npos || text.find("can't allocate memory") != std::string::npos;
}

template <class F>
napi_value guard(napi_env env, F&& body, bool ofOp = false) {
  try {
    return body();
  } catch (const rt::StaleHandle& e) {
    raise(env, e.what(), "ERR_TENSOR_DISPOSED", ofOp);
  } catch (const c10::Error& e) {
    std::string text = e.what_without_backtrace();
    raise(env, text, isMemory(text) ? "ERR_OOM" : "ERR_TORCH", ofOp);
  } catch (const std::bad_alloc&) {
    raise(env, "out of memory", "ERR_OOM", ofOp);
  } catch (const std::exception& e) {
    std::string text = e.what();
    raise(env, text.substr(0, text.find("\nException raised from")), isMemory(text) ? "ERR_OOM" : "ERR_TORCH", ofOp);
  }
  return nullptr;
}

struct Args {  // read on first use: most calls have none
  napi_env env;
  napi_callback_info info;
  mutable napi_value v[6];
  mutable size_t n = 0;
  size_t count() const {
    if (n == 0) napi_get_cb_info(env, info, &(n = 6), v, nullptr, nullptr);
    return n;
  }
  double number(size_t i) const {
    double x = 0;
    TORCH_CHECK(i < count() && napi_get_value_double(env, v[i], &x) == napi_ok, "argument ", i, ": expected a number");
    return x;
  }
  int integer(size_t i) const { return static_cast<int>(number(i)); }
  bool flag(size_t i) const {
    bool x = false;
    TORCH_CHECK(i < count() && napi_get_value_bool(env, v[i], &x) == napi_ok, "argument ", i, ": expected a boolean");
    return x;
  }
  std::string text(size_t i) const {
    size_t length = 0;
    TORCH_CHECK(i < count() && napi_get_value_string_utf8(env, v[i], nullptr, 0, &length) == napi_ok, "argument ", i, ": expected a string");
    std::string s(length, '\0');
    napi_get_value_string_utf8(env, v[i], s.data(), length + 1, &length);
    return s;
  }
  std::pair<void*, size_t> bytes(size_t i) const {  // any typed array
    napi_typedarray_type type;
    size_t length = 0;
    void* data = nullptr;
    TORCH_CHECK(i < count() && napi_get_typedarray_info(env, v[i], &type, &length, &data, nullptr, nullptr) == napi_ok, "argument ", i,
                ": expected a typed array");
    static const size_t width[] = {1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8};
    return {data, length * width[type]};
  }
};

napi_value num(napi_env env, double x) {
  napi_value v;
  napi_create_double(env, x, &v);
  return v;
}

napi_value str(napi_env env, const std::string& s) {
  napi_value v;
  napi_create_string_utf8(env, s.c_str(), s.size(), &v);
  return v;
}

double* buf() { return engine().buffer; }

#define ENTRY(name) napi_value name(napi_env env, napi_callback_info info)
#define BODY return guard(env, [&]() -> napi_value { const Args a{env, info}; (void)a;
#define END return nullptr; });
#define DO(name, statement) ENTRY(name) { BODY statement; END }
#define GIVE(name, value) ENTRY(name) { BODY return num(env, static_cast<double>(value)); END }

void cleanup(void*) {
  rt::collectivesShutdown();
  rt::cudaShutdown();
  engine().table.clear();
  engine().generators.clear();
  engine().buffer = nullptr;
  claimed = false;
}

ENTRY(init) {
  BODY
  TORCH_CHECK(!claimed.exchange(true), "the engine belongs to one thread of the process, and another one has it already");
  auto [data, size] = a.bytes(0);
  engine().buffer = static_cast<double*>(data);
  engine().capacity = size / sizeof(double);
  rt::cudaLoad();
  napi_add_env_cleanup_hook(env, cleanup, nullptr);
  at::globalContext().setFlushDenormal(true);
  at::globalContext().setAllowTF32CuDNN(false);  // float32 is float32: convolutions would round their inputs to 10 bits
#if TORCH_AT_LEAST(2, 4)
  at::globalContext().setSDPUseCuDNN(false);  // its gradients are NaN where every score of a query is below -88 and keys do not fill a tile
#endif
  c10::SetStackTraceFetcher([]() -> std::string { return {}; });  // never shown, and 5 ms for each error
  END
}

ENTRY(exec) {
  return guard(env, [&]() -> napi_value { rt::execOp(); return nullptr; }, true);
}

ENTRY(resolve) {
  BODY
  const int id = rt::resolveOp(a.text(0), a.text(1));
  napi_value out;
  if (id < 0) {
    napi_get_null(env, &out);
    return out;
  }
  const rt::Op& op = *engine().ops[id];
  napi_create_object(env, &out);
  napi_set_named_property(env, out, "id", num(env, id));
  setText(env, out, "name", op.name);
  setText(env, out, "schema", op.schema);
  napi_value args, returns;
  napi_create_array(env, &args);
  for (size_t i = 0; i < op.args.size(); i++) {
    const rt::Arg& x = op.args[i];
    napi_value item, flagValue;
    napi_create_object(env, &item);
    setText(env, item, "name", x.name);
    setText(env, item, "kind", std::string(1, x.kind));
    napi_set_named_property(env, item, "fixed", num(env, x.fixed));
    napi_get_boolean(env, x.hasDefault, &flagValue);
    napi_set_named_property(env, item, "hasDefault", flagValue);
    napi_get_boolean(env, x.kwargOnly, &flagValue);
    napi_set_named_property(env, item, "kwargOnly", flagValue);
    napi_set_element(env, args, i, item);
  }
  napi_create_array(env, &returns);
  for (size_t i = 0; i < op.returns.size(); i++) {
    napi_value item;
    napi_create_object(env, &item);
    setText(env, item, "kind", std::string(1, op.returns[i]));
    setText(env, item, "name", op.returnNames[i]);
    napi_set_element(env, returns, i, item);
  }
  napi_set_named_property(env, out, "args", args);
  napi_set_named_property(env, out, "returns", returns);
  return out;
  END
}

ENTRY(schemas) {
  BODY
  napi_value out;
  napi_create_array(env, &out);
  uint32_t i = 0;
  for (const auto& s : rt::allSchemas()) napi_set_element(env, out, i++, str(env, s));
  return out;
  END
}

ENTRY(intern) {
  BODY
  engine().strings.push_back(a.text(0));
  return num(env, static_cast<double>(engine().strings.size()) - 1);
  END
}

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
  END
}

std::vector<int64_t> shapeAt(const double* d) {  // ndim, sizes...
  std::vector<int64_t> shape(static_cast<size_t>(*d));
  for (size_t i = 0; i < shape.size(); i++) shape[i] = static_cast<int64_t>(d[i + 1]);
  return shape;
}

// buffer = dtype, ndim, sizes... ; argument: typed array -> buffer[0] = handle
ENTRY(fromTyped) {
  BODY
  auto [data, size] = a.bytes(0);
  auto shape = shapeAt(buf() + 1);
  at::Tensor t = at::empty(shape, at::TensorOptions().dtype(static_cast<at::ScalarType>(buf()[0])));
  TORCH_CHECK(t.nbytes() == size, "the array has ", size, " bytes, shape ", t.sizes(), " needs ", t.nbytes());
  if (size) std::memcpy(t.data_ptr(), data, size);
  buf()[0] = engine().table.put(std::move(t));
  END
}

// buffer[0] = handle; argument: typed array of exactly the tensor's bytes, filled
ENTRY(toTyped) {
  BODY
  auto [data, size] = a.bytes(0);
  at::NoGradGuard guardGrad;
  at::Tensor t = engine().table.get(buf()[0]).detach();
  t = t.cpu().contiguous();
  TORCH_CHECK(t.nbytes() == size, "the array has ", size, " bytes, the tensor ", t.nbytes());
  if (size) std::memcpy(data, t.data_ptr(), size);
  END
}

// buffer[0] = handle -> buffer[0] = the only element
ENTRY(item) {
  BODY
  const at::Tensor& t = engine().table.get(buf()[0]);
  TORCH_CHECK(t.numel() == 1, "item() needs a tensor of one element, got shape ", t.sizes());
  const at::Scalar s = t.item();
  buf()[0] = s.isBoolean() ? (s.to<bool>() ? 1 : 0) : s.to<double>();
  END
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
  END
}
ENTRY(liveHandles) {
  BODY
  napi_value out;
  auto all = engine().table.handles();
  napi_create_array_with_length(env, all.size(), &out);
  for (size_t i = 0; i < all.size(); i++) napi_set_element(env, out, i, num(env, all[i]));
  return out;
  END
}
DO(resetPeak, rt::resetPeak())
ENTRY(emptyCache) {
  BODY
  rt::emptyHostCache();
  rt::cudaEmptyCache();
  END
}

// buffer[0] = on -> buffer[0] = what it was
ENTRY(gradMode) {
  BODY
  const bool was = at::GradMode::is_enabled();
  at::GradMode::set_enabled(buf()[0] != 0);
  buf()[0] = was;
  END
}
// buffer[0] = on: ops go past autograd altogether, also past its notes about views and writes in place, until the same with 0
ENTRY(untracked) {
  BODY
  static std::vector<std::unique_ptr<at::AutoDispatchBelowADInplaceOrView>> guards;
  if (buf()[0] != 0) guards.push_back(std::make_unique<at::AutoDispatchBelowADInplaceOrView>());
  else guards.pop_back();
  END
}
// buffer = handle, on
ENTRY(requiresGrad) {
  BODY
  at::Tensor& t = engine().table.get(buf()[0]);
  TORCH_CHECK(t.is_leaf(), "requires_grad can be set on leaves only");
  t.set_requires_grad(buf()[1] != 0);
  END
}
// buffer[0] = handle -> buffer[0] = handle of the gradient or -1
ENTRY(grad) {
  BODY
  const at::Tensor& g = engine().table.get(buf()[0]).grad();
  buf()[0] = g.defined() ? engine().table.put(g) : -1;
  END
}
// buffer = handle, handle of the gradient or -1
ENTRY(setGrad) {
  BODY
  at::Tensor& t = engine().table.get(buf()[0]);
  const at::Tensor g = buf()[1] == -1 ? at::Tensor() : engine().table.get(buf()[1]);
  TORCH_CHECK(!g.defined() || (g.sizes() == t.sizes() && g.scalar_type() == t.scalar_type() && g.device() == t.device()),
              "expected a gradient ", t.scalar_type(), t.sizes(), " on ", t.device(), ", got ", g.scalar_type(), g.sizes(), " on ", g.device());
  t.mutable_grad() = g;
  END
}

std::vector<at::Tensor> tensorsAt(const double*& d) {  // n, handles (-1: undefined)
  std::vector<at::Tensor> out(static_cast<size_t>(*d++));
  for (auto& t : out) {
    const double handle = *d++;
    if (handle != -1) t = engine().table.get(handle);
  }
  return out;
}

// buffer = retain, n, roots..., n, gradients...
ENTRY(backward) {
  BODY
  const double* d = buf();
  const bool retain = *d++ != 0;
  auto roots = tensorsAt(d);
  auto grads = tensorsAt(d);
  torch::autograd::backward(roots, grads, retain, false);
  END
}

// buffer = retain, create, n, outputs..., n, inputs..., n, gradients... -> handles (-1: unused)
ENTRY(gradOf) {
  BODY
  const double* d = buf();
  const bool retain = *d++ != 0, create = *d++ != 0;
  auto outs = tensorsAt(d);
  auto ins = tensorsAt(d);
  auto grads = tensorsAt(d);
  auto result = torch::autograd::grad(outs, ins, grads, retain, create, true);
  for (size_t i = 0; i < result.size(); i++) buf()[i] = result[i].defined() ? engine().table.put(result[i]) : -1;
  END
}

// buffer = n, roots..., n, leaves... -> 1 for each leaf that a backward from the roots would reach, else 0
ENTRY(reaches) {
  BODY
  const double* d = buf();
  auto roots = tensorsAt(d);
  auto leaves = tensorsAt(d);
  const auto found = rt::reachedLeaves(roots, leaves);
  std::copy(found.begin(), found.end(), buf());
  END
}
// buffer = n, some..., n, others... -> buffer[0] = whether their graphs have an operation in common
ENTRY(shareGraph) {
  BODY
  const double* d = buf();
  auto some = tensorsAt(d);
  auto others = tensorsAt(d);
  buf()[0] = rt::shareOperations(some, others);
  END
}
// buffer[0] = handle -> buffer[0] = owners of the tensor: handles, graphs
DO(useCount, buf()[0] = static_cast<double>(engine().table.get(buf()[0]).use_count()))
// buffer[0] = handle; argument: why a backward must not reach it any more
DO(refuse, rt::refuseGradients(engine().table.get(buf()[0]), a.text(0)))

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
  END
}
// (id): the generator is freed, its place goes to the next
ENTRY(generatorFree) {
  BODY
  const auto id = static_cast<size_t>(a.integer(0));
  TORCH_CHECK(id < engine().generators.size(), "unknown generator");
  engine().generators[id] = at::Generator();
  END
}
ENTRY(generatorSeed) {
  BODY
  auto g = generatorAt(a.integer(0));
  std::lock_guard<std::mutex> lock(g.mutex());
  g.set_current_seed(static_cast<uint64_t>(a.number(1)));
  END
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
  END
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
  END
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
  END
}
// buffer = target, the stream's two words, bound
ENTRY(uniformFill) {
  BODY
  const double* d = buf();
  const at::Tensor& t = engine().table.get(d[0]);
  rt::uniformFill(plain(t, t.numel()), t.numel(), static_cast<uint32_t>(d[1]), static_cast<uint32_t>(d[2]), d[3]);
  END
}

ENTRY(threads) {
  BODY
  if (a.count() > 0) {
    const int n = a.integer(0);
    TORCH_CHECK(n >= 1, "threads: expected at least 1, got ", n);
    at::set_num_threads(n);
    if (void* f = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) reinterpret_cast<void (*)(int)>(f)(n);
  }
  return num(env, at::get_num_threads());
  END
}

ENTRY(info_) {
  BODY
  napi_value out;
  napi_create_object(env, &out);
  setText(env, out, "version", TORCH_VERSION);
  setText(env, out, "config", at::show_config());
  setText(env, out, "parallel", at::get_parallel_info());
  void* blas = dlsym(RTLD_DEFAULT, "openblas_get_config");
  setText(env, out, "blas", blas ? reinterpret_cast<const char* (*)()>(blas)() : (at::hasMKL() ? "MKL" : "other"));
  void* core = dlsym(RTLD_DEFAULT, "openblas_get_corename");
  setText(env, out, "blasCore", core ? reinterpret_cast<const char* (*)()>(core)() : "");
  setText(env, out, "compiler", __VERSION__);
#ifdef ROUNDTRIP_CUDA
  setText(env, out, "cuda", "built in");
#else
  setText(env, out, "cuda", "not built in");
#endif
  return out;
  END
}

GIVE(cudaCount, rt::cudaCount())
ENTRY(cudaName) {
  BODY return str(env, rt::cudaName(a.integer(0)));
  END
}
DO(cudaUse, rt::cudaUse(a.integer(0)))
GIVE(cudaCurrent, rt::cudaCurrent())
DO(cudaSynchronize, rt::cudaSynchronize(a.integer(0)))
DO(cudaSideStream, rt::cudaUseSideStream(a.flag(0), a.integer(1)))
DO(cudaFixedOrder, rt::cudaFixedOrder(a.flag(0)))
DO(cudaMemory, rt::cudaMemory(a.integer(0), buf()))
DO(cudaResetPeak, rt::cudaResetPeak(a.integer(0)))
GIVE(cudaEvent, rt::cudaEvent(a.integer(0)))
DO(cudaEventFree, rt::cudaEventFree(a.integer(0)))
GIVE(cudaElapsed, rt::cudaElapsed(a.integer(0), a.integer(1)))
GIVE(graphBegin, rt::cudaGraphBegin(a.integer(0)))
DO(graphEnd, rt::cudaGraphEnd(a.integer(0), a.integer(1)))
DO(graphReplay, rt::cudaGraphReplay(a.integer(0)))
DO(graphFree, rt::cudaGraphFree(a.integer(0)))

DO(cudaFacts, rt::cudaFacts(a.integer(0), buf()))

ENTRY(nvrtcVersion) {
  BODY return str(env, rt::nvrtcVersion(a.text(0)));
  END
}
// (path of libnvrtc, source, options one a line) -> machine code
ENTRY(nvrtcCompile) {
  BODY
  std::vector<std::string> options;
  std::istringstream lines(a.text(2));
  for (std::string line; std::getline(lines, line);) options.push_back(line);
  const std::string image = rt::nvrtcCompile(a.text(0), a.text(1), options);
  napi_value out;
  napi_create_buffer_copy(env, image.size(), image.data(), nullptr, &out);
  return out;
  END
}
GIVE(kernelModule, rt::kernelModule(a.bytes(0).first))
GIVE(kernelFunction, rt::kernelFunction(a.integer(0), a.text(1), a.integer(2)))
// buffer = kernel, grid x 3, block, shared bytes, cluster, overlap, n, then per argument: kind (0 tensor, 1 int, 2 float, 3 null), value
DO(kernelLaunch, rt::kernelLaunch(buf()))

// buffer = n, then per product: a, b (handle or -2 - i: what product i made, first column, columns or -1, transposed), the place likewise or
// -1, bias or -1, float32, scale, add -> for each the handle of a new matrix, or -1 where it had a place
DO(products, rt::products(buf()))

struct Named {
  const char* name;
  napi_callback call;
};
const Named entries[] = {
    {"init", init}, {"exec", exec}, {"resolve", resolve}, {"schemas", schemas}, {"intern", intern}, {"meta", meta},
    {"fromTyped", fromTyped}, {"toTyped", toTyped}, {"item", item}, {"dispose", dispose}, {"keep", keep},
    {"scopeBegin", scopeBegin}, {"scopeEnd", scopeEnd}, {"alias", alias}, {"alive", alive}, {"stats", stats},
    {"liveHandles", liveHandles}, {"resetPeak", resetPeak}, {"emptyCache", emptyCache}, {"gradMode", gradMode},
    {"requiresGrad", requiresGrad}, {"grad", grad}, {"setGrad", setGrad}, {"backward", backward}, {"gradOf", gradOf},
    {"reaches", reaches}, {"shareGraph", shareGraph}, {"useCount", useCount}, {"refuse", refuse},
    {"generatorNew", generatorNew}, {"generatorFree", generatorFree}, {"generatorSeed", generatorSeed}, {"generatorState", generatorState},
    {"generatorRestore", generatorRestore}, {"mapOpen", mapOpen}, {"mapSize", mapSize}, {"mapTensor", mapTensor},
    {"mapClose", mapClose}, {"adamw", adamw}, {"ema", ema}, {"uniformFill", uniformFill}, {"threads", threads}, {"info", info_},
    {"cudaCount", cudaCount}, {"cudaName", cudaName}, {"cudaUse", cudaUse}, {"cudaFixedOrder", cudaFixedOrder}, {"cudaCurrent", cudaCurrent}, {"cudaSynchronize", cudaSynchronize},
    {"cudaSideStream", cudaSideStream}, {"cudaMemory", cudaMemory}, {"cudaResetPeak", cudaResetPeak},
    {"cudaEvent", cudaEvent}, {"cudaEventFree", cudaEventFree}, {"cudaElapsed", cudaElapsed}, {"graphBegin", graphBegin}, {"graphEnd", graphEnd},
    {"graphReplay", graphReplay}, {"graphFree", graphFree}, {"cudaFacts", cudaFacts}, {"nvrtcVersion", nvrtcVersion},
    {"nvrtcCompile", nvrtcCompile}, {"kernelModule", kernelModule}, {"kernelFunction", kernelFunction}, {"kernelLaunch", kernelLaunch},
    {"products", products}, {"untracked", untracked},
};

}  // namespace

NAPI_MODULE_INIT() {
  static std::once_flag once;
  std::call_once(once, rt::installAllocator);
  for (const Named& e : entries) {
    napi_value f;
    napi_create_function(env, e.name, NAPI_AUTO_LENGTH, e.call, nullptr, &f);
    napi_set_named_property(env, exports, e.name, f);
  }
  rt::addCollectives(env, exports);
  return exports;
}
