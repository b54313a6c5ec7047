// Helpers of the functions that JavaScript calls. Numbers are passed in one shared Float64Array (the buffer), because reading
// JavaScript values through Node-API is slow.
#pragma once
#include <node_api.h>

#include <string>
#include <utility>
#include <vector>

#include "engine.h"

namespace rt {

std::string textOf(const std::exception& e);  // without a C++ stack trace
napi_value errorOf(napi_env env, const std::string& text, const char* code);
// Rethrows the current exception in JavaScript. The error of a failed op has the fields op, schema and args.
void rethrow(napi_env env, const char* code, bool ofOp);

template <class F>
napi_value guard(napi_env env, F&& body, const char* code, bool ofOp = false) {
  try {
    return body();
  } catch (...) {
    rethrow(env, code, ofOp);
  }
  return nullptr;
}

struct Args {  // read on first use, because most calls have no arguments
  napi_env env;
  napi_callback_info info;
  mutable napi_value v[6];
  mutable size_t n = 0;
  size_t count() const;
  double number(size_t i) const;
  int integer(size_t i) const { return static_cast<int>(number(i)); }
  bool flag(size_t i) const;
  std::string text(size_t i) const;
  std::pair<void*, size_t> bytes(size_t i) const;  // any typed array
};

napi_value num(napi_env env, double x);
napi_value str(napi_env env, const std::string& s);
void setText(napi_env env, napi_value object, const char* key, const std::string& text);

inline double* buf() { return engine().buffer; }
std::vector<int64_t> shapeAt(const double* d);          // ndim, sizes...
std::vector<at::Tensor> tensorsAt(const double*& d);    // n, handles (-1: undefined)

struct Named {
  const char* name;
  napi_callback call;
};
void addCalls(napi_env env, napi_value exports, const std::vector<Named>& calls);

void addOpCalls(napi_env env, napi_value exports);
void addTensorCalls(napi_env env, napi_value exports);
void addAutogradCalls(napi_env env, napi_value exports);
void addDeviceCalls(napi_env env, napi_value exports);
void addStoreCalls(napi_env env, napi_value exports);
void addGroupCalls(napi_env env, napi_value exports);

}  // namespace rt

#define ENTRY(name) napi_value name(napi_env env, napi_callback_info info)
#define BODY return rt::guard(env, [&]() -> napi_value { const rt::Args a{env, info}; (void)a;
#define END_CALL_WITH(code) return nullptr; }, code);
#define END_CALL END_CALL_WITH("ERR_TORCH")
#define DO(name, statement) ENTRY(name) { BODY statement; END_CALL }
#define GIVE(name, value) ENTRY(name) { BODY return rt::num(env, static_cast<double>(value)); END_CALL }
