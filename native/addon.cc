// Entry point of the addon. One thread of the process owns the engine; JavaScript calls its functions by name.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/Logging.h>
#include <dlfcn.h>

#include <atomic>
#include <mutex>

#include "calls.h"
#include "compat.h"

namespace {

using rt::engine;
using rt::num;
using rt::setText;
std::atomic<bool> claimed{false};

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
  at::globalContext().setAllowTF32CuDNN(false);  // TF32 would round the inputs of float32 convolutions to 10 bits
#if TORCH_AT_LEAST(2, 4)
  // cuDNN's attention gives NaN gradients if all scores of a query are below -88 and the keys do not fill a tile.
  at::globalContext().setSDPUseCuDNN(false);
#endif
  c10::SetStackTraceFetcher([]() -> std::string { return {}; });  // a C++ stack trace is never shown and costs 5 ms per error
  END_CALL
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
  END_CALL
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
  END_CALL
}

}  // namespace

NAPI_MODULE_INIT() {
  static std::once_flag once;
  std::call_once(once, [] {
    rt::installAllocator();
    rt::installProducts();
  });
  rt::addCalls(env, exports, {{"init", init}, {"threads", threads}, {"info", info_}});
  rt::addOpCalls(env, exports);
  rt::addTensorCalls(env, exports);
  rt::addAutogradCalls(env, exports);
  rt::addDeviceCalls(env, exports);
  rt::addStoreCalls(env, exports);
  rt::addGroupCalls(env, exports);
  return exports;
}
