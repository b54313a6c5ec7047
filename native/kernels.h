// Float32 loops on contiguous CPU memory. Without torch headers, because kernels.cc has its own compiler flags.
#pragma once
#include <cstdint>

namespace rt {

struct AdamW {
  double lr, beta1, beta2, eps, decay, correction1, correction2;
};
void adamwStep(float* p, const float* g, float* m, float* v, int64_t n, const AdamW& h);
void emaStep(float* dst, const float* src, int64_t n, float decay);
void uniformFill(float* out, int64_t n, uint32_t k0, uint32_t k1, double bound);  // (2 u - 1) * bound, u from a counter-based stream

}  // namespace rt
