// Calls that look up and run torch ops by name.
#include "calls.h"

namespace {

using rt::engine;
using rt::num;
using rt::setText;
using rt::str;

ENTRY(exec) {
  (void)info;
  return rt::guard(env, [&]() -> napi_value { rt::execOp(); return nullptr; }, "ERR_TORCH", true);
}

ENTRY(resolve) {
  BODY
  const int id = rt::resolveOp(a.text(0), a.text(1));
  napi_value out;
  if (id < 0) {
    napi_get_null(env, &out);
    return out;
  }
  const rt::Op& op = *engine().ops[id];
  napi_create_object(env, &out);
  napi_set_named_property(env, out, "id", num(env, id));
  setText(env, out, "name", op.name);
  setText(env, out, "schema", op.schema);
  napi_value args, returns;
  napi_create_array(env, &args);
  for (size_t i = 0; i < op.args.size(); i++) {
    const rt::Arg& x = op.args[i];
    napi_value item, flagValue;
    napi_create_object(env, &item);
    setText(env, item, "name", x.name);
    setText(env, item, "kind", std::string(1, x.kind));
    napi_set_named_property(env, item, "fixed", num(env, x.fixed));
    napi_get_boolean(env, x.hasDefault, &flagValue);
    napi_set_named_property(env, item, "hasDefault", flagValue);
    napi_get_boolean(env, x.kwargOnly, &flagValue);
    napi_set_named_property(env, item, "kwargOnly", flagValue);
    napi_set_element(env, args, i, item);
  }
  napi_create_array(env, &returns);
  for (size_t i = 0; i < op.returns.size(); i++) {
    napi_value item;
    napi_create_object(env, &item);
    setText(env, item, "kind", std::string(1, op.returns[i]));
    setText(env, item, "name", op.returnNames[i]);
    napi_set_element(env, returns, i, item);
  }
  napi_set_named_property(env, out, "args", args);
  napi_set_named_property(env, out, "returns", returns);
  return out;
  END_CALL
}

ENTRY(schemas) {
  BODY
  napi_value out;
  napi_create_array(env, &out);
  uint32_t i = 0;
  for (const auto& s : rt::allSchemas()) napi_set_element(env, out, i++, str(env, s));
  return out;
  END_CALL
}

ENTRY(intern) {
  BODY
  engine().strings.push_back(a.text(0));
  return num(env, static_cast<double>(engine().strings.size()) - 1);
  END_CALL
}

const std::vector<rt::Named> opCalls = {
    {"exec", exec}, {"resolve", resolve}, {"schemas", schemas}, {"intern", intern},
};

}  // namespace

void rt::addOpCalls(napi_env env, napi_value exports) { addCalls(env, exports, opCalls); }
