// Process groups of c10d: Gloo for CPU tensors, NCCL for CUDA tensors if the build has it.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <thread>

#include "collectives.h"

#if defined(USE_C10D_NCCL) && defined(ROUNDTRIP_CUDA)
#define ROUNDTRIP_NCCL
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace rt {

namespace {

#if TORCH_AT_LEAST(2, 0)
using GroupBase = c10d::Backend;
#else
using GroupBase = c10d::ProcessGroup;
#endif

// Methods that only some torch versions have: the `int` overload is preferred if it compiles, else the `long` one does nothing.
template <class G>
auto abortGroup(G& g, int) -> decltype(g.abort(), void()) {
  g.abort();
}
template <class G>
void abortGroup(G&, long) {}
template <class G>
auto shutdownGroup(G& g, int) -> decltype(g.shutdown(), void()) {
  g.shutdown();
}
template <class G>
void shutdownGroup(G&, long) {}

struct Group {
  c10::intrusive_ptr<GroupBase> group;
  std::shared_ptr<int> inFlight = std::make_shared<int>(0);
  bool cuda = false;
  bool dead = false;
};

std::map<int, std::shared_ptr<Group>>& groups() {
  static auto* all = new std::map<int, std::shared_ptr<Group>>();
  return *all;
}

c10::intrusive_ptr<GroupBase> openGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& address,
                                       Milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->timeout = timeout;
  const bool isInterface = address.rfind("interface:", 0) == 0;
  options->devices.push_back(isInterface ? c10d::ProcessGroupGloo::createDeviceForInterface(address.substr(10))
                                         : c10d::ProcessGroupGloo::createDeviceForHostname(address));
  options->threads = 1;  // one queue: collectives run in the order of their launch
  return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store), rank, size, options);
}

c10::intrusive_ptr<GroupBase> openNccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout) {
#ifdef ROUNDTRIP_NCCL
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>("nccl", store), rank, size, options);
#else
  (void)store, (void)rank, (void)size, (void)timeout;
  TORCH_CHECK(false, "this build of the engine has no NCCL; see `roundtrip info`");
#endif
}

// (store, 'gloo' | 'nccl', rank, size, address of this host, timeout ms) -> promise of an id
ENTRY(groupOpen) {
  BODY
  const std::string backend = a.text(1), address = a.text(4);
  const int rank = a.integer(2), size = a.integer(3), id = newId();
  const auto timeout = milliseconds(a.number(5));
  auto group = std::make_shared<Group>();
  group->cuda = backend == "nccl";
  groups()[id] = group;
  return onStore(env, a.integer(0), [=](StoreThread& own, Pending& pending) {
    group->group = group->cuda ? openNccl(own.store, rank, size, timeout) : openGloo(own.store, rank, size, address, timeout);
    pending.value = numberValue(id);
  });
  END_CALL_WITH("ERR_COLLECTIVE")
}

// buffer = n, handles...
std::vector<at::Tensor> tensorsInBuffer() {
  const double* d = engine().buffer;
  std::vector<at::Tensor> out(static_cast<size_t>(*d++));
  for (auto& t : out) t = engine().table.get(*d++).detach();
  return out;
}

// NCCL work is ordered by streams and needs no wait on the host; Gloo work is complete when its future is.
void follow(Pending* pending, bool cuda) {
  if (cuda) {
    pending->work->wait();
    pending->settle();
    return;
  }
  pending->work->getFuture()->addCallback([pending](c10::ivalue::Future& future) {
    if (future.hasError()) pending->fail(textOf(future.exception_ptr()));
    else pending->settle();
  });
}

using Launch = std::function<c10::intrusive_ptr<c10d::Work>(GroupBase&, std::vector<at::Tensor>&)>;

napi_value collective(napi_env env, int id, const Launch& launch) {
  auto group = opened(groups(), id, "group");
  TORCH_CHECK(group->group && !group->dead, "the group has ended");
  auto tensors = tensorsInBuffer();
  for (const auto& t : tensors) {
    TORCH_CHECK(t.is_contiguous(), "a collective needs contiguous tensors");
    TORCH_CHECK(t.is_cuda() == group->cuda, group->cuda ? "NCCL takes CUDA tensors" : "Gloo takes CPU tensors");
  }
  auto work = launch(*group->group, tensors);
  Pending* pending;
  napi_value result = promise(env, pending);
  pending->tensors = std::move(tensors);
  pending->work = std::move(work);
  pending->inFlight = group->inFlight;
  ++*group->inFlight;
  try {
    follow(pending, group->cuda);
  } catch (const std::exception& e) {
    pending->fail(textOf(e));
  }
  return result;
}

// (group, 'sum' | 'max'), buffer = 1, handle
ENTRY(groupAllReduce) {
  BODY
  c10d::AllreduceOptions options;
  options.reduceOp = a.text(1) == "max" ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
  return collective(env, a.integer(0), [&](GroupBase& g, std::vector<at::Tensor>& t) { return g.allreduce(t, options); });
  END_CALL_WITH("ERR_COLLECTIVE")
}

// (group, root), buffer = 1, handle
ENTRY(groupBroadcast) {
  BODY
  c10d::BroadcastOptions options;
  options.rootRank = a.integer(1);
  return collective(env, a.integer(0), [&](GroupBase& g, std::vector<at::Tensor>& t) { return g.broadcast(t, options); });
  END_CALL_WITH("ERR_COLLECTIVE")
}

// (group), buffer = 1 + size, input, outputs by rank
ENTRY(groupAllGather) {
  BODY
  return collective(env, a.integer(0), [](GroupBase& g, std::vector<at::Tensor>& t) {
    std::vector<at::Tensor> input{t.at(0)};
    std::vector<std::vector<at::Tensor>> outputs{{t.begin() + 1, t.end()}};
    return g.allgather(outputs, input);
  });
  END_CALL_WITH("ERR_COLLECTIVE")
}

// (group): pending promises never settle. The group is not destroyed, because its destructor would wait for the peers.
ENTRY(groupAbort) {
  BODY
  auto group = opened(groups(), a.integer(0), "group");
  group->dead = true;
  if (group->group && group->cuda) abortGroup(*group->group, 0);
  END_CALL_WITH("ERR_COLLECTIVE")
}

// (group) -> promise. No collective may be in flight.
ENTRY(groupClose) {
  BODY
  auto group = opened(groups(), a.integer(0), "group");
  TORCH_CHECK(*group->inFlight == 0, "the group still has ", *group->inFlight, " collectives in flight");
  groups().erase(a.integer(0));
  Pending* pending;
  napi_value result = promise(env, pending);
  std::thread([pending, own = std::move(group->group), dead = group->dead]() mutable {
    if (dead) (void)own.release();
    else if (own) shutdownGroup(*own, 0);
    own.reset();
    pending->settle();
  }).detach();
  return result;
  END_CALL_WITH("ERR_COLLECTIVE")
}

// -> the backends of this build
napi_value groupBackends(napi_env env, napi_callback_info) {
#ifdef ROUNDTRIP_NCCL
  return str(env, "gloo nccl");
#else
  return str(env, "gloo");
#endif
}

// (device index): sets the device of this thread; call it before the first NCCL call
ENTRY(groupDevice) {
  BODY
#ifdef ROUNDTRIP_NCCL
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(a.integer(0)));
#endif
  END_CALL_WITH("ERR_COLLECTIVE")
}

}  // namespace

// Call before the tensors are freed. Groups are not destroyed: one with work in flight or lost peers would block.
void collectivesShutdown() {
  for (auto& entry : groups()) (void)entry.second->group.release();
  groups().clear();
  for (auto& entry : stores()) entry.second->stop(false);
  stores().clear();
}

void addGroupCalls(napi_env env, napi_value exports) {
  addCalls(env, exports, {
      {"groupOpen", groupOpen}, {"groupAllReduce", groupAllReduce}, {"groupBroadcast", groupBroadcast},
      {"groupAllGather", groupAllGather}, {"groupAbort", groupAbort}, {"groupClose", groupClose}, {"groupBackends", groupBackends},
      {"groupDevice", groupDevice},
  });
}

}  // namespace rt
