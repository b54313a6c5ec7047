// Queries about an autograd graph: which leaves it reaches, and whether two graphs share operations.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

#include "engine.h"

namespace rt {

namespace {
using torch::autograd::AccumulateGrad;
using torch::autograd::Node;

// Calls visit(node) once for every node of the graph of `roots`; stops when it returns true.
template <class F>
bool walk(const std::vector<at::Tensor>& roots, F&& visit) {
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  const auto add = [&](Node* node) {
    if (node && seen.insert(node).second) open.push_back(node);
  };
  for (const auto& root : roots)
    if (root.defined()) add(torch::autograd::impl::gradient_edge(root).function.get());
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (visit(node)) return true;
    for (const auto& edge : node->next_edges()) add(edge.function.get());
  }
  return false;
}

}  // namespace

std::vector<bool> reachedLeaves(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& leaves) {
  std::unordered_set<const void*> found;
  walk(roots, [&](Node* node) {
    if (const auto* leaf = dynamic_cast<AccumulateGrad*>(node)) found.insert(leaf->variable.unsafeGetTensorImpl());
    return false;
  });
  std::vector<bool> out;
  for (const auto& leaf : leaves) out.push_back(leaf.defined() && found.count(leaf.unsafeGetTensorImpl()) > 0);
  return out;
}

bool shareOperations(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  std::unordered_set<Node*> mine;
  const auto isLeaf = [](Node* node) { return dynamic_cast<AccumulateGrad*>(node) != nullptr; };
  walk(some, [&](Node* node) {
    if (!isLeaf(node)) mine.insert(node);
    return false;
  });
  return walk(others, [&](Node* node) { return mine.count(node) > 0; });
}

void refuseGradients(const at::Tensor& leaf, const std::string& why) {
  if (!leaf.requires_grad() || leaf.use_count() == 1) return;  // no graph has it
  leaf.register_hook([why](at::Tensor) { TORCH_CHECK(false, why); });
}

}  // namespace rt
