// Helpers of the functions that JavaScript calls: arguments, errors, registration.
#include "calls.h"

#include <c10/util/Exception.h>

#include <new>

namespace rt {

namespace {

bool isMemory(const std::string& text) {
  return text.find("out of memory") != std::string::npos || text.find("can't allocate memory") != std::string::npos;
}

void raise(napi_env env, const std::string& what, const char* code, bool ofOp) {
  const auto index = static_cast<size_t>(engine().buffer ? engine().buffer[0] : 0);
  if (!ofOp || index >= engine().ops.size()) {
    napi_throw(env, errorOf(env, what, code));
    return;
  }
  const Op& op = *engine().ops[index];
  const std::string args = describeCall();
  napi_value error = errorOf(env, what + "\n  in " + op.schema + "\n  with " + args, code);
  setText(env, error, "op", op.name);
  setText(env, error, "schema", op.schema);
  setText(env, error, "args", args);
  napi_throw(env, error);
}

}  // namespace

std::string textOf(const std::exception& e) {
  const auto* torchError = dynamic_cast<const c10::Error*>(&e);
  const std::string text = torchError ? torchError->what_without_backtrace() : e.what();
  return text.substr(0, text.find("\nException raised from"));
}

napi_value errorOf(napi_env env, const std::string& text, const char* code) {
  napi_value error;
  napi_create_error(env, str(env, code), str(env, text), &error);
  return error;
}

void rethrow(napi_env env, const char* code, bool ofOp) {
  try {
    throw;
  } catch (const StaleHandle& e) {
    raise(env, e.what(), "ERR_TENSOR_DISPOSED", ofOp);
  } catch (const std::bad_alloc&) {
    raise(env, "out of memory", "ERR_OOM", ofOp);
  } catch (const std::exception& e) {
    const std::string text = textOf(e);
    raise(env, text, isMemory(text) ? "ERR_OOM" : code, ofOp);
  }
}

size_t Args::count() const {
  if (n == 0) napi_get_cb_info(env, info, &(n = 6), v, nullptr, nullptr);
  return n;
}
double Args::number(size_t i) const {
  double x = 0;
  TORCH_CHECK(i < count() && napi_get_value_double(env, v[i], &x) == napi_ok, "argument ", i, ": expected a number");
  return x;
}
bool Args::flag(size_t i) const {
  bool x = false;
  TORCH_CHECK(i < count() && napi_get_value_bool(env, v[i], &x) == napi_ok, "argument ", i, ": expected a boolean");
  return x;
}
std::string Args::text(size_t i) const {
  size_t length = 0;
  TORCH_CHECK(i < count() && napi_get_value_string_utf8(env, v[i], nullptr, 0, &length) == napi_ok, "argument ", i, ": expected a string");
  std::string s(length, '\0');
  napi_get_value_string_utf8(env, v[i], s.data(), length + 1, &length);
  return s;
}
std::pair<void*, size_t> Args::bytes(size_t i) const {
  napi_typedarray_type type;
  size_t length = 0;
  void* data = nullptr;
  TORCH_CHECK(i < count() && napi_get_typedarray_info(env, v[i], &type, &length, &data, nullptr, nullptr) == napi_ok, "argument ", i,
              ": expected a typed array");
  static const size_t width[] = {1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8};
  return {data, length * width[type]};
}

napi_value num(napi_env env, double x) {
  napi_value v;
  napi_create_double(env, x, &v);
  return v;
}
napi_value str(napi_env env, const std::string& s) {
  napi_value v;
  napi_create_string_utf8(env, s.c_str(), s.size(), &v);
  return v;
}
void setText(napi_env env, napi_value object, const char* key, const std::string& text) {
  napi_set_named_property(env, object, key, str(env, text));
}

std::vector<int64_t> shapeAt(const double* d) {
  std::vector<int64_t> shape(static_cast<size_t>(*d));
  for (size_t i = 0; i < shape.size(); i++) shape[i] = static_cast<int64_t>(d[i + 1]);
  return shape;
}
std::vector<at::Tensor> tensorsAt(const double*& d) {
  std::vector<at::Tensor> out(static_cast<size_t>(*d++));
  for (auto& t : out) {
    const double handle = *d++;
    if (handle != -1) t = engine().table.get(handle);
  }
  return out;
}

void addCalls(napi_env env, napi_value exports, const std::vector<Named>& calls) {
  for (const Named& one : calls) {
    napi_value f;
    napi_create_function(env, one.name, NAPI_AUTO_LENGTH, one.call, nullptr, &f);
    napi_set_named_property(env, exports, one.name, f);
  }
}

}  // namespace rt
