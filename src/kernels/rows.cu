// Element-wise work between two matrix products: a block a row, or a thread for 8 elements.

// h += y (if y is given); out = h / rms(h) * weight. `states`: also kept at [clock % ring], the sum itself where `raw`.
KERNEL __launch_bounds__(1024) add_norm(u16* h, const u16* y, const u16* weight, float eps, u16* out, u16* states, int raw, const int* clock,
                                     int ring) {
  __shared__ float sums[32];
  let_next_start();
  const int row = blockIdx.x, i = threadIdx.x * 8, lane = threadIdx.x & 31;
  const bool inside = i < HIDDEN;
  const size_t at = (size_t)row * HIDDEN + i;
  const uint4 nothing = make_uint4(0, 0, 0, 0), w = inside ? weights8(weight + i) : nothing;
  wait_for_previous();
  uint4 a = inside ? fresh8(h + at) : nothing;
  if (y && inside) {
    a = sum8(a, fresh8(y + at));
    *(uint4*)(h + at) = a;
  }
  const float part = total(squares(a));
  if (lane == 0) sums[threadIdx.x >> 5] = part;
  __syncthreads();
  float all = 0.f;
  for (int k = 0; k < blockDim.x / 32; k++) all += sums[k];
  if (!inside) return;
  const uint4 normed = scaled8(a, rsqrtf(all * (1.f / HIDDEN) + eps), w);
  *(uint4*)(out + at) = normed;
  if (states) *(uint4*)(states + (size_t)(clock[0] % ring) * gridDim.x * HIDDEN + at) = raw ? a : normed;
}

DEVICE float gated(float g, float u) { return rounded(g / (1.f + __expf(-g))) * u; }
DEVICE u32 gated2(u32 g, u32 u) { return pack(gated(low(g), low(u)), gated(high(g), high(u))); }

// silu(gate) * up: [rows][2 INNER] -> [rows][INNER]
KERNEL __launch_bounds__(THREADS) swiglu(const u16* both, u16* out, int rows) {
  let_next_start();
  wait_for_previous();
  const int i = (blockIdx.x * THREADS + threadIdx.x) * 8;
  if (i >= rows * INNER) return;
  const u16* gate = both + (size_t)(i / INNER) * 2 * INNER + i % INNER;
  const uint4 g = fresh8(gate), u = fresh8(gate + INNER);
  *(uint4*)(out + i) = make_uint4(gated2(g.x, u.x), gated2(g.y, u.y), gated2(g.z, u.z), gated2(g.w, u.w));
}
