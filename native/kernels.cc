// Float32 loops on the CPU: the optimizer, the EMA, random numbers.
#include "kernels.h"

#include <cmath>

#if defined(__x86_64__) && defined(__GNUC__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

namespace rt {

// torch's order of operations: decay, first moment by lerp, second moment, denominator sqrt(v)/sqrt(c2) + eps.
CLONES void adamwStep(float* p, const float* g, float* m, float* v, int64_t n, const AdamW& h) {
  const auto keep = static_cast<float>(1 - h.lr * h.decay);
  const auto b1 = static_cast<float>(1 - h.beta1), b2 = static_cast<float>(h.beta2), c2 = static_cast<float>(1 - h.beta2);
  const auto step = static_cast<float>(h.lr / h.correction1), root = static_cast<float>(std::sqrt(h.correction2));
  const auto eps = static_cast<float>(h.eps);
  for (int64_t i = 0; i < n; i++) {
    const float grad = g[i];
    const float mean = m[i] + b1 * (grad - m[i]);
    const float square = v[i] * b2 + c2 * grad * grad;
    m[i] = mean;
    v[i] = square;
    p[i] = p[i] * keep - step * (mean / (std::sqrt(square) / root + eps));
  }
}

CLONES void emaStep(float* dst, const float* src, int64_t n, float decay) {
  const float rest = 1 - decay;
  for (int64_t i = 0; i < n; i++) dst[i] = dst[i] * decay + src[i] * rest;
}

namespace {

// Four words of Philox 4x32-10 at a counter, equal to those of src/core/random.ts.
inline void philox(uint64_t counter, uint32_t k0, uint32_t k1, uint32_t* out) {
  auto c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = 0, c3 = 0;
  for (int round = 0; round < 10; round++) {
    const uint64_t a = uint64_t{0xd2511f53} * c0, b = uint64_t{0xcd9e8d57} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(b);
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9e3779b9;
    k1 += 0xbb67ae85;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

}  // namespace

void uniformFill(float* out, int64_t n, uint32_t k0, uint32_t k1, double bound) {
  uint32_t words[4];
  for (int64_t i = 0; i < n; i++) {
    if (i % 2 == 0) philox(static_cast<uint64_t>(i / 2), k0, k1, words);
    const uint32_t* w = words + i % 2 * 2;
    const double u = ((w[0] >> 5) * 67108864.0 + (w[1] >> 6)) / 9007199254740992.0;
    out[i] = static_cast<float>((2 * u - 1) * bound);
  }
}

}  // namespace rt
