// Element-wise work between two matrix products: a block a row, or a thread for 8 elements.

// h += y (if y is given); out = h / rms(h) * weight. `parts`: y is so many [rows][HIDDEN] in float32, to be summed and rounded; or 0. `states`: also kept at [clock % ring], the sum itself where `raw`.
KERNEL __launch_bounds__(1024) add_norm(u16* h, const u16* y, int parts, const u16* weight, float eps, u16* out, u16* states, int raw, const int* clock,
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
    float4 s[2] = {};
    for (int k = 0; k < parts; k++)
      for (int j = 0; j < 2; j++) add(s[j], __ldcg((const float4*)y + ((size_t)k * gridDim.x * HIDDEN + at) / 4 + j));
    const uint4 sum = make_uint4(pack(s[0].x, s[0].y), pack(s[0].z, s[0].w), pack(s[1].x, s[1].y), pack(s[1].z, s[1].w));
    a = sum8(a, parts ? sum : fresh8(y + at));
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

// Keys and values of prompts, [layers][N][2 GROUPS][DIM], row at[i] for each of P * columns -> the first columns of
// [layers][2][P][GROUPS][room][DIM]. A thread a 16 bytes, blockIdx.y a layer.
KERNEL __launch_bounds__(THREADS) place_prompts(const u16* rows, const int* at, u16* to, int N, int P, int columns, int room) {
  let_next_start();
  wait_for_previous();
  constexpr int EIGHTS = DIM / 8, PIECES = 2 * GROUPS * EIGHTS;
  const int i = blockIdx.x * THREADS + threadIdx.x, cell = i / PIECES, piece = i % PIECES, part = piece / EIGHTS;
  if (cell >= P * columns) return;
  const uint4 v = fresh8(rows + (((size_t)blockIdx.y * N + at[cell]) * PIECES + piece) * 8);
  const size_t prompt = ((size_t)blockIdx.y * 2 + part / GROUPS) * P + cell / columns, head = prompt * GROUPS + part % GROUPS;
  *(uint4*)(to + ((head * room + cell % columns) * EIGHTS + piece % EIGHTS) * 8) = v;
}
