// Gradients: recording, computing, and queries about the autograd graph.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "calls.h"

namespace {

using rt::buf;
using rt::engine;
using rt::tensorsAt;

// buffer[0] = on -> buffer[0] = the previous value
ENTRY(gradMode) {
  BODY
  const bool was = at::GradMode::is_enabled();
  at::GradMode::set_enabled(buf()[0] != 0);
  buf()[0] = was;
  END_CALL
}
// buffer[0] = on. While on, ops skip autograd completely, including its tracking of views and in-place writes.
ENTRY(untracked) {
  BODY
  static std::vector<std::unique_ptr<at::AutoDispatchBelowADInplaceOrView>> guards;
  if (buf()[0] != 0) guards.push_back(std::make_unique<at::AutoDispatchBelowADInplaceOrView>());
  else guards.pop_back();
  END_CALL
}
// buffer = handle, on
ENTRY(requiresGrad) {
  BODY
  at::Tensor& t = engine().table.get(buf()[0]);
  TORCH_CHECK(t.is_leaf(), "requires_grad can be set on leaves only");
  t.set_requires_grad(buf()[1] != 0);
  END_CALL
}
// buffer[0] = handle -> buffer[0] = handle of the gradient or -1
ENTRY(grad) {
  BODY
  const at::Tensor& g = engine().table.get(buf()[0]).grad();
  buf()[0] = g.defined() ? engine().table.put(g) : -1;
  END_CALL
}
// buffer = handle, handle of the gradient or -1
ENTRY(setGrad) {
  BODY
  at::Tensor& t = engine().table.get(buf()[0]);
  const at::Tensor g = buf()[1] == -1 ? at::Tensor() : engine().table.get(buf()[1]);
  TORCH_CHECK(!g.defined() || (g.sizes() == t.sizes() && g.scalar_type() == t.scalar_type() && g.device() == t.device()),
              "expected a gradient ", t.scalar_type(), t.sizes(), " on ", t.device(), ", got ", g.scalar_type(), g.sizes(), " on ", g.device());
  t.mutable_grad() = g;
  END_CALL
}

// buffer = retain, n, roots..., n, gradients...
ENTRY(backward) {
  BODY
  const double* d = buf();
  const bool retain = *d++ != 0;
  auto roots = tensorsAt(d);
  auto grads = tensorsAt(d);
  torch::autograd::backward(roots, grads, retain, false);
  END_CALL
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
  END_CALL
}

// buffer = n, roots..., n, leaves... -> 1 for each leaf that a backward from the roots would reach, else 0
ENTRY(reaches) {
  BODY
  const double* d = buf();
  auto roots = tensorsAt(d);
  auto leaves = tensorsAt(d);
  const auto found = rt::reachedLeaves(roots, leaves);
  std::copy(found.begin(), found.end(), buf());
  END_CALL
}
// buffer = n, some..., n, others... -> buffer[0] = whether their graphs have an operation in common
ENTRY(shareGraph) {
  BODY
  const double* d = buf();
  auto some = tensorsAt(d);
  auto others = tensorsAt(d);
  buf()[0] = rt::shareOperations(some, others);
  END_CALL
}
// buffer[0] = handle -> buffer[0] = number of owners of the tensor: handles and graphs
DO(useCount, buf()[0] = static_cast<double>(engine().table.get(buf()[0]).use_count()))
// buffer[0] = handle; argument: the error of a backward that reaches it from now on
DO(refuse, rt::refuseGradients(engine().table.get(buf()[0]), a.text(0)))

const std::vector<rt::Named> autogradCalls = {
    {"gradMode", gradMode}, {"untracked", untracked}, {"requiresGrad", requiresGrad}, {"grad", grad}, {"setGrad", setGrad},
    {"backward", backward}, {"gradOf", gradOf}, {"reaches", reaches}, {"shareGraph", shareGraph}, {"useCount", useCount},
    {"refuse", refuse},
};

}  // namespace

void rt::addAutogradCalls(napi_env env, napi_value exports) { addCalls(env, exports, autogradCalls); }
