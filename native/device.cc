// CUDA: device properties, streams, events, graphs. In a build without CUDA most calls throw.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <dlfcn.h>

#include "compat.h"
#include "engine.h"

#ifdef ROUNDTRIP_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

namespace rt {

namespace {
using c10::cuda::CUDAGuard;
using PoolId = decltype(at::cuda::graph_pool_handle());

// One side stream and one memory pool for all captures on a device: the allocator caches blocks per stream, and each separate pool
// would keep memory reserved. The anchor is a graph that is never freed; without it the pool would be freed with the last graph.
struct Captures {
  c10::cuda::CUDAStream stream;
  PoolId pool;
  std::unique_ptr<at::cuda::CUDAGraph> anchor;
};

// A second stream for work that has nothing to do with the first one's until they meet again.
struct Fork {
  c10::cuda::CUDAStream beside, main;
  at::cuda::CUDAEvent begun, done;
};

struct CudaState {
  std::vector<std::unique_ptr<at::cuda::CUDAEvent>> events;
  std::vector<std::unique_ptr<at::cuda::CUDAGraph>> graphs;
  std::map<int, Captures> captures;
  std::map<int, Fork> forks;
};
CudaState& state() {
  static auto* s = new CudaState();
  return *s;
}
at::cuda::CUDAGraph& graphAt(int id) {
  TORCH_CHECK(id >= 0 && id < static_cast<int>(state().graphs.size()) && state().graphs[id], "unknown graph");
  return *state().graphs[id];
}
at::cuda::CUDAEvent& eventAt(int id) {
  TORCH_CHECK(id >= 0 && id < static_cast<int>(state().events.size()) && state().events[id], "unknown event");
  return *state().events[id];
}

c10::DeviceIndex index(int device) { return static_cast<c10::DeviceIndex>(device); }

// Stores the item at the first free index and returns the index.
template <class T>
int place(std::vector<std::unique_ptr<T>>& list, std::unique_ptr<T> item) {
  for (size_t i = 0; i < list.size(); i++)
    if (!list[i]) {
      list[i] = std::move(item);
      return static_cast<int>(i);
    }
  list.push_back(std::move(item));
  return static_cast<int>(list.size()) - 1;
}

Captures& capturesOf(int device) {
  auto& all = state().captures;
  auto found = all.find(device);
  if (found == all.end())
    found = all.emplace(device, Captures{c10::cuda::getStreamFromPool(false, index(device)), at::cuda::graph_pool_handle(), nullptr}).first;
  return found->second;
}

// Thread-local mode: other threads (prefetch, watchdog of collectives) may allocate during the capture.
void beginCapture(at::cuda::CUDAGraph& graph, PoolId pool) {
#if TORCH_AT_LEAST(2, 1)
  graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
#else
  graph.capture_begin(pool);
#endif
}

// Call with the side stream as the current stream.
void ensureAnchor(Captures& c, int device) {
  if (c.anchor) return;
  auto anchor = std::make_unique<at::cuda::CUDAGraph>();
  at::Tensor cell = at::zeros({1}, at::TensorOptions().device(at::kCUDA, index(device)));
  c10::cuda::device_synchronize();
  beginCapture(*anchor, c.pool);
  cell.add_(1);
  anchor->capture_end();
  c.anchor = std::move(anchor);
}
}  // namespace

void cudaLoad() { setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0); }  // required by deterministic algorithms; cuBLAS reads it once

void cudaFixedOrder(bool on) {
  at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
#if TORCH_AT_LEAST(2, 2)
  at::globalContext().setDeterministicFillUninitializedMemory(false);
#endif
}

int cudaCount() { return static_cast<int>(c10::cuda::device_count()); }
std::string cudaName(int device) { return at::cuda::getDeviceProperties(device)->name; }
void cudaFacts(int device, double* out) {
  const auto* facts = at::cuda::getDeviceProperties(device);
  out[0] = facts->major * 10 + facts->minor;
  out[1] = facts->multiProcessorCount;
}
void* cudaStream(int device) { return c10::cuda::getCurrentCUDAStream(index(device)).stream(); }
void cudaUse(int device) { c10::cuda::set_device(index(device)); }
int cudaCurrent() { return c10::cuda::current_device(); }
void cudaSynchronize(int device) {
  CUDAGuard guard(index(device));
  c10::cuda::device_synchronize();
}

void cudaUseSideStream(bool on, int device) {
  CUDAGuard guard(index(device));
  c10::cuda::device_synchronize();
  c10::cuda::setCurrentCUDAStream(on ? capturesOf(device).stream : c10::cuda::getDefaultCUDAStream(index(device)));
}

void cudaFork(int device) {
  const auto main = c10::cuda::getCurrentCUDAStream(index(device));
  auto& forks = state().forks;
  auto fork = forks.find(device);
  if (fork == forks.end()) fork = forks.emplace(device, Fork{c10::cuda::getStreamFromPool(false, index(device)), main, {}, {}}).first;
  fork->second.main = main;
  fork->second.begun.record(main);
}
void cudaBeside(bool on, int device) {
  Fork& fork = state().forks.at(device);
  if (on) fork.begun.block(fork.beside);
  else fork.done.record(fork.beside);
  c10::cuda::setCurrentCUDAStream(on ? fork.beside : fork.main);
  if (!on) fork.done.block(fork.main);
}

void cudaMemory(int device, double* out) {
  at::empty({1}, at::TensorOptions().device(at::kCUDA, index(device)));  // initializes the allocator, which has no stats before its first use
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index(device));
  out[0] = static_cast<double>(stats.allocated_bytes[0].current);
  out[1] = static_cast<double>(stats.reserved_bytes[0].current);
  out[2] = static_cast<double>(stats.allocated_bytes[0].peak);
  out[3] = static_cast<double>(at::cuda::getDeviceProperties(device)->totalGlobalMem);
}

void cudaResetPeak(int device) { c10::cuda::CUDACachingAllocator::resetPeakStats(index(device)); }
void cudaEmptyCache() {
  if (cudaCount() > 0) c10::cuda::CUDACachingAllocator::emptyCache();
}

int cudaEvent(int device) {
  CUDAGuard guard(index(device));
  auto event = std::make_unique<at::cuda::CUDAEvent>(cudaEventDefault);
  event->record(c10::cuda::getCurrentCUDAStream(index(device)));
  return place(state().events, std::move(event));
}

double cudaElapsed(int from, int to) {
  eventAt(to).synchronize();
  return eventAt(from).elapsed_time(eventAt(to));
}
void cudaEventFree(int event) {
  eventAt(event);
  state().events[event].reset();
}

int cudaGraphBegin(int device) {
  CUDAGuard guard(index(device));
  Captures& c = capturesOf(device);
  ensureAnchor(c, device);
  auto graph = std::make_unique<at::cuda::CUDAGraph>();
  beginCapture(*graph, c.pool);
  return place(state().graphs, std::move(graph));
}
void cudaGraphEnd(int graph, int device) {
  CUDAGuard guard(index(device));
  try {
    graphAt(graph).capture_end();
  } catch (...) {
    // The allocator may still treat the pool as being captured: the next capture gets a new one.
    Captures& c = capturesOf(device);
    c.pool = at::cuda::graph_pool_handle();
    c.anchor.release();  // freeing it could free the old pool
    throw;
  }
}
void cudaGraphReplay(int graph) { graphAt(graph).replay(); }
void cudaGraphFree(int graph) {
  graphAt(graph).reset();
  state().graphs[graph].reset();
}

void cudaShutdown() {
  state().graphs.clear();
  state().captures.clear();
  state().forks.clear();
  state().events.clear();
}

at::Generator cudaGenerator(int device) { return at::cuda::detail::createCUDAGenerator(static_cast<c10::DeviceIndex>(device)); }

}  // namespace rt

#else

namespace rt {

namespace {
[[noreturn]] void none() { TORCH_CHECK(false, "this build of the engine has no CUDA; see `roundtrip info`"); }
}  // namespace

void cudaLoad() {}
int cudaCount() { return 0; }
std::string cudaName(int) { none(); }
void cudaFacts(int, double*) { none(); }
void* cudaStream(int) { none(); }
void cudaUse(int) { none(); }
int cudaCurrent() { none(); }
void cudaSynchronize(int) {}
void cudaUseSideStream(bool, int) { none(); }
void cudaFork(int) { none(); }
void cudaBeside(bool, int) { none(); }
void cudaFixedOrder(bool) { none(); }
void cudaMemory(int, double*) { none(); }
void cudaResetPeak(int) { none(); }
void cudaEmptyCache() {}
int cudaEvent(int) { none(); }
void cudaEventFree(int) { none(); }
double cudaElapsed(int, int) { none(); }
int cudaGraphBegin(int) { none(); }
void cudaGraphEnd(int, int) { none(); }
void cudaGraphReplay(int) { none(); }
void cudaGraphFree(int) { none(); }
void cudaShutdown() {}
at::Generator cudaGenerator(int) { none(); }

}  // namespace rt

#endif
