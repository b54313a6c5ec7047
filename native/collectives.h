// Stores, process groups and collectives of c10d. Collectives are launched on the calling thread, which fixes their order; waiting is a
// promise and blocks no thread.
#pragma once
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "calls.h"
#include "compat.h"

namespace rt {

using Milliseconds = std::chrono::milliseconds;

inline Milliseconds milliseconds(double n) { return Milliseconds(static_cast<int64_t>(n)); }
std::string textOf(const std::exception_ptr& failure);

// A promise that any thread may settle, once.
struct Pending {
  napi_deferred deferred = nullptr;
  napi_threadsafe_function wake = nullptr;
  std::string failure;
  bool failed = false;
  std::function<napi_value(napi_env)> value;  // runs on the thread of the promise; absent: undefined
  std::vector<at::Tensor> tensors;            // of the collective: kept until it ends
  c10::intrusive_ptr<c10d::Work> work;
  std::shared_ptr<int> inFlight;              // counter of the group; only the thread of the promise writes it

  void settle() { napi_call_threadsafe_function(wake, this, napi_tsfn_nonblocking); }  // fails while Node closes; the leak does not matter then
  void fail(const std::string& text) {
    failed = true;
    failure = text;
    settle();
  }
};

napi_value promise(napi_env env, Pending*& pending);
std::function<napi_value(napi_env)> numberValue(double x);

// A store with the only thread that calls it: a call may wait for a peer, and c10d keeps a lock meanwhile. The thread also writes the
// heartbeat, so that it continues while the engine computes and stops when the process does.
class StoreThread : public std::enable_shared_from_this<StoreThread> {
 public:
  c10::intrusive_ptr<c10d::Store> store;

  void start();
  void post(std::function<void()> job);
  void beat(std::string key, std::string text, Milliseconds every);
  void stop(bool orderly);

 private:
  void loop();
  std::function<void()> next();
  std::function<void()> beatJob();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  std::string key_, text_;
  Milliseconds every_{5000};
  std::chrono::steady_clock::time_point due_{};
  bool stopping_ = false, orderly_ = true;
};

template <class T>
T& opened(std::map<int, T>& all, int id, const char* what) {
  auto found = all.find(id);
  TORCH_CHECK(found != all.end(), "the ", what, " is closed");
  return found->second;
}

int newId();  // of a store or a group
std::map<int, std::shared_ptr<StoreThread>>& stores();
// Runs a job on the store's thread; its result settles the promise.
napi_value onStore(napi_env env, int store, std::function<void(StoreThread&, Pending&)> job);

}  // namespace rt
