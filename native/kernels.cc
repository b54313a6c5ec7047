// Float32 loops on the CPU: the optimizer, the EMA, random numbers, functions of an old torch.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine.h"

#ifdef __aarch64__
#include <arm_neon.h>
#endif

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

// Four words of Philox 4x32-10 at a counter, as src/core/random.ts makes them.
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

#ifdef __aarch64__
namespace {

constexpr int kLanes = 8;  // of torch's vectors: the order of its sums

// 2^(i/32), its exponent taken back by i/32: a multiple of 1/32 is added to it as an integer.
const std::array<int64_t, 32> powers = [] {
  std::array<int64_t, 32> out;
  for (int64_t i = 0; i < 32; i++) {
    const double power = std::exp2(static_cast<double>(i) / 32);
    std::memcpy(&out[i], &power, sizeof power);
    out[i] -= i << 47;
  }
  return out;
}();

// exp of two numbers between -86 and 86 with the bits of the C library's expf, which takes one at a time.
inline float32x2_t expTwo(float64x2_t x) {
  const float64x2_t z = vmulq_n_f64(x, 0x1.71547652b82fep+5);  // 32 / ln 2
  const int64x2_t whole = vcvtaq_s64_f64(z);
  const float64x2_t r = vsubq_f64(z, vrndaq_f64(z));
  int64x2_t power = vdupq_n_s64(powers[static_cast<size_t>(vgetq_lane_s64(whole, 0) & 31)]);
  power = vsetq_lane_s64(powers[static_cast<size_t>(vgetq_lane_s64(whole, 1) & 31)], power, 1);
  power = vaddq_s64(power, vshlq_n_s64(whole, 47));
  const float64x2_t high = vfmaq_n_f64(vdupq_n_f64(0x1.ebfce50fac4f3p-13), r, 0x1.c6af84b912394p-20);
  const float64x2_t low = vfmaq_n_f64(vdupq_n_f64(1), r, 0x1.62e42ff0c52d6p-6);
  return vcvt_f32_f64(vmulq_f64(vfmaq_f64(low, high, vmulq_f64(r, r)), vreinterpretq_f64_s64(power)));
}

constexpr float kNothing = -std::numeric_limits<float>::infinity();  // a score that is masked

inline float expOne(float x) { return x == kNothing ? 0 : std::exp(x); }

inline float32x4_t expFour(float32x4_t x) {
  const uint32x4_t nothing = vceqq_f32(x, vdupq_n_f32(kNothing));
  const uint32x4_t fits = vorrq_u32(vcleq_f32(vabsq_f32(x), vdupq_n_f32(86)), nothing);
  if (vminvq_u32(fits) == 0) {
    float out[4];
    vst1q_f32(out, x);
    for (float& one : out) one = expOne(one);
    return vld1q_f32(out);
  }
  const float32x4_t inside = vbslq_f32(nothing, vdupq_n_f32(0), x);
  const float32x4_t made = vcombine_f32(expTwo(vcvt_f64_f32(vget_low_f32(inside))), expTwo(vcvt_high_f64_f32(inside)));
  return vbslq_f32(nothing, vdupq_n_f32(0), made);
}

float largestOf(const float* x, int64_t n) {
  float32x4_t low = vdupq_n_f32(x[0]), high = low;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    low = vmaxq_f32(low, vld1q_f32(x + i));
    high = vmaxq_f32(high, vld1q_f32(x + i + 4));
  }
  float largest = vmaxvq_f32(vmaxq_f32(low, high));
  for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

// torch's order: eight sums side by side, then one after the other.
void softmaxRow(const float* x, float* out, int64_t n) {
  const float largest = largestOf(x, n);
  float lanes[kLanes] = {};
  float32x4_t low = vdupq_n_f32(0), high = low;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const float32x4_t a = expFour(vsubq_f32(vld1q_f32(x + i), vdupq_n_f32(largest)));
    const float32x4_t b = expFour(vsubq_f32(vld1q_f32(x + i + 4), vdupq_n_f32(largest)));
    vst1q_f32(out + i, a);
    vst1q_f32(out + i + 4, b);
    low = vaddq_f32(low, a);
    high = vaddq_f32(high, b);
  }
  vst1q_f32(lanes, low);
  vst1q_f32(lanes + 4, high);
  for (int j = 0; i < n; i++, j++) lanes[j] += out[i] = expOne(x[i] - largest);
  float sum = lanes[0];
  for (int j = 1; j < std::min<int64_t>(kLanes, n); j++) sum += lanes[j];
  const float share = 1 / sum;
  for (i = 0; i < n; i++) out[i] *= share;
}

}  // namespace

void softmaxRows(const float* x, float* out, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r++) softmaxRow(x + r * n, out + r * n, n);
}

void siluFill(const float* x, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const float32x4_t one = vld1q_f32(x + i);
    vst1q_f32(out + i, vdivq_f32(one, vaddq_f32(vdupq_n_f32(1), expFour(vnegq_f32(one)))));
  }
  for (; i < n; i++) out[i] = x[i] / (1 + expOne(-x[i]));
}

void geluFill(const float* x, float* out, int64_t n) {
  constexpr float root = 0.70710678118654752440F;  // of a half
  for (int64_t i = 0; i < n; i++) out[i] = 0.5F * x[i] * (1 + std::erf(x[i] * root));
}

#endif

}  // namespace rt
