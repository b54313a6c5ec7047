// Y [rows][features] = (X W^T) * scale + bias for few rows, W [features][COLUMNS] in BITS bit: read once, converted to bfloat16 in registers,
// which holds every number of 8 bit. TILES tiles of 8 rows; COLUMNS are split over SPLIT blocks of a cluster and their warps, 64 at a time,
// and sums meet in a fixed order. Blocks take tiles of 16 features in turns, their inputs stay in shared memory.
// A row has one scale; in 4 bit it has one for each 64 columns, by which their sum is multiplied before it is added.
// EXTRA (a multiple of 16, or 0): T F^T is added, F [features][EXTRA] in bfloat16, T [rows][strideT]. Features from `second` and from
// `third` on read the next EXTRA columns of T.
constexpr int CHUNKS = (COLUMNS + 63) / 64, PART = (CHUNKS + SPLIT - 1) / SPLIT, ROUNDS = (PART + WARPS - 1) / WARPS;
constexpr int SPAN = ROUNDS * WARPS * 64, STRIDE = SPAN + 8;  // of a row in shared memory: the lanes of a load meet different banks
constexpr int ITEMS = TILES * 32, EXTRAS = EXTRA > WARPS * 16 ? (EXTRA / 16 + WARPS - 1) / WARPS : 1;

KERNEL __launch_bounds__(THREADS, BLOCKS)
    product_quantized(const unsigned char* W, const u16* scale, const u16* X, const u16* bias, u16* Y, int features, int rows, const u16* F, const u16* T,
                      int strideT, int second, int third) {
  u16* inputs = (u16*)dynamic;
  float4(*sums)[WARPS][ITEMS] = (float4(*)[WARPS][ITEMS])(inputs + TILES * 8 * STRIDE);  // in turns one of two
  float4(*part)[ITEMS] = (float4(*)[ITEMS])(sums + 2);
  let_next_start();
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int rank = SPLIT > 1 ? cluster_rank() : 0, begin = rank * PART * 64, tiles = (features + 15) / 16;
  Sixteen a[ROUNDS], b[ROUNDS];
  u16 scaleA[ROUNDS], scaleB[ROUNDS];  // in 4 bit
  const auto load = [&](int feature, int c, Sixteen& numbers, u16& of64) {
    const int column = min(begin + min(c * WARPS + w, PART - 1) * 64 + 16 * t, COLUMNS - 16);
    const size_t at = (size_t)min(feature, features - 1) * COLUMNS + column;
    numbers = sixteen(W + at / 8 * BITS);
    if (BITS == 4) of64 = scale[at / 64];
  };
  const auto load_both = [&](int tile, int c) {
    load(tile * 16 + g, c, a[c], scaleA[c]);
    load(tile * 16 + 8 + g, c, b[c], scaleB[c]);
  };
  int tile = blockIdx.x / SPLIT;
#pragma unroll
  for (int c = 0; c < ROUNDS; c++) load_both(tile, c);
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
    const auto of_row = [&](int feature) { return BITS == 8 ? wide(scale[min(feature, features - 1)]) : 1.f; };
    const float scales[2] = {of_row(tile * 16 + g), of_row(tile * 16 + 8 + g)};
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
      float of64[TILES][4] = {};
      float(&sum)[TILES][4] = BITS == 4 ? of64 : acc;
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const uint4 p = eight(a[c], half), q = eight(b[c], half);
#pragma unroll
        for (int n = 0; n < TILES; n++) products(sum[n], p, q, *(const uint4*)(input + n * 8 * STRIDE + half * 8));
      }
      if (BITS == 4) {
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
          for (int i = 0; i < 4; i++) acc[n][i] += of64[n][i] * wide(i < 2 ? scaleA[c] : scaleB[c]);
      }
      if (more) load_both(next, c);
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
