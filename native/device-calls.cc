// CUDA devices, CUDA graphs, custom kernels and matrix products.
#include <sstream>

#include "calls.h"

namespace {

using rt::buf;
using rt::str;

GIVE(cudaCount, rt::cudaCount())
ENTRY(cudaName) {
  BODY return str(env, rt::cudaName(a.integer(0)));
  END_CALL
}
DO(cudaUse, rt::cudaUse(a.integer(0)))
GIVE(cudaCurrent, rt::cudaCurrent())
DO(cudaSynchronize, rt::cudaSynchronize(a.integer(0)))
DO(cudaSideStream, rt::cudaUseSideStream(a.flag(0), a.integer(1)))
DO(cudaFork, rt::cudaFork(a.integer(0)))
DO(cudaBeside, rt::cudaBeside(a.flag(0), a.integer(1)))
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
  END_CALL
}
// (path of libnvrtc, source, options, one per line) -> machine code
ENTRY(nvrtcCompile) {
  BODY
  std::vector<std::string> options;
  std::istringstream lines(a.text(2));
  for (std::string line; std::getline(lines, line);) options.push_back(line);
  const std::string image = rt::nvrtcCompile(a.text(0), a.text(1), options);
  napi_value out;
  napi_create_buffer_copy(env, image.size(), image.data(), nullptr, &out);
  return out;
  END_CALL
}
GIVE(kernelModule, rt::kernelModule(a.bytes(0).first))
GIVE(kernelFunction, rt::kernelFunction(a.integer(0), a.text(1), a.integer(2)))
// buffer = kernel, grid (3 numbers), block, shared bytes, cluster, overlap, n, then n arguments: kind (0 tensor, 1 int, 2 float,
// 3 null), value
DO(kernelLaunch, rt::kernelLaunch(buf()))

// buffer = n, then per product: a, b, out or -1, bias or -1, float32, scale, add -> per product the handle of a new matrix, or -1 with out.
// a, b and out are four numbers: handle (or -2 - i: the result of product i), first column, number of columns or -1 (all), transposed
DO(products, rt::products(buf()))

const std::vector<rt::Named> deviceCalls = {
    {"cudaCount", cudaCount}, {"cudaName", cudaName}, {"cudaUse", cudaUse}, {"cudaCurrent", cudaCurrent},
    {"cudaSynchronize", cudaSynchronize}, {"cudaSideStream", cudaSideStream}, {"cudaFork", cudaFork},
    {"cudaBeside", cudaBeside}, {"cudaFixedOrder", cudaFixedOrder}, {"cudaMemory", cudaMemory},
    {"cudaResetPeak", cudaResetPeak}, {"cudaEvent", cudaEvent}, {"cudaEventFree", cudaEventFree},
    {"cudaElapsed", cudaElapsed}, {"graphBegin", graphBegin}, {"graphEnd", graphEnd}, {"graphReplay", graphReplay},
    {"graphFree", graphFree}, {"cudaFacts", cudaFacts}, {"nvrtcVersion", nvrtcVersion}, {"nvrtcCompile", nvrtcCompile},
    {"kernelModule", kernelModule}, {"kernelFunction", kernelFunction}, {"kernelLaunch", kernelLaunch},
    {"products", products},
};

}  // namespace

void rt::addDeviceCalls(napi_env env, napi_value exports) { addCalls(env, exports, deviceCalls); }
