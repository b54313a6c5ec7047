// CUDA: device facts, streams, events, graphs. Built without CUDA every call but the counts says so.
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
#include <c10/cuda/CUDAStream.h>

namespace rt {

namespace {
struct CudaState {
  std::vector<std::unique_ptr<at::cuda::CUDAEvent>> events;
  std::vector<std::unique_ptr<at::cuda::CUDAGraph>> graphs;
};
CudaState& state() {
  static auto* s = new CudaState();
  return *s;
}
at::cuda::CUDAGraph& graphAt(int id) {
  TORCH_CHECK(id >= 0 && id < static_cast<int>(state().graphs.size()) && state().graphs[id], "unknown graph");
  return *state().graphs[id];
}
}  // namespace

void cudaLoad() {}
int cudaCount() { return static_cast<int>(c10::cuda::device_count()); }
std::string cudaName(int device) { return at::cuda::getDeviceProperties(device)->name; }
void cudaSynchronize() { c10::cuda::device_synchronize(); }

void cudaUseSideStream(bool on) {
  c10::cuda::device_synchronize();
  c10::cuda::setCurrentCUDAStream(on ? c10::cuda::getStreamFromPool() : c10::cuda::getDefaultCUDAStream());
}

void cudaMemory(int device, double* out) {
  at::empty({1}, at::TensorOptions().device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));  // the allocator may be asleep
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  out[0] = static_cast<double>(stats.allocated_bytes[0].current);
  out[1] = static_cast<double>(stats.reserved_bytes[0].current);
  out[2] = static_cast<double>(stats.allocated_bytes[0].peak);
  out[3] = static_cast<double>(at::cuda::getDeviceProperties(device)->totalGlobalMem);
}

void cudaResetPeak(int device) { c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(device)); }
void cudaEmptyCache() {
  if (cudaCount() > 0) c10::cuda::CUDACachingAllocator::emptyCache();
}

int cudaEvent() {
  state().events.push_back(std::make_unique<at::cuda::CUDAEvent>(cudaEventDefault));
  state().events.back()->record();
  return static_cast<int>(state().events.size()) - 1;
}

double cudaElapsed(int from, int to) {
  auto& events = state().events;
  TORCH_CHECK(from >= 0 && to >= 0 && std::max(from, to) < static_cast<int>(events.size()), "unknown event");
  events[to]->synchronize();
  return events[from]->elapsed_time(*events[to]);
}

int cudaGraphBegin() {
  state().graphs.push_back(std::make_unique<at::cuda::CUDAGraph>());
  state().graphs.back()->capture_begin();
  return static_cast<int>(state().graphs.size()) - 1;
}
void cudaGraphEnd(int graph) { graphAt(graph).capture_end(); }
void cudaGraphReplay(int graph) { graphAt(graph).replay(); }
void cudaGraphFree(int graph) {
  graphAt(graph).reset();
  state().graphs[graph].reset();
}

void cudaShutdown() {
  state().graphs.clear();
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
void cudaSynchronize() {}
void cudaUseSideStream(bool) { none(); }
void cudaMemory(int, double*) { none(); }
void cudaResetPeak(int) { none(); }
void cudaEmptyCache() {}
int cudaEvent() { none(); }
double cudaElapsed(int, int) { none(); }
int cudaGraphBegin() { none(); }
void cudaGraphEnd(int) { none(); }
void cudaGraphReplay(int) { none(); }
void cudaGraphFree(int) { none(); }
void cudaShutdown() {}
at::Generator cudaGenerator(int) { none(); }

}  // namespace rt

#endif
