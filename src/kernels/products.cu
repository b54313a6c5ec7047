// Matrix products for few rows: TILES tiles of 8 rows. Weights are [out][in] as checkpoints have them. Output features are the 16 side of
// the tensor cores' tile, rows the 8 side; k is split over the 8 warps, and sums meet in a fixed order.
// g and t are the two coordinates of a lane in a tile.
#define LANES const int lane = threadIdx.x & 31, w = threadIdx.x >> 5, g = lane >> 2, t = lane & 3

// Many feature tiles a block, the rows' fragments stay in registers. GATED: features are pairs of gate and up after a norm.
template <bool GATED>
DEVICE void many_features(const u16* W, const u16* X, const u16* norm, float eps, u16* Y, int stride, int features, int rows) {
  constexpr int CHUNKS = HIDDEN / 256;
  __shared__ float4 sums[2][WARPS][TILES * 32];
  __shared__ float square[WARPS][TILES * 8];
  __shared__ uint4 norms[GATED ? HIDDEN / 8 : 1];  // read before the wait: after it they would be waited for
  let_next_start();
  LANES;
  const int tiles = GATED ? INNER / 8 : (features + 15) / 16, at = w * 32 + 8 * t;
  const auto first = [&](int tile) { return W + (size_t)(GATED ? tile * 8 + g : min(tile * 16 + g, features - 1)) * HIDDEN + at; };
  const auto second = [&](int tile) { return W + (size_t)(GATED ? INNER + tile * 8 + g : min(tile * 16 + 8 + g, features - 1)) * HIDDEN + at; };
  int tile = blockIdx.x;
  uint4 a[CHUNKS], b[CHUNKS], x[TILES][CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) { a[c] = weights8(first(tile) + c * 256); b[c] = weights8(second(tile) + c * 256); }
  for (int i = threadIdx.x; GATED && i < HIDDEN / 8; i += THREADS) norms[i] = weights8(norm + i * 8);
  wait_for_previous();
#pragma unroll
  for (int n = 0; n < TILES; n++)
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) x[n][c] = n * 8 + g < rows ? fresh8(X + (size_t)(n * 8 + g) * HIDDEN + at + c * 256) : make_uint4(0, 0, 0, 0);
  if (GATED) {
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      float s = 0.f;
#pragma unroll
      for (int c = 0; c < CHUNKS; c++) s += squares(x[n][c]);
      s += __shfl_xor_sync(~0u, s, 1);
      s += __shfl_xor_sync(~0u, s, 2);
      if (t == 0) square[w][n * 8 + g] = s;
    }
    __syncthreads();
    float scale[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      float s = 0.f;
#pragma unroll
      for (int i = 0; i < WARPS; i++) s += square[i][n * 8 + g];
      scale[n] = rsqrtf(s * (1.f / HIDDEN) + eps);
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      const uint4 nw = norms[at / 8 + c * 32];
#pragma unroll
      for (int n = 0; n < TILES; n++) x[n][c] = scaled8(x[n][c], scale[n], nw);
    }
  }
  int buffer = 0;
  for (; tile < tiles; tile += gridDim.x) {
    const int next = tile + gridDim.x;
    const bool more = next < tiles;
    const u16 *pa = first(next), *pb = second(next);
    float acc[TILES][4];
#pragma unroll
    for (int n = 0; n < TILES; n++) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
      for (int n = 0; n < TILES; n++) products(acc[n], a[c], b[c], x[n][c]);
      if (more) { a[c] = weights8(pa + c * 256); b[c] = weights8(pb + c * 256); }
    }
#pragma unroll
    for (int n = 0; n < TILES; n++) sums[buffer][w][n * 32 + lane] = make_float4(acc[n][0], acc[n][1], acc[n][2], acc[n][3]);
    __syncthreads();
    const int n = (w - (tile / gridDim.x) * TILES) & (WARPS - 1);  // the warps take turns with the last sum
    if (n < TILES) {
      float4 s = sums[buffer][0][n * 32 + lane];
#pragma unroll
      for (int i = 1; i < WARPS; i++) add(s, sums[buffer][i][n * 32 + lane]);
      const int row = n * 8 + 2 * t;
      const auto put = [&](int r, int f, float v) { if (r < rows && f < features) Y[(size_t)r * stride + f] = narrow(v); };
      if (GATED) {
        put(row, tile * 8 + g, gated(rounded(s.x), rounded(s.z)));
        put(row + 1, tile * 8 + g, gated(rounded(s.y), rounded(s.w)));
      } else {
        put(row, tile * 16 + g, s.x);
        put(row, tile * 16 + g + 8, s.z);
        put(row + 1, tile * 16 + g, s.y);
        put(row + 1, tile * 16 + g + 8, s.w);
      }
    }
    buffer ^= 1;
  }
}

// silu(gate) * up of the normed rows: W [2 INNER][HIDDEN]
KERNEL __launch_bounds__(THREADS, 1) gate_up(const u16* W, const u16* X, const u16* norm, float eps, u16* Y, int rows) {
  many_features<true>(W, X, norm, eps, Y, INNER, INNER, rows);
}
KERNEL __launch_bounds__(THREADS, 1) head(const u16* W, const u16* X, u16* Y, int stride, int features, int rows) {
  many_features<false>(W, X, nullptr, 0.f, Y, stride, features, rows);
}

// Sums over the warps go to the block of the cluster that needs them; they are there after the next `cluster_sync`.
template <int ITEMS, int MINE>
DEVICE void hand_out(const float4 (*sums)[ITEMS], float4 (*part)[MINE], int rank) {
  __syncthreads();
  meet_cluster();
  for (int i = threadIdx.x; i < ITEMS; i += THREADS) {
    float4 s = sums[0][i];
#pragma unroll
    for (int k = 1; k < WARPS; k++) add(s, sums[k][i]);
    push(&part[rank][i % MINE], i / MINE, s);
  }
}

// FEATURES tiles of 16 features a group; k is split over a cluster of 4 blocks as well. NORM: of the rows first. Y = or += (ADD).
template <int FEATURES, int K, bool NORM, bool ADD>
DEVICE void few_features(const u16* W, const u16* X, const u16* norm, float eps, const u16* bias, u16* Y, int rows) {
  constexpr int SPLIT = 4, PART = K / SPLIT, CHUNKS = PART / 32, ROUNDS = (CHUNKS + WARPS - 1) / WARPS, ITEMS = FEATURES * TILES * 32;
  constexpr int DEPTH = FEATURES * TILES > 8 ? 1 : (ROUNDS < 2 ? ROUNDS : 2);  // chunks in registers
  constexpr int MINE = (ITEMS + SPLIT - 1) / SPLIT, ROWS = TILES * 8;
  __shared__ float4 sums[WARPS][ITEMS];
  __shared__ float4 part[SPLIT][MINE];  // of the block's share of the result, by all blocks
  __shared__ float square[WARPS][ROWS];
  __shared__ float squarePart[SPLIT][ROWS];
  let_next_start();
  announce();
  LANES;
  const int rank = cluster_rank(), group = blockIdx.x / SPLIT, at = rank * PART + w * 32 + 8 * t;
  const u16* from = W + (size_t)(group * FEATURES * 16 + g) * K + at;
  uint4 a[DEPTH][FEATURES], b[DEPTH][FEATURES], x[DEPTH][TILES];
  const auto loadW = [&](int round, int slot) {
#pragma unroll
    for (int f = 0; f < FEATURES; f++) {
      a[slot][f] = weights8(from + (size_t)f * 16 * K + round * 256);
      b[slot][f] = weights8(from + (size_t)(f * 16 + 8) * K + round * 256);
    }
  };
  // the thread's share of the result, and what is added to it: loaded early, nothing waits for it at the end
  constexpr int OUT = NORM ? QKV : HIDDEN;
  static_assert(MINE <= THREADS && SPLIT * ROWS <= THREADS, "one item a thread");
  const int item = rank * MINE + threadIdx.x;
  const bool owner = threadIdx.x < MINE && item < ITEMS;
  const int row = (item >> 5) % TILES * 8 + 2 * (item & 3), feature = (group * FEATURES + (item >> 5) / TILES) * 16 + ((item & 31) >> 2);
  u16* y = Y + (size_t)row * OUT + feature;
  float add0[2] = {0.f, 0.f}, add1[2] = {0.f, 0.f};  // for the two rows: features, and features + 8
  if (!ADD && bias && owner) { add0[0] = add1[0] = wide(bias[feature]); add0[1] = add1[1] = wide(bias[feature + 8]); }
  const auto loadX = [&](int round, int slot) {
#pragma unroll
    for (int n = 0; n < TILES; n++) x[slot][n] = n * 8 + g < rows ? fresh8(X + (size_t)(n * 8 + g) * K + at + round * 256) : make_uint4(0, 0, 0, 0);
  };
#pragma unroll
  for (int i = 0; i < DEPTH; i++) if (w + i * WARPS < CHUNKS) loadW(i, i);
  wait_for_previous();
#pragma unroll
  for (int i = 0; i < DEPTH; i++) if (w + i * WARPS < CHUNKS) loadX(i, i);
  if (ADD && owner && row < rows) { add0[0] = wide(__ldcg(y)); add0[1] = wide(__ldcg(y + 8)); }
  if (ADD && owner && row + 1 < rows) { add1[0] = wide(__ldcg(y + OUT)); add1[1] = wide(__ldcg(y + OUT + 8)); }
  float acc[FEATURES][TILES][4], squareSum[TILES];
#pragma unroll
  for (int n = 0; n < TILES; n++) {
    squareSum[n] = 0.f;
#pragma unroll
    for (int f = 0; f < FEATURES; f++) acc[f][n][0] = acc[f][n][1] = acc[f][n][2] = acc[f][n][3] = 0.f;
  }
  for (int start = 0; start < ROUNDS; start += DEPTH) {
#pragma unroll
    for (int j = 0; j < DEPTH; j++) {
      const int i = start + j;
      if (w + i * WARPS < CHUNKS) {
        if (NORM) {
          const uint4 nw = weights8(norm + at + i * 256);
#pragma unroll
          for (int n = 0; n < TILES; n++) {
            squareSum[n] += squares(x[j][n]);
            x[j][n] = scaled8(x[j][n], 1.f, nw);
          }
        }
#pragma unroll
        for (int f = 0; f < FEATURES; f++)
#pragma unroll
          for (int n = 0; n < TILES; n++) products(acc[f][n], a[j][f], b[j][f], x[j][n]);
        if (ROUNDS > DEPTH && w + (i + DEPTH) * WARPS < CHUNKS) { loadW(i + DEPTH, j); loadX(i + DEPTH, j); }
      }
    }
  }
#pragma unroll
  for (int f = 0; f < FEATURES; f++)
#pragma unroll
    for (int n = 0; n < TILES; n++) sums[w][(f * TILES + n) * 32 + lane] = make_float4(acc[f][n][0], acc[f][n][1], acc[f][n][2], acc[f][n][3]);
  if (NORM) {
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      float v = squareSum[n];
      v += __shfl_xor_sync(~0u, v, 1);
      v += __shfl_xor_sync(~0u, v, 2);
      if (t == 0) square[w][n * 8 + g] = v;
    }
  }
  hand_out(sums, part, rank);
  if (NORM && threadIdx.x < SPLIT * ROWS) {
    float v = 0.f;
#pragma unroll
    for (int k = 0; k < WARPS; k++) v += square[k][threadIdx.x % ROWS];
    push(&squarePart[rank][threadIdx.x % ROWS], threadIdx.x / ROWS, v);
  }
  cluster_sync();
  if (owner) {
    float4 s = part[0][threadIdx.x];
#pragma unroll
    for (int k = 1; k < SPLIT; k++) add(s, part[k][threadIdx.x]);
    if (NORM) {
      float q0 = 0.f, q1 = 0.f;
#pragma unroll
      for (int k = 0; k < SPLIT; k++) { q0 += squarePart[k][row]; q1 += squarePart[k][row + 1]; }
      q0 = rsqrtf(q0 * (1.f / K) + eps);
      q1 = rsqrtf(q1 * (1.f / K) + eps);
      s.x *= q0; s.z *= q0; s.y *= q1; s.w *= q1;
    }
    const auto sum = [](float v, float more) { return narrow((ADD ? rounded(v) : v) + more); };
    if (row < rows) { y[0] = sum(s.x, add0[0]); y[8] = sum(s.z, add0[1]); }
    if (row + 1 < rows) { y[OUT] = sum(s.y, add1[0]); y[OUT + 8] = sum(s.w, add1[1]); }
  }
}

// Tiles of features a group, for about 32 groups of 4 blocks; must divide the tiles.
__device__ constexpr int share_of(int tiles) {
  int n = (tiles + 31) / 32;
  while (tiles % n) n++;
  return n;
}
constexpr int QKV_FEATURES = share_of(QKV / 16), OUT_FEATURES = share_of(HIDDEN / 16);

// queries, keys and values of the normed rows: W [QKV][HIDDEN]
KERNEL __launch_bounds__(THREADS, 2) qkv(const u16* W, const u16* X, const u16* norm, float eps, const u16* bias, u16* Y, int rows) {
  few_features<QKV_FEATURES, HIDDEN, true, false>(W, X, norm, eps, bias, Y, rows);
}
// Y += W X, W [HIDDEN][HEADS * DIM]
KERNEL __launch_bounds__(THREADS, 2) attention_out(const u16* W, const u16* X, u16* Y, int rows) {
  few_features<OUT_FEATURES, HEADS * DIM, false, true>(W, X, nullptr, 0.f, nullptr, Y, rows);
}

// Y += W X, W [HIDDEN][INNER]. A pair of blocks has 32 features, each reads half of the columns, so that inputs are read half as often.
// Chunks of 256 columns are loaded AHEAD. No branch may be around the loads.
KERNEL __launch_bounds__(THREADS, 1) down(const u16* W, const u16* X, u16* Y, int rows) {
  constexpr int PAIR = 2, CHUNKS = INNER / 256, PART = (CHUNKS + PAIR - 1) / PAIR, AHEAD = PART < 6 ? PART : 6;
  constexpr int MINE = TILES * 32, ITEMS = PAIR * MINE;
  __shared__ float4 sums[WARPS][ITEMS];
  __shared__ float4 part[PAIR][MINE];  // of the block's 16 features, by all blocks
  let_next_start();
  announce();
  LANES;
  const int rank = cluster_rank(), feature = blockIdx.x / PAIR * PAIR * 16;
  const u16 *from = W + (size_t)(feature + g) * INNER + w * 32 + 8 * t, *input = X + (size_t)g * INNER + w * 32 + 8 * t;
  uint4 a[AHEAD][PAIR], b[AHEAD][PAIR], x[AHEAD][TILES];
  const auto loadW = [&](int chunk) {
#pragma unroll
    for (int f = 0; f < PAIR; f++) {
      const u16* p = from + (size_t)f * 16 * INNER + min(rank * PART + chunk, CHUNKS - 1) * 256;
      a[chunk % AHEAD][f] = weights8(p);
      b[chunk % AHEAD][f] = weights8(p + 8 * INNER);
    }
  };
  const auto loadX = [&](int chunk) {
    const int at = rank * PART + chunk;
#pragma unroll
    for (int n = 0; n < TILES; n++)
      x[chunk % AHEAD][n] = n * 8 + g < rows && at < CHUNKS ? fresh8(input + (size_t)n * 8 * INNER + at * 256) : make_uint4(0, 0, 0, 0);
  };
#pragma unroll
  for (int j = 0; j < AHEAD; j++) loadW(j);
  wait_for_previous();
#pragma unroll
  for (int j = 0; j < AHEAD; j++) loadX(j);
  // the end adds to these
  const int row = w * 8 + 2 * t;
  u16* y = Y + (size_t)row * HIDDEN + feature + rank * 16 + g;
  float add0[2] = {0.f, 0.f}, add1[2] = {0.f, 0.f};
  if (w < TILES && row < rows) { add0[0] = wide(__ldcg(y)); add0[1] = wide(__ldcg(y + 8)); }
  if (w < TILES && row + 1 < rows) { add1[0] = wide(__ldcg(y + HIDDEN)); add1[1] = wide(__ldcg(y + HIDDEN + 8)); }
  float acc[PAIR][TILES][4] = {};
#pragma unroll
  for (int j = 0; j < PART; j++) {
    const int slot = j % AHEAD;
#pragma unroll
    for (int i = 0; i < PAIR * TILES; i++) products(acc[i % PAIR][i / PAIR], a[slot][i % PAIR], b[slot][i % PAIR], x[slot][i / PAIR]);
    if (j + AHEAD < PART) { loadW(j + AHEAD); loadX(j + AHEAD); }
  }
#pragma unroll
  for (int i = 0; i < PAIR * TILES; i++) sums[w][i * 32 + lane] = *(float4*)acc[i / TILES][i % TILES];
  hand_out(sums, part, rank);
  cluster_sync();
  if (w < TILES) {
    float4 s = part[0][threadIdx.x];
    add(s, part[1][threadIdx.x]);
    if (row < rows) { y[0] = narrow(rounded(s.x) + add0[0]); y[8] = narrow(rounded(s.z) + add0[1]); }
    if (row + 1 < rows) { y[HIDDEN] = narrow(rounded(s.y) + add1[0]); y[HIDDEN + 8] = narrow(rounded(s.w) + add1[1]); }
  }
}
