// Ops by name. The schema says how to decode the numbers in the buffer into IValues; callBoxed runs the op; results become handles.
#include "compat.h"
#include "engine.h"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <cmath>
#include <cstring>
#include <sstream>

namespace rt {

namespace {

// T Tensor, I int, F float, B bool, S Scalar, R string, D Device, G Generator, L int[], P float[], O bool[], Q Scalar[],
// X Tensor[], x Tensor?[]; lower case of t i f b s r d g l p: the optional form.
char kindOf(const c10::TypePtr& type) {
  using K = c10::TypeKind;
  switch (type->kind()) {
    case K::TensorType: return 'T';
    case K::IntType:
    case K::SymIntType: return 'I';
    case K::FloatType: return 'F';
    case K::BoolType: return 'B';
    case K::NumberType: return 'S';
    case K::StringType: return 'R';
    case K::DeviceObjType: return 'D';
    case K::GeneratorType: return 'G';
    case K::OptionalType: {
      char inner = kindOf(type->castRaw<c10::OptionalType>()->getElementType());
      return strchr("TIFBSRDGLP", inner) ? static_cast<char>(tolower(inner)) : '?';
    }
    case K::ListType: {
      auto element = type->castRaw<c10::ListType>()->getElementType();
      switch (kindOf(element)) {
        case 'I': return 'L';
        case 'F': return 'P';
        case 'B': return 'O';
        case 'S': return 'Q';
        case 'T': return 'X';
        case 't': return 'x';
        default: return '?';
      }
    }
    default: return '?';
  }
}

struct Reader {
  const double* p;
  double next() { return *p++; }
  int64_t integer() { return static_cast<int64_t>(*p++); }
};

c10::Scalar scalarOf(Reader& r) {
  const double tag = r.next(), value = r.next();
  if (tag == 1) return c10::Scalar(value);
  if (tag == 2) return c10::Scalar(value != 0);
  return c10::Scalar(static_cast<int64_t>(value));
}

at::Generator generatorOf(double word) {
  auto& all = engine().generators;
  TORCH_CHECK(word >= 0 && word < static_cast<double>(all.size()), "unknown generator");
  return all[static_cast<size_t>(word)];
}

// n, then n elements, each read by `element`
template <class T, class F>
c10::IValue listOf(Reader& r, c10::List<T> list, F&& element) {
  const int64_t n = r.integer();
  list.reserve(n);
  for (int64_t i = 0; i < n; i++) list.push_back(element());
  return list;
}

Maybe<at::Tensor> optionalTensor(double handle) {
  if (handle == -1) return {};
  return engine().table.get(handle);
}

c10::IValue decode(char kind, Reader& r) {
  // an optional argument has one number in front: 0 = none
  if (kind >= 'a' && kind != 'x') {
    if (r.next() == 0) return c10::IValue();
    kind = static_cast<char>(toupper(kind));
  }
  switch (kind) {
    case 'T': return engine().table.get(r.next());
    case 'I': return r.integer();
    case 'F': return r.next();
    case 'B': return r.next() != 0;
    case 'S': return scalarOf(r);
    case 'R': return engine().strings.at(static_cast<size_t>(r.next()));
    case 'D': return deviceOf(r.next());
    case 'G': return generatorOf(r.next());
    case 'L': return listOf(r, c10::List<int64_t>(), [&] { return r.integer(); });
    case 'P': return listOf(r, c10::List<double>(), [&] { return r.next(); });
    case 'O': return listOf(r, c10::List<bool>(), [&] { return r.next() != 0; });
    case 'Q': return listOf(r, c10::impl::GenericList(c10::NumberType::get()), [&] { return c10::IValue(scalarOf(r)); });
    case 'X': return listOf(r, c10::List<at::Tensor>(), [&] { return engine().table.get(r.next()); });
    case 'x': return listOf(r, c10::List<Maybe<at::Tensor>>(), [&] { return optionalTensor(r.next()); });
    default: TORCH_CHECK(false, "an argument type of this op is not supported");
  }
}

void readArguments(const Op& op, torch::jit::Stack& stack) {
  Reader r{engine().buffer + 1};
  for (size_t i = 0; i < op.args.size(); i++) {
    const Arg& arg = op.args[i];
    if (arg.hasDefault && r.next() == 0) stack.push_back(op.defaults[i]);
    else stack.push_back(decode(arg.kind, r));
  }
}

double number(const c10::IValue& v) {
  if (v.isDouble()) return v.toDouble();
  if (v.isBool()) return v.toBool() ? 1 : 0;
  if (v.isInt()) return static_cast<double>(v.toInt());
  if (v.isNone()) return std::nan("");
  return v.toScalar().toDouble();
}

void writeResults(const Op& op, torch::jit::Stack& stack) {
  double* out = engine().buffer;
  auto& table = engine().table;
  for (size_t i = 0; i < op.returns.size(); i++) {
    c10::IValue& value = stack[i];
    switch (op.returns[i]) {
      case '_': break;
      case 'T': {
        at::Tensor t = std::move(value).toTensor();
        *out++ = t.defined() ? table.put(std::move(t)) : -1;
        break;
      }
      case 'X': {
        auto list = std::move(value).toTensorList();
        const size_t n = list.size();
        TORCH_CHECK(n + 16 < engine().capacity, "too many tensors in a result");
        *out++ = static_cast<double>(n);
        for (size_t j = 0; j < n; j++) *out++ = table.put(list.get(j));
        break;
      }
      default: *out++ = number(value);
    }
  }
}

char returnKind(const c10::Argument& r) {
  const bool inPlace = r.alias_info() && r.alias_info()->isWrite();
  const char kind = kindOf(r.type());
  if (inPlace) return '_';
  if (kind == 'T' || kind == 'X') return kind;
  if (kind == 'B') return 'B';
  return strchr("IFS", kind) ? 'S' : '?';
}

void describe(std::ostream& out, const c10::IValue& v) {
  if (v.isTensor()) {
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) {
      out << "undefined";
      return;
    }
    out << c10::toString(t.scalar_type()) << t.sizes();
    if (!t.device().is_cpu()) out << "@" << t.device();
  } else if (v.isTensorList()) {
    out << "[";
    auto list = v.toTensorVector();
    for (size_t i = 0; i < list.size() && i < 8; i++) {
      if (i) out << ", ";
      describe(out, list[i]);
    }
    out << (list.size() > 8 ? ", ...]" : "]");
  } else if (v.isNone()) {
    out << "None";
  } else {
    out << v;
  }
}

}  // namespace

int resolveOp(const std::string& name, const std::string& overload) {
  auto found = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!found) return -1;
  auto op = std::make_unique<Op>(*found);
  const auto& schema = op->handle.schema();
  op->name = overload.empty() ? name : name + "." + overload;
  std::ostringstream text;
  text << schema;
  op->schema = text.str();
  for (const auto& a : schema.arguments()) {
    const int fixed = a.N() ? static_cast<int>(*a.N()) : 0;
    op->args.push_back({a.name(), kindOf(a.type()), fixed, a.default_value().has_value(), a.kwarg_only()});
    op->defaults.push_back(a.default_value() ? *a.default_value() : c10::IValue());
  }
  for (const auto& r : schema.returns()) {
    op->returns.push_back(returnKind(r));
    op->returnNames.push_back(r.name());
  }
  auto& ops = engine().ops;
  ops.push_back(std::move(op));
  return static_cast<int>(ops.size()) - 1;
}

void execOp() {
  static torch::jit::Stack stack;  // shared: one thread owns the engine, and calls are never nested
  stack.clear();
  const auto index = static_cast<size_t>(engine().buffer[0]);
  TORCH_CHECK(index < engine().ops.size(), "unknown op id");
  const Op& op = *engine().ops[index];
  struct Cleaner {
    ~Cleaner() { stack.clear(); }
  } cleaner;
  readArguments(op, stack);
  op.handle.callBoxed(&stack);
  writeResults(op, stack);
}

std::string describeCall() {
  const auto index = static_cast<size_t>(engine().buffer[0]);
  if (index >= engine().ops.size()) return "";
  const Op& op = *engine().ops[index];
  std::ostringstream out;
  Reader r{engine().buffer + 1};
  bool first = true;
  try {
    for (const Arg& arg : op.args) {
      if (arg.hasDefault && r.next() == 0) continue;
      if (!first) out << ", ";
      first = false;
      out << arg.name << "=";
      const double* before = r.p;
      try {
        describe(out, decode(arg.kind, r));
      } catch (const StaleHandle&) {
        out << "<freed>";
        if (arg.kind == 'X' || arg.kind == 'x') r.p = before + 1 + static_cast<size_t>(*before);
      }
    }
  } catch (const std::exception&) {
    out << "...";
  }
  return out.str();
}

std::vector<std::string> allSchemas() {
  std::vector<std::string> out;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op) continue;
    std::ostringstream text;
    text << op->schema();
    out.push_back(text.str());
  }
  return out;
}

}  // namespace rt
