// Several matrix products in one call. Operands may be column ranges, without a view of each. bfloat16 on CUDA calls cuBLASLt directly and
// keeps the algorithm of a shape, which ATen looks up for every product; mm and addmm of torch do so too.
#include <ATen/Functions.h>

#include "engine.h"

#ifdef ROUNDTRIP_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/addmm_cuda_dispatch.h>
#include <ATen/ops/mm_cuda_dispatch.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>

#include <array>
#include <map>
#endif

namespace rt {

namespace {

// A column range of a matrix whose rows are `width` apart. `rows` and `columns` are those after the transposition.
struct Matrix {
  at::Tensor of;
  int64_t from, rows, columns, width;
  bool transposed;

  at::Tensor view() const {
    const int64_t at = of.storage_offset() + from;
    return transposed ? of.as_strided({rows, columns}, {1, width}, at) : of.as_strided({rows, columns}, {width, 1}, at);
  }
};

// A handle, or -2 - i: the result of product i of the same call.
at::Tensor tensorOf(double word, const std::vector<at::Tensor>& results) {
  if (word >= 0) return engine().table.get(word);
  const auto i = static_cast<size_t>(-2 - word);
  TORCH_CHECK(word <= -2 && i < results.size() && results[i].defined(), "products: no result ", i, " comes before");
  return results[i];
}

// handle, first column, columns (-1: all), transposed
Matrix matrixAt(const double*& d, const std::vector<at::Tensor>& results) {
  Matrix m{tensorOf(d[0], results), static_cast<int64_t>(d[1]), 0, static_cast<int64_t>(d[2]), 0, d[3] != 0};
  d += 4;
  TORCH_CHECK(m.of.dim() == 2 && m.of.is_contiguous(), "products: expected a contiguous matrix, got ", m.of.sizes());
  m.rows = m.of.size(0);
  m.width = m.of.size(1);
  if (m.columns < 0) m.columns = m.width - m.from;
  TORCH_CHECK(m.from >= 0 && m.from + m.columns <= m.width, "products: columns ", m.from, " + ", m.columns, " of ", m.of.sizes());
  if (m.transposed) std::swap(m.rows, m.columns);
  return m;
}

#ifdef ROUNDTRIP_CUDA
void check(cublasStatus_t status, const char* what) { TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, what, ": cuBLAS status ", static_cast<int>(status)); }

char* firstOf(const Matrix& m) { return static_cast<char*>(m.of.data_ptr()) + m.from * m.of.element_size(); }

bool straight(const Matrix& a, const Matrix& b, const at::Tensor& out) {
  const auto type = out.scalar_type();
  return a.of.is_cuda() && a.of.scalar_type() == at::kBFloat16 && b.of.scalar_type() == at::kBFloat16 && (type == at::kBFloat16 || type == at::kFloat);
}

// How one shape is multiplied. cuBLAS is column-major, so the factors are swapped: out^T = b^T a^T.
struct Plan {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t b, a, out;
  cublasLtMatmulAlgo_t algorithm;
};
constexpr size_t kWorkspace = 32 << 20, kMaxPlans = 1024;
using Key = std::array<int64_t, 15>;

// Of one product, or of as many as `parts` says, each over its part of the columns of the whole `a`: `out` has them one below the other.
struct Factors {
  const Matrix &a, &b, &out;
  bool add;
  const void* bias;
  int64_t parts = 1;

  cudaDataType_t type() const { return out.of.scalar_type() == at::kFloat ? CUDA_R_32F : CUDA_R_16BF; }
};

// Alignment of the address in bytes: a power of two, at most 256.
int64_t alignment(const char* p) {
  const auto bits = reinterpret_cast<uintptr_t>(p) | 256;
  return static_cast<int64_t>(bits & (~bits + 1));
}

Key keyOf(const Factors& f) {
  const auto& [a, b, out, add, bias, parts] = f;
  return {a.rows, a.columns, b.columns, a.width, b.width, out.width, a.transposed, b.transposed, f.type(), add, bias != nullptr, parts,
          alignment(firstOf(a)), alignment(firstOf(b)), alignment(firstOf(out))};
}

// `step`: elements from a part to the next.
cublasLtMatrixLayout_t layoutOf(const Matrix& m, cudaDataType_t type, int64_t parts, int64_t step) {
  cublasLtMatrixLayout_t layout;
  const auto [rows, columns] = m.transposed ? std::pair{m.columns, m.rows} : std::pair{m.rows, m.columns};  // as it lies in memory
  check(cublasLtMatrixLayoutCreate(&layout, type, columns, rows, m.width), "layout of a product");
  const auto count = static_cast<int32_t>(parts);
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "layout of a product");
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step), "layout of a product");
  return layout;
}

void setBias(const Plan& p, const void* bias) {
  check(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias), "bias of a product");
}

Plan describe(const Factors& f) {
  Plan p;
  const auto op = [](const Matrix& m) { return m.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const cublasOperation_t first = op(f.b), second = op(f.a);
  check(cublasLtMatmulDescCreate(&p.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description of a product");
  check(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first), "description of a product");
  check(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second), "description of a product");
  const cublasLtEpilogue_t end = f.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  check(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &end, sizeof end), "description of a product");
  if (f.bias) setBias(p, f.bias);
  p.b = layoutOf(f.b, CUDA_R_16BF, f.parts, f.b.transposed ? f.b.rows : f.b.rows * f.b.width);
  p.a = layoutOf(f.a, CUDA_R_16BF, f.parts, f.a.transposed ? f.a.columns * f.a.width : f.a.columns);
  p.out = layoutOf(f.out, f.type(), f.parts, f.out.rows * f.out.width);
  return p;
}

void forget(const Plan& p) {
  for (auto layout : {p.a, p.b, p.out}) cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(p.operation);
}

cublasLtMatmulAlgo_t lookUp(cublasLtHandle_t handle, const Plan& p, const Factors& f) {
  cublasLtMatmulPreference_t wish;
  check(cublasLtMatmulPreferenceCreate(&wish), "preference of a product");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(wish, name, &value, sizeof value), "preference of a product");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment(firstOf(f.b))));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment(firstOf(f.a))));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignment(firstOf(f.out))));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignment(firstOf(f.out))));
  cublasLtMatmulHeuristicResult_t best = {}; int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, p.operation, p.b, p.a, p.out, p.out, wish, 1, &best, &found), "algorithm of a product");
  cublasLtMatmulPreferenceDestroy(wish);
  TORCH_CHECK(found > 0, "cuBLAS knows no algorithm for [", f.a.rows, ", ", f.a.columns, "] times [", f.b.rows, ", ", f.b.columns, "]");
  return best.algo;
}

// The next of eight sizes an octave.
int64_t rounded(int64_t n) {
  if (n <= 64 || n % 64 == 0) return n;
  int64_t step = 8;
  while (step * 16 <= n) step *= 2;
  return (n + step - 1) / step * step;
}

// State per device and stream: products of one stream share a workspace.
struct Multiplier {
  cublasLtHandle_t handle = nullptr;
  at::Tensor workspace;
  std::map<Key, Plan> plans;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms;  // of rounded sizes

  // The number of tokens differs from pass to pass. Looking up an algorithm takes as long as many products, so it is done for rounded numbers.
  cublasLtMatmulAlgo_t algorithmFor(const Plan& p, const Factors& f) {
    Matrix a = f.a, b = f.b, out = f.out;
    if (!a.transposed) a.rows = out.rows = rounded(a.rows);
    if (a.transposed && !b.transposed) a.columns = b.rows = rounded(b.rows);
    const Factors wide{a, b, out, f.add, f.bias, f.parts};
    const Key key = keyOf(wide);
    auto found = algorithms.find(key);
    if (found == algorithms.end()) {
      const Plan widePlan = describe(wide);
      found = algorithms.emplace(key, lookUp(handle, widePlan, wide)).first;
      forget(widePlan);
    }
    cublasLtMatmulHeuristicResult_t suits = {};
    const auto status = cublasLtMatmulAlgoCheck(handle, p.operation, p.b, p.a, p.out, p.out, &found->second, &suits);
    return status == CUBLAS_STATUS_SUCCESS && suits.workspaceSize <= kWorkspace ? found->second : lookUp(handle, p, f);
  }

  const Plan& planFor(const Factors& f) {
    const Key key = keyOf(f);
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
    if (plans.size() >= kMaxPlans) {
      for (auto& [_, p] : plans) forget(p);
      plans.clear();
    }
    Plan p = describe(f);
    p.algorithm = algorithmFor(p, f);
    return plans.emplace(key, p).first->second;
  }
};

Multiplier& multiplierOf(int device, void* stream) {
  static auto* all = new std::map<std::pair<int, void*>, Multiplier>();
  Multiplier& m = (*all)[{device, stream}];
  if (!m.handle) {
    check(cublasLtCreate(&m.handle), "cublasLtCreate");
    const auto options = at::TensorOptions().dtype(at::kByte).device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    m.workspace = at::empty({static_cast<int64_t>(kWorkspace)}, options);
  }
  return m;
}

// `to`: what is added where `add`, a matrix like `out`; default: `out` itself.
void multiply(const Factors& f, float alpha, const void* to = nullptr) {
  const auto& [a, b, out, add, bias, parts] = f;
  const int device = a.of.device().index();
  const c10::cuda::CUDAGuard guard(a.of.device());
  const auto stream = static_cast<cudaStream_t>(cudaStream(device));
  Multiplier& m = multiplierOf(device, stream);
  const Plan& p = m.planFor(f);
  if (bias) setBias(p, bias);
  const float beta = add ? 1 : 0;
  check(cublasLtMatmul(m.handle, p.operation, &alpha, firstOf(b), p.b, firstOf(a), p.a, &beta, to ? to : firstOf(out), p.out, firstOf(out), p.out, &p.algorithm,
                       m.workspace.data_ptr(), kWorkspace, stream),
        "a product");
}

// A bfloat16 matrix of torch whose rows or columns are contiguous and begin at 16 bytes; `of` is undefined for all others.
Matrix matrixOf(const at::Tensor& t) {
  Matrix m{at::Tensor(), 0, 0, 0, 0, false};
  if (t.dim() != 2 || t.numel() == 0 || t.scalar_type() != at::kBFloat16) return m;
  m.rows = t.size(0);
  m.columns = t.size(1);
  m.transposed = t.stride(1) != 1;
  const auto [lines, line] = m.transposed ? std::pair{m.columns, m.rows} : std::pair{m.rows, m.columns};
  m.width = lines > 1 ? t.stride(m.transposed ? 1 : 0) : line;
  const bool dense = t.stride(m.transposed ? 0 : 1) == 1 && m.width >= line && m.width % 8 == 0;
  if (dense && reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 == 0) m.of = t;
  return m;
}

// `bias` may be undefined. Undefined: torch must multiply.
at::Tensor planned(const at::Tensor& first, const at::Tensor& second, const at::Tensor& bias) {
  const Matrix a = matrixOf(first), b = matrixOf(second);
  if (!a.of.defined() || !b.of.defined() || a.columns != b.rows || b.columns % 8 != 0) return {};
  if (bias.defined() && !(bias.dim() == 1 && bias.size(0) == b.columns && bias.is_contiguous() && bias.scalar_type() == at::kBFloat16)) return {};
  at::Tensor out = at::empty({a.rows, b.columns}, first.options());
  multiply({a, b, {out, 0, a.rows, b.columns, b.columns, false}, false, bias.defined() ? bias.data_ptr() : nullptr}, 1);
  return out;
}

at::Tensor mm(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor out = planned(a, b, {});
  return out.defined() ? out : at::cuda::mm(a, b);
}

at::Tensor addmm(const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  const at::Tensor out = bias.defined() && beta.equal(1) && alpha.equal(1) ? planned(a, b, bias) : at::Tensor();
  return out.defined() ? out : at::cuda::addmm(bias, a, b, beta, alpha);
}

// torch copies `self` into `out` first.
at::Tensor& addmmOut(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  const Matrix x = matrixOf(a), y = matrixOf(b), from = matrixOf(self), to = matrixOf(out);
  const bool alike = from.of.defined() && to.of.defined() && from.width == to.width && !from.transposed && !to.transposed;
  const bool fits = x.of.defined() && y.of.defined() && x.columns == y.rows && self.sizes() == out.sizes() && x.rows == to.rows && y.columns == to.columns;
  const bool suits = alike && fits && beta.equal(1) && alignment(firstOf(from)) >= alignment(firstOf(to));
  if (!suits) return at::cuda::addmm_out(out, self, a, b, beta, alpha);
  multiply({x, y, to, true, nullptr}, alpha.toFloat(), self.data_ptr());
  return out;
}
#endif

void into(const Matrix& out, const Matrix& a, const Matrix& b, bool add) {
  TORCH_CHECK(out.rows == a.rows && out.columns == b.columns && !out.transposed, "products: expected a place of [", a.rows, ", ", b.columns,
              "], got [", out.rows, ", ", out.columns, "]");
#ifdef ROUNDTRIP_CUDA
  if (straight(a, b, out.of)) return multiply({a, b, out, add, nullptr}, 1);
#endif
  at::Tensor place = out.view();
  if (add) place.addmm_(a.view(), b.view());
  else at::mm_out(place, a.view(), b.view());
}

at::Tensor fresh(const Matrix& a, const Matrix& b, at::ScalarType type, double scale, const at::Tensor& bias) {
#ifdef ROUNDTRIP_CUDA
  at::Tensor out = at::empty({a.rows, b.columns}, a.of.options().dtype(type));
  if (straight(a, b, out)) {
    multiply({a, b, {out, 0, a.rows, b.columns, b.columns, false}, false, bias.defined() ? bias.data_ptr() : nullptr}, static_cast<float>(scale));
    return out;
  }
#endif
  if (bias.defined()) return at::addmm(bias, a.view(), b.view());
  at::Tensor product = at::mm(a.view(), b.view()).to(type);
  return scale == 1 ? product : product.mul_(scale);
}

// [parts, rows, columns] in float32: sums over equal parts of the columns of `a`.
at::Tensor partial(Matrix a, Matrix b, int64_t parts) {
  TORCH_CHECK(a.columns % parts == 0, "products: ", a.columns, " columns in ", parts, " parts");
#ifdef ROUNDTRIP_CUDA
  at::Tensor out = at::empty({parts, a.rows, b.columns}, a.of.options().dtype(at::kFloat));
  if (straight(a, b, out)) {
    a.columns /= parts, b.rows /= parts;
    return multiply({a, b, {out, 0, a.rows, b.columns, b.columns, false}, false, nullptr, parts}, 1), out;
  }
#endif
  return at::bmm(a.view().view({a.rows, parts, -1}).transpose(0, 1), b.view().view({parts, -1, b.columns})).to(at::kFloat);
}

}  // namespace

// torch says on stderr that kernels are replaced; here that is meant.
void installProducts() {
#ifdef ROUNDTRIP_CUDA
  struct Silent : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  static auto* kept = new std::vector<c10::RegistrationHandleRAII>();
  const auto replace = [](c10::OperatorName name, c10::KernelFunction kernel, c10::impl::CppSignature signature) {
    kept->push_back(c10::Dispatcher::singleton().registerImpl(std::move(name), c10::DispatchKey::CUDA, std::move(kernel), signature, nullptr, "roundtrip"));
  };
  replace({"aten::mm", ""}, c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(mm)), c10::impl::CppSignature::make<decltype(mm)>());
  replace({"aten::addmm", ""}, c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(addmm)), c10::impl::CppSignature::make<decltype(addmm)>());
  replace({"aten::addmm", "out"}, c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(addmmOut)), c10::impl::CppSignature::make<decltype(addmmOut)>());
#endif
}

void products(double* buffer) {
  const double* d = buffer;
  std::vector<at::Tensor> results(static_cast<size_t>(*d++));
  for (auto& result : results) {
    const Matrix a = matrixAt(d, results), b = matrixAt(d, results);
    TORCH_CHECK(a.columns == b.rows, "products: [", a.rows, ", ", a.columns, "] times [", b.rows, ", ", b.columns, "]");
    if (d[0] == -1) {
      const at::Tensor bias = d[4] == -1 ? at::Tensor() : engine().table.get(d[4]);
      TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == b.columns && bias.is_contiguous() && bias.scalar_type() == a.of.scalar_type()),
                  "products: expected a bias of ", b.columns, " numbers, got ", bias.defined() ? bias.sizes() : at::IntArrayRef());
      const auto type = a.of.scalar_type();
      const auto parts = static_cast<int64_t>(d[1]);
      result = parts > 1 ? partial(a, b, parts) : fresh(a, b, d[5] != 0 && type != at::kDouble ? at::kFloat : type, d[6], bias);
    } else {
      const double* place = d;
      into(matrixAt(place, results), a, b, d[7] != 0);
    }
    d += 8;
  }
  for (auto& result : results) *buffer++ = result.defined() ? engine().table.put(std::move(result)) : -1;
}

}  // namespace rt
