// Processes that work as one: stores, groups and collectives of c10d. Gloo for CPU tensors, NCCL for CUDA tensors where the build
// has it. Collectives are launched on the calling thread, which fixes their order; every wait is a promise, no thread blocks on it.
#include <c10/util/Exception.h>
#include <node_api.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "compat.h"
#include "engine.h"

#if defined(USE_C10D_NCCL) && defined(ROUNDTRIP_CUDA)
#define ROUNDTRIP_NCCL
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace rt {

namespace {

using Milliseconds = std::chrono::milliseconds;
#if TORCH_AT_LEAST(2, 0)
using GroupBase = c10d::Backend;
#else
using GroupBase = c10d::ProcessGroup;
#endif

// Members that only some versions have; the int/long pair prefers the first where it compiles.
template <class O>
auto withoutLibuv(O& o, int) -> decltype(o.useLibUV = false, void()) {  // Node has a libuv of its own, and the linker would mix them
  o.useLibUV = false;
}
template <class O>
void withoutLibuv(O&, long) {}
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

std::string textOf(const std::exception& e) {
  const auto* torchError = dynamic_cast<const c10::Error*>(&e);
  std::string text = torchError ? torchError->what_without_backtrace() : e.what();
  return text.substr(0, text.find("\nException raised from"));
}

std::string textOf(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    return textOf(e);
  } catch (...) {
    return "unknown error";
  }
}

napi_value errorOf(napi_env env, const std::string& text) {
  napi_value code, message, error;
  napi_create_string_utf8(env, "ERR_COLLECTIVE", NAPI_AUTO_LENGTH, &code);
  napi_create_string_utf8(env, text.c_str(), text.size(), &message);
  napi_create_error(env, code, message, &error);
  return error;
}

// A promise that any thread may settle, once.
struct Pending {
  napi_deferred deferred = nullptr;
  napi_threadsafe_function wake = nullptr;
  std::string failure;
  bool failed = false;
  std::function<napi_value(napi_env)> value;  // runs on the thread of the promise; absent: undefined
  std::vector<at::Tensor> tensors;            // in flight: alive until the end
  c10::intrusive_ptr<c10d::Work> work;
  std::shared_ptr<int> inFlight;              // of the group, counted on the thread of the promise

  void settle() { napi_call_threadsafe_function(wake, this, napi_tsfn_nonblocking); }  // refused while closing: then it leaks
  void fail(const std::string& text) {
    failed = true;
    failure = text;
    settle();
  }
};

void onSettled(napi_env env, napi_value, void*, void* data) {
  auto* pending = static_cast<Pending*>(data);
  if (!env) return;  // the thread is ending: nobody waits
  if (pending->inFlight) --*pending->inFlight;
  napi_value result = nullptr;
  if (pending->failed) {
    napi_reject_deferred(env, pending->deferred, errorOf(env, pending->failure));
  } else {
    if (pending->value) result = pending->value(env);
    else napi_get_undefined(env, &result);
    napi_resolve_deferred(env, pending->deferred, result);
  }
  napi_release_threadsafe_function(pending->wake, napi_tsfn_release);
  delete pending;
}

napi_value promise(napi_env env, Pending*& pending) {
  napi_value result, name;
  pending = new Pending();
  napi_create_promise(env, &pending->deferred, &result);
  napi_create_string_utf8(env, "collective", NAPI_AUTO_LENGTH, &name);
  napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, nullptr, onSettled, &pending->wake);
  return result;
}

// A store with the one thread that talks to it: a call may wait for a peer, and c10d holds a lock while it does. The thread also
// writes the heartbeat, so that it goes on while the engine computes and stops when the process is stopped.
class StoreThread : public std::enable_shared_from_this<StoreThread> {
 public:
  c10::intrusive_ptr<c10d::Store> store;

  void start() {
    std::thread([self = shared_from_this()] { self->loop(); }).detach();
  }
  void post(std::function<void()> job) {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(job));
    wake_.notify_one();
  }
  void beat(std::string key, std::string text, Milliseconds every) {
    std::lock_guard<std::mutex> lock(mutex_);
    key_ = std::move(key);
    text_ = std::move(text);
    every_ = every;
    wake_.notify_one();
  }
  void stop(bool orderly) {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    orderly_ = orderly;
    wake_.notify_one();
  }

 private:
  void loop() {
    for (auto job = next(); job; job = next()) job();
    if (orderly_) store.reset();
    else (void)store.release();  // the process is ending: its destructor would talk to peers that may be gone
  }
  std::function<void()> next() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (!queue_.empty()) {
        auto job = std::move(queue_.front());
        queue_.pop_front();
        return job;
      }
      if (stopping_) return nullptr;
      if (key_.empty()) wake_.wait(lock);
      else if (std::chrono::steady_clock::now() >= due_) return beatJob();
      else wake_.wait_until(lock, due_);
    }
  }
  std::function<void()> beatJob() {
    const auto now = std::chrono::duration_cast<Milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    due_ = std::chrono::steady_clock::now() + every_;
    const std::string text = std::to_string(now) + " " + text_;
    return [this, key = key_, text] {
      try {
        store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
      } catch (const std::exception&) {  // a store that is gone shows at the next collective
      }
    };
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  std::string key_, text_;
  Milliseconds every_{5000};
  std::chrono::steady_clock::time_point due_{};
  bool stopping_ = false, orderly_ = true;
};

struct Group {
  c10::intrusive_ptr<GroupBase> group;
  std::shared_ptr<int> inFlight = std::make_shared<int>(0);
  bool cuda = false;
  bool dead = false;
};

std::map<int, std::shared_ptr<StoreThread>>& stores() {
  static auto* all = new std::map<int, std::shared_ptr<StoreThread>>();
  return *all;
}
std::map<int, std::shared_ptr<Group>>& groups() {
  static auto* all = new std::map<int, std::shared_ptr<Group>>();
  return *all;
}
int nextId = 0;

template <class T>
T& at(std::map<int, T>& all, int id, const char* what) {
  auto found = all.find(id);
  TORCH_CHECK(found != all.end(), "the ", what, " is closed");
  return found->second;
}

struct Call {
  napi_env env;
  napi_value v[8];
  size_t n = 8;
  Call(napi_env e, napi_callback_info info) : env(e) { napi_get_cb_info(env, info, &n, v, nullptr, nullptr); }
  double number(size_t i) const {
    double x = 0;
    TORCH_CHECK(i < n && napi_get_value_double(env, v[i], &x) == napi_ok, "argument ", i, ": expected a number");
    return x;
  }
  int integer(size_t i) const { return static_cast<int>(number(i)); }
  Milliseconds milliseconds(size_t i) const { return Milliseconds(static_cast<int64_t>(number(i))); }
  std::string text(size_t i) const {
    size_t length = 0;
    TORCH_CHECK(i < n && napi_get_value_string_utf8(env, v[i], nullptr, 0, &length) == napi_ok, "argument ", i, ": expected a string");
    std::string s(length, '\0');
    napi_get_value_string_utf8(env, v[i], s.data(), length + 1, &length);
    return s;
  }
};

template <class F>
napi_value guarded(napi_env env, F&& body) {
  try {
    return body();
  } catch (const StaleHandle& e) {
    napi_throw_error(env, "ERR_TENSOR_DISPOSED", e.what());
  } catch (const std::exception& e) {
    napi_throw(env, errorOf(env, textOf(e)));
  }
  return nullptr;
}

// Runs a job of the store's thread; its answer settles the promise.
napi_value onStore(napi_env env, const std::shared_ptr<StoreThread>& thread, std::function<void(StoreThread&, Pending&)> job) {
  Pending* pending;
  napi_value result = promise(env, pending);
  thread->post([thread, pending, job = std::move(job)] {
    try {
      job(*thread, *pending);
    } catch (...) {
      pending->fail(textOf(std::current_exception()));
      return;
    }
    pending->settle();
  });
  return result;
}

std::function<napi_value(napi_env)> numberValue(double x) {
  return [x](napi_env env) {
    napi_value v;
    napi_create_double(env, x, &v);
    return v;
  };
}

int addStore(napi_env env, std::shared_ptr<StoreThread>& thread) {
  thread = std::make_shared<StoreThread>();
  thread->start();
  stores()[++nextId] = thread;
  return nextId;
}

// (path, size, prefix, timeout ms) -> promise of an id
napi_value fileStore(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    const std::string path = call.text(0), prefix = call.text(2);
    const int size = call.integer(1);
    const auto timeout = call.milliseconds(3);
    std::shared_ptr<StoreThread> thread;
    const int id = addStore(env, thread);
    return onStore(env, thread, [=](StoreThread& own, Pending& pending) {
      auto file = c10::make_intrusive<c10d::FileStore>(path, size);
      file->setTimeout(timeout);
      own.store = c10::make_intrusive<c10d::PrefixStore>(prefix, file);
      pending.value = numberValue(id);
    });
  });
}

// (host, port, server, size, prefix, timeout ms) -> promise of an id
napi_value tcpStore(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    const std::string host = call.text(0), prefix = call.text(4);
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(call.integer(1));
    options.isServer = call.integer(2) != 0;
    options.numWorkers = static_cast<std::size_t>(call.integer(3));
    options.waitWorkers = false;  // the first barrier waits, and says who is missing
    options.timeout = call.milliseconds(5);
    withoutLibuv(options, 0);
    std::shared_ptr<StoreThread> thread;
    const int id = addStore(env, thread);
    return onStore(env, thread, [=](StoreThread& own, Pending& pending) {
      auto tcp = c10::make_intrusive<c10d::TCPStore>(host, options);
      tcp->setTimeout(options.timeout);
      own.store = c10::make_intrusive<c10d::PrefixStore>(prefix, tcp);
      pending.value = numberValue(id);
    });
  });
}

// (store, key, value) -> promise
napi_value storeSet(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    const std::string key = call.text(1), value = call.text(2);
    return onStore(env, at(stores(), call.integer(0), "store"), [=](StoreThread& own, Pending&) {
      own.store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
    });
  });
}

// (store, key) -> promise of the value, or of null where there is none yet
napi_value storeGet(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    const std::string key = call.text(1);
    return onStore(env, at(stores(), call.integer(0), "store"), [=](StoreThread& own, Pending& pending) {
      const bool there = own.store->check({key});
      const auto bytes = there ? own.store->get(key) : std::vector<uint8_t>();
      pending.value = [there, text = std::string(bytes.begin(), bytes.end())](napi_env e) {
        napi_value v;
        if (there) napi_create_string_utf8(e, text.c_str(), text.size(), &v);
        else napi_get_null(e, &v);
        return v;
      };
    });
  });
}

// (store, key, text, every ms): from now on the store's thread writes "unix-ms text" under the key
napi_value storeBeat(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    at(stores(), call.integer(0), "store")->beat(call.text(1), call.text(2), call.milliseconds(3));
    return nullptr;
  });
}

// (store): its thread ends after the jobs it has
napi_value storeClose(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    at(stores(), call.integer(0), "store")->stop(true);
    stores().erase(call.integer(0));
    return nullptr;
  });
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
napi_value groupOpen(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    const std::string backend = call.text(1), address = call.text(4);
    const int rank = call.integer(2), size = call.integer(3), id = ++nextId;
    const auto timeout = call.milliseconds(5);
    auto group = std::make_shared<Group>();
    group->cuda = backend == "nccl";
    groups()[id] = group;
    return onStore(env, at(stores(), call.integer(0), "store"), [=](StoreThread& own, Pending& pending) {
      group->group = group->cuda ? openNccl(own.store, rank, size, timeout) : openGloo(own.store, rank, size, address, timeout);
      pending.value = numberValue(id);
    });
  });
}

// buffer = n, handles...
std::vector<at::Tensor> tensorsInBuffer() {
  const double* d = engine().buffer;
  std::vector<at::Tensor> out(static_cast<size_t>(*d++));
  for (auto& t : out) t = engine().table.get(*d++).detach();
  return out;
}

// NCCL's work is ordered by streams; Gloo's is done when its future is.
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
  auto group = at(groups(), id, "group");
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
napi_value groupAllReduce(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    c10d::AllreduceOptions options;
    options.reduceOp = call.text(1) == "max" ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    return collective(env, call.integer(0), [&](GroupBase& g, std::vector<at::Tensor>& t) { return g.allreduce(t, options); });
  });
}

// (group, root), buffer = 1, handle
napi_value groupBroadcast(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    c10d::BroadcastOptions options;
    options.rootRank = call.integer(1);
    return collective(env, call.integer(0), [&](GroupBase& g, std::vector<at::Tensor>& t) { return g.broadcast(t, options); });
  });
}

// (group), buffer = 1 + size, input, outputs by rank
napi_value groupAllGather(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    return collective(env, call.integer(0), [](GroupBase& g, std::vector<at::Tensor>& t) {
      std::vector<at::Tensor> input{t.at(0)};
      std::vector<std::vector<at::Tensor>> outputs{{t.begin() + 1, t.end()}};
      return g.allgather(outputs, input);
    });
  });
}

// (group): what is in flight never settles; the group is not destroyed, because that would wait for its peers
napi_value groupAbort(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    auto group = at(groups(), call.integer(0), "group");
    group->dead = true;
    if (group->group && group->cuda) abortGroup(*group->group, 0);
    return nullptr;
  });
}

// (group) -> promise; orderly: nothing may be in flight
napi_value groupClose(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
    auto group = at(groups(), call.integer(0), "group");
    TORCH_CHECK(*group->inFlight == 0, "the group still has ", *group->inFlight, " collectives in flight");
    groups().erase(call.integer(0));
    Pending* pending;
    napi_value result = promise(env, pending);
    std::thread([pending, own = std::move(group->group), dead = group->dead]() mutable {
      if (dead) (void)own.release();
      else if (own) shutdownGroup(*own, 0);
      own.reset();
      pending->settle();
    }).detach();
    return result;
  });
}

// -> which transports this build has
napi_value backends(napi_env env, napi_callback_info) {
  napi_value out;
#ifdef ROUNDTRIP_NCCL
  napi_create_string_utf8(env, "gloo nccl", NAPI_AUTO_LENGTH, &out);
#else
  napi_create_string_utf8(env, "gloo", NAPI_AUTO_LENGTH, &out);
#endif
  return out;
}

// (device index): the thread's device, before the first NCCL call
napi_value useDevice(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Call call(env, info);
#ifdef ROUNDTRIP_NCCL
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(call.integer(0)));
#endif
    return nullptr;
  });
}

}  // namespace

// Before the tensors go: groups with work in flight or with dead peers are left to the end of the process.
void collectivesShutdown() {
  for (auto& entry : groups()) (void)entry.second->group.release();
  groups().clear();
  for (auto& entry : stores()) entry.second->stop(false);
  stores().clear();
}

void addCollectives(napi_env env, napi_value exports) {
  static const std::pair<const char*, napi_callback> entries[] = {
      {"fileStore", fileStore}, {"tcpStore", tcpStore}, {"storeSet", storeSet}, {"storeGet", storeGet},
      {"storeBeat", storeBeat}, {"storeClose", storeClose}, {"groupOpen", groupOpen}, {"groupAllReduce", groupAllReduce},
      {"groupBroadcast", groupBroadcast}, {"groupAllGather", groupAllGather}, {"groupAbort", groupAbort},
      {"groupClose", groupClose}, {"groupBackends", backends}, {"groupDevice", useDevice},
  };
  for (const auto& [name, callback] : entries) {
    napi_value f;
    napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, nullptr, &f);
    napi_set_named_property(env, exports, name, f);
  }
}

}  // namespace rt
