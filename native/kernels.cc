// Fused float32 loops for the optimizer and the EMA on the CPU.
#include <cmath>

#include "engine.h"

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

}  // namespace rt
