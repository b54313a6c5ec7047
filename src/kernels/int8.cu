// Y [rows][features] = (X W^T) * scale + bias for few rows, W [features][COLUMNS] in 8 bit: read once, converted to bfloat16 in registers, which
// holds every such number. TILES tiles of 8 rows; COLUMNS are split over SPLIT blocks of a cluster and their warps, 64 at a time, and sums
// meet in a fixed order. Blocks take tiles of 16 features in turns, their inputs stay in shared memory.
// EXTRA (a multiple of 16, or 0): T F^T is added, F [features][EXTRA] in bfloat16, T [rows][strideT]. Features from `second` and from
// `third` on read the next EXTRA columns of T.
constexpr int CHUNKS = (COLUMNS + 63) / 64, PART = (CHUNKS + SPLIT - 1) / SPLIT, ROUNDS = (PART + WARPS - 1) / WARPS;
constexpr int SPAN = ROUNDS * WARPS * 64, STRIDE = SPAN + 8;  // of a row in shared memory: the lanes of a load meet different banks
constexpr int ITEMS = TILES * 32, EXTRAS = EXTRA > WARPS * 16 ? (EXTRA / 16 + WARPS - 1) / WARPS : 1;

DEVICE uint4 weights16(const signed char* p) { return weights8((const u16*)p); }
// Two of four numbers of 8 bit: 128 + the lower seven bits, less 128 or 256 by the sign. No step rounds.
DEVICE u32 two_of(u32 four, u32 which) {
  const u32 v = __byte_perm(four, 0x43, which);
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(v & 0xff80ff80u), "r"(0xbf80bf80u), "r"(v & 0xff7fff7fu));  // sub needs 9.0
  return r;
}
DEVICE u32 first_two(u32 four) { return two_of(four, 0x4140); }
DEVICE u32 last_two(u32 four) { return two_of(four, 0x4342); }

KERNEL __launch_bounds__(THREADS, BLOCKS)
    product8(const signed char* W, const u16* scale, const u16* X, const u16* bias, u16* Y, int features, int rows, const u16* F, const u16* T,
             int strideT, int second, int third) {
  u16* inputs = (u16*)dynamic;
  float4(*sums)[WARPS][ITEMS] = (float4(*)[WARPS][ITEMS])(inputs + TILES * 8 * STRIDE);  // in turns one of two
  float4(*part)[ITEMS] = (float4(*)[ITEMS])(sums + 2);
  let_next_start();
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int rank = SPLIT > 1 ? cluster_rank() : 0, begin = rank * PART * 64, tiles = (features + 15) / 16;
  const auto load = [&](int feature, int c) {
    const int column = min(begin + min(c * WARPS + w, PART - 1) * 64 + 16 * t, COLUMNS - 16);
    return weights16(W + (size_t)min(feature, features - 1) * COLUMNS + column);
  };
  int tile = blockIdx.x / SPLIT;
  uint4 a[ROUNDS], b[ROUNDS];
#pragma unroll
  for (int c = 0; c < ROUNDS; c++) { a[c] = load(tile * 16 + g, c); b[c] = load(tile * 16 + 8 + g, c); }
  wait_for_previous();
#pragma unroll 4
  for (int i = threadIdx.x; i < TILES * 8 * (SPAN / 8); i += THREADS) {
    const int row = i / (SPAN / 8), at = i % (SPAN / 8) * 8, column = begin + at;
    const uint4 x = fresh8(X + (size_t)min(row, rows - 1) * COLUMNS + min(column, COLUMNS - 8));
    const bool there = row < rows && at < PART * 64 && column < COLUMNS;
    *(uint4*)(inputs + row * STRIDE + at) = there ? x : make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  int buffer = 0;
  for (; tile < tiles; tile += gridDim.x / SPLIT) {
    const int next = tile + gridDim.x / SPLIT;
    const bool more = next < tiles;
    float acc[TILES][4];
#pragma unroll
    for (int n = 0; n < TILES; n++) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.f;
    // what is used after the loop over the columns is loaded before it
    const float scales[2] = {wide(scale[min(tile * 16 + g, features - 1)]), wide(scale[min(tile * 16 + 8 + g, features - 1)])};
    uint2 f[EXTRAS], h[EXTRAS], x[EXTRAS][TILES];
    if (EXTRA && rank == 0) {
      const u16* from = T + ((tile * 16 >= second) + (tile * 16 >= third)) * EXTRA;
#pragma unroll
      for (int e = 0; e < EXTRAS; e++) {
        const int k = (e * WARPS + w) * 16 + 4 * t, column = min(k, EXTRA - 4);
        const auto factor = [&](int feature) { return __ldcs((const uint2*)(F + (size_t)min(feature, features - 1) * EXTRA + column)); };
        f[e] = factor(tile * 16 + g);
        h[e] = factor(tile * 16 + 8 + g);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
          const uint2 v = __ldcg((const uint2*)(from + (size_t)min(n * 8 + g, rows - 1) * strideT + column));
          x[e][n] = n * 8 + g < rows && k < EXTRA ? v : make_uint2(0, 0);
        }
      }
    }
#pragma unroll
    for (int c = 0; c < ROUNDS; c++) {
      const u16* input = inputs + g * STRIDE + (c * WARPS + w) * 64 + 16 * t;
      const u32 aa[4] = {a[c].x, a[c].y, a[c].z, a[c].w}, bb[4] = {b[c].x, b[c].y, b[c].z, b[c].w};
#pragma unroll
      for (int half = 0; half < 2; half++) {
        u32 low[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++) {
          const u32 four = aa[half * 2 + m], other = bb[half * 2 + m];
          low[m][0] = first_two(four); low[m][1] = first_two(other); low[m][2] = last_two(four); low[m][3] = last_two(other);
        }
#pragma unroll
        for (int n = 0; n < TILES; n++) {
          const uint4 v = *(const uint4*)(input + n * 8 * STRIDE + half * 8);
          product(acc[n], low[0][0], low[0][1], low[0][2], low[0][3], v.x, v.y);
          product(acc[n], low[1][0], low[1][1], low[1][2], low[1][3], v.z, v.w);
        }
      }
      if (more) { a[c] = load(next * 16 + g, c); b[c] = load(next * 16 + 8 + g, c); }
    }
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) acc[n][i] *= scales[i / 2];
    if (EXTRA && rank == 0) {
#pragma unroll
      for (int e = 0; e < EXTRAS; e++)
#pragma unroll
        for (int n = 0; n < TILES; n++) product(acc[n], f[e].x, h[e].x, f[e].y, h[e].y, x[e][n].x, x[e][n].y);
    }
#pragma unroll
    for (int n = 0; n < TILES; n++) sums[buffer][w][n * 32 + lane] = make_float4(acc[n][0], acc[n][1], acc[n][2], acc[n][3]);
    __syncthreads();
    const auto put = [&](int item, float4 s) {
      const int row = (item >> 5) * 8 + 2 * (item & 3), feature = tile * 16 + ((item & 31) >> 2);
      const auto one = [&](int r, int f, float v) {
        if (r < rows && f < features) Y[(size_t)r * features + f] = narrow(v + (bias ? wide(bias[f]) : 0.f));
      };
      one(row, feature, s.x);
      one(row + 1, feature, s.y);
      one(row, feature + 8, s.z);
      one(row + 1, feature + 8, s.w);
    };
    if (threadIdx.x < ITEMS) {
      float4 s = sums[buffer][0][threadIdx.x];
#pragma unroll
      for (int i = 1; i < WARPS; i++) add(s, sums[buffer][i][threadIdx.x]);
      if (SPLIT == 1) put(threadIdx.x, s);
      else part[buffer][threadIdx.x] = s;
    }
    if (SPLIT > 1) {
      cluster_sync();
      constexpr int SHARE = (ITEMS + SPLIT - 1) / SPLIT;
      const int item = rank * SHARE + threadIdx.x;
      if (threadIdx.x < SHARE && item < ITEMS) {
        float4 s = remote(&part[buffer][item], 0);
#pragma unroll
        for (int k = 1; k < SPLIT; k++) add(s, remote(&part[buffer][item], k));
        put(item, s);
      }
    }
    buffer ^= 1;
  }
  if (SPLIT > 1) cluster_sync();
}
