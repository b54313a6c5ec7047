// Stores of c10d, the key-value stores through which processes find each other, each with its thread; promises settled by other threads.
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <thread>

#include "collectives.h"

namespace rt {

std::string textOf(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    return textOf(e);
  } catch (...) {
    return "unknown error";
  }
}

namespace {

void onSettled(napi_env env, napi_value, void*, void* data) {
  auto* pending = static_cast<Pending*>(data);
  if (!env) return;  // the environment is closing: nobody waits
  if (pending->inFlight) --*pending->inFlight;
  napi_value result = nullptr;
  if (pending->failed) {
    napi_reject_deferred(env, pending->deferred, errorOf(env, pending->failure, "ERR_COLLECTIVE"));
  } else {
    if (pending->value) result = pending->value(env);
    else napi_get_undefined(env, &result);
    napi_resolve_deferred(env, pending->deferred, result);
  }
  napi_release_threadsafe_function(pending->wake, napi_tsfn_release);
  delete pending;
}

}  // namespace

napi_value promise(napi_env env, Pending*& pending) {
  napi_value result, name;
  pending = new Pending();
  napi_create_promise(env, &pending->deferred, &result);
  napi_create_string_utf8(env, "collective", NAPI_AUTO_LENGTH, &name);
  napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, nullptr, onSettled, &pending->wake);
  return result;
}

std::function<napi_value(napi_env)> numberValue(double x) {
  return [x](napi_env env) { return num(env, x); };
}

void StoreThread::start() {
  std::thread([self = shared_from_this()] { self->loop(); }).detach();
}
void StoreThread::post(std::function<void()> job) {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(job));
  wake_.notify_one();
}
void StoreThread::beat(std::string key, std::string text, Milliseconds every) {
  std::lock_guard<std::mutex> lock(mutex_);
  key_ = std::move(key);
  text_ = std::move(text);
  every_ = every;
  wake_.notify_one();
}
void StoreThread::stop(bool orderly) {
  std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = true;
  orderly_ = orderly;
  wake_.notify_one();
}

void StoreThread::loop() {
  for (auto job = next(); job; job = next()) job();
  if (orderly_) store.reset();
  else (void)store.release();  // the process is ending: the destructor would wait for peers that may have ended
}
std::function<void()> StoreThread::next() {
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
std::function<void()> StoreThread::beatJob() {
  const auto now = std::chrono::duration_cast<Milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  due_ = std::chrono::steady_clock::now() + every_;
  const std::string text = std::to_string(now) + " " + text_;
  return [this, key = key_, text] {
    try {
      store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
    } catch (const std::exception&) {  // the next collective reports a lost store
    }
  };
}

int newId() {
  static int last = 0;
  return ++last;
}
std::map<int, std::shared_ptr<StoreThread>>& stores() {
  static auto* all = new std::map<int, std::shared_ptr<StoreThread>>();
  return *all;
}

napi_value onStore(napi_env env, int store, std::function<void(StoreThread&, Pending&)> job) {
  const auto thread = opened(stores(), store, "store");
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

namespace {

// A member that only some torch versions have: the `int` overload is preferred if it compiles.
template <class O>
auto withoutLibuv(O& o, int) -> decltype(o.useLibUV = false, void()) {  // its symbols would be resolved to Node's libuv
  o.useLibUV = false;
}
template <class O>
void withoutLibuv(O&, long) {}

using Open = std::function<c10::intrusive_ptr<c10d::Store>()>;

// Opens a store on its new thread -> promise of an id
napi_value addStore(napi_env env, const std::string& prefix, Milliseconds timeout, Open open) {
  const int id = newId();
  auto thread = std::make_shared<StoreThread>();
  thread->start();
  stores()[id] = thread;
  return onStore(env, id, [=](StoreThread& own, Pending& pending) {
    auto store = open();
    store->setTimeout(timeout);
    own.store = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
    pending.value = numberValue(id);
  });
}

// (path, size, prefix, timeout ms) -> promise of an id
ENTRY(fileStore) {
  BODY
  return addStore(env, a.text(2), milliseconds(a.number(3)),
                  [path = a.text(0), size = a.integer(1)] { return c10::make_intrusive<c10d::FileStore>(path, size); });
  END_CALL_WITH("ERR_COLLECTIVE")
}

// (host, port, server, size, prefix, timeout ms) -> promise of an id
ENTRY(tcpStore) {
  BODY
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(a.integer(1));
  options.isServer = a.integer(2) != 0;
  options.numWorkers = static_cast<std::size_t>(a.integer(3));
  options.waitWorkers = false;  // the first barrier waits, and its error names the missing ranks
  options.timeout = milliseconds(a.number(5));
  withoutLibuv(options, 0);
  return addStore(env, a.text(4), options.timeout, [host = a.text(0), options] { return c10::make_intrusive<c10d::TCPStore>(host, options); });
  END_CALL_WITH("ERR_COLLECTIVE")
}

// (store, key, value) -> promise
ENTRY(storeSet) {
  BODY
  const std::string key = a.text(1), value = a.text(2);
  return onStore(env, a.integer(0), [=](StoreThread& own, Pending&) {
    own.store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
  });
  END_CALL_WITH("ERR_COLLECTIVE")
}

// (store, key) -> promise of the value, or of null if there is none yet
ENTRY(storeGet) {
  BODY
  const std::string key = a.text(1);
  return onStore(env, a.integer(0), [=](StoreThread& own, Pending& pending) {
    const bool there = own.store->check({key});
    const auto bytes = there ? own.store->get(key) : std::vector<uint8_t>();
    pending.value = [there, text = std::string(bytes.begin(), bytes.end())](napi_env e) {
      napi_value v;
      if (there) napi_create_string_utf8(e, text.c_str(), text.size(), &v);
      else napi_get_null(e, &v);
      return v;
    };
  });
  END_CALL_WITH("ERR_COLLECTIVE")
}

// (store, key, text, ms): from now on the store's thread writes "unix-ms text" under the key at this interval
ENTRY(storeBeat) {
  BODY
  opened(stores(), a.integer(0), "store")->beat(a.text(1), a.text(2), milliseconds(a.number(3)));
  END_CALL_WITH("ERR_COLLECTIVE")
}

// (store): its thread ends after the queued jobs
ENTRY(storeClose) {
  BODY
  opened(stores(), a.integer(0), "store")->stop(true);
  stores().erase(a.integer(0));
  END_CALL_WITH("ERR_COLLECTIVE")
}

}  // namespace

void addStoreCalls(napi_env env, napi_value exports) {
  addCalls(env, exports, {
      {"fileStore", fileStore}, {"tcpStore", tcpStore}, {"storeSet", storeSet}, {"storeGet", storeGet}, {"storeBeat", storeBeat},
      {"storeClose", storeClose},
  });
}

}  // namespace rt
