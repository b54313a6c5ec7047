// The next token of each row from bfloat16 scores: the smallest id whose share of the whole, summed in vocabulary order in float64, exceeds
// the row's number; the lowest of the largest if there are no numbers. A cluster of blocks a row, or one block
// whose copy of the scores is in `room`. Also kept at [clock % ring][row]: the id (-1
// where scores have no distribution), its log-probability among all ids and among those that may be drawn; and the row's next input. Rows of a
// unit without a prompt draw nothing.
constexpr int DRAWERS = 512;

struct Share {
  float top;     // largest score of the row
  double total;  // sum of exp(score - top)
};

// What all blocks of the cluster need of a pass over the scores.
struct Exchange {
  float top, warpTop[DRAWERS / 32];
  double total, warpTotal[DRAWERS / 32];
};

DEVICE float share(u16 score, float top, float factor) { return exp2f((wide(score) - top) * factor); }

// `before`, `upTo`: where the thread's part of the distribution begins and ends.
DEVICE Share measure(const u16* x, int from, int to, float factor, Exchange& e, double& before, double& upTo) {
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5, pieces = gridDim.x;
  float top = NEGATIVE_INFINITY;
#pragma unroll 8
  for (int i = from; i < to; i++) top = fmaxf(top, wide(x[i]));
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  if (lane == 0) e.warpTop[w] = top;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < DRAWERS / 32; i++) top = fmaxf(top, e.warpTop[i]);
    e.top = top;
  }
  cluster_sync();
  top = NEGATIVE_INFINITY;
  for (int k = 0; k < pieces; k++) top = fmaxf(top, remote(&e.top, k));
  double sum = 0.0;
#pragma unroll 8
  for (int i = from; i < to; i++) sum += share(x[i], top, factor);
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    const double v = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += v;
  }
  if (lane == 31) e.warpTotal[w] = sum;
  __syncthreads();
  double warpStart = 0.0;
  for (int i = 0; i < w; i++) warpStart += e.warpTotal[i];
  if (threadIdx.x == DRAWERS - 1) e.total = warpStart + sum;
  cluster_sync();
  double start = 0.0, all = 0.0;
  for (int k = 0; k < pieces; k++) {
    if (k == blockIdx.x) start = all;
    all += remote(&e.total, k);
  }
  // both sides of a border are the same expression: one thread takes a number
  double left = __shfl_up_sync(~0u, sum, 1);
  if (lane == 0) left = 0.0;
  before = start + (warpStart + left);
  upTo = start + (warpStart + sum);
  return {top, all};
}

// The last row moves the clock from T.
DEVICE void arrive(int* clock, int T, int* arrived, int rows) {
  __threadfence();
  if (atomicAdd(arrived, 1) == rows - 1) { *arrived = 0; clock[0] = T + 1; }
}

KERNEL __launch_bounds__(DRAWERS, 2) draw(const u16* scores, int vocabulary, int stride, float inverseTemperature, const double* numbers,
                                          const int* never, int nevers, const int* promptOf, int* clock, int* ids, float* logps, float* drawnLogps,
                                          const u16* embedding, u16* h, int* arrived, int ring, u16* room) {
#if __CUDA_ARCH__ >= 900
  u16* x = (u16*)dynamic;  // the block's part of the scores
#else
  u16* x = room + (size_t)blockIdx.y * stride;
#endif
  __shared__ Exchange first, second;
  __shared__ int lowest, chosen;
  let_next_start();
  const int pieces = gridDim.x, piece = blockIdx.x, row = blockIdx.y, rows = gridDim.y;
  const int slice = ((vocabulary + pieces - 1) / pieces + 7) & ~7, start = piece * slice, n = max(0, min(slice, vocabulary - start));
  const bool closed = promptOf[row / SHARE] < 0;
  wait_for_previous();
  const int T = __ldcg(clock), at = T % ring * rows + row;
  if (closed) {
    if (piece == 0 && threadIdx.x == 0) arrive(clock, T, arrived, rows);
    return;
  }
  const double number = numbers ? __ldcg(numbers + at) : 0.0;
  for (int i = threadIdx.x * 8; i < n; i += DRAWERS * 8) *(uint4*)(x + i) = fresh8(scores + (size_t)row * stride + start + i);
  if (threadIdx.x == 0) { lowest = 0x7fffffff; chosen = -1; }
  __syncthreads();
  const int per = (slice + DRAWERS - 1) / DRAWERS, from = min(n, (int)threadIdx.x * per), to = min(n, from + per);
  const float factor = inverseTemperature * LOG2E;
  double before, upTo;
  const Share everything = measure(x, from, to, factor, first, before, upTo);
  Share allowed = everything;
  if (nevers > 0) {
    for (int i = threadIdx.x; i < nevers; i += DRAWERS) if (never[i] >= start && never[i] < start + n) x[never[i] - start] = 0xff80;
    __syncthreads();
    allowed = measure(x, from, to, factor, second, before, upTo);
  }
  const bool sound = allowed.total > 0.0 && everything.total < __longlong_as_double(0x7ff0000000000000ll) && fabsf(everything.top) < -NEGATIVE_INFINITY;
  int token = -1;
  if (sound && !numbers) {
    for (int i = from; i < to; i++) if (wide(x[i]) == allowed.top) { atomicMin(&lowest, i); break; }
    __syncthreads();
    bool mine = threadIdx.x == 0 && lowest < n;
    const Exchange& e = nevers > 0 ? second : first;
    for (int k = 0; k < piece; k++) if (remote(&e.top, k) == allowed.top) mine = false;  // a block before this one has it
    if (mine) token = lowest;
  } else if (sound) {
    double target = number * allowed.total;
    if (!(target < allowed.total)) target = allowed.total * (1.0 - 1e-15);
    const int lane = threadIdx.x & 31, taker = __ffs(__ballot_sync(~0u, target >= before && target < upTo)) - 1;
    if (taker >= 0) {  // the warp looks through the part of the lane that takes the number
      double run = __shfl_sync(~0u, before, taker);
      const int last = __shfl_sync(~0u, to, taker);
      for (int i = __shfl_sync(~0u, from, taker); i < last; i += 32) {
        const float s = i + lane < last ? share(x[i + lane], allowed.top, factor) : 0.f;
        double sum = s;
#pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
          const double v = __shfl_up_sync(~0u, sum, d);
          if (lane >= d) sum += v;
        }
        const u32 some = __ballot_sync(~0u, s > 0.f), over = __ballot_sync(~0u, s > 0.f && run + sum > target);
        if (some) token = i + (over ? __ffs(over) : 32 - __clz(some)) - 1;
        if (over) break;
        run += __shfl_sync(~0u, sum, 31);
      }
      if (lane != taker) token = -1;
    }
  }
  if (token >= 0) {
    chosen = start + token;
    ids[at] = start + token;
    const double score = wide(x[token]);
    logps[at] = (float)((score - everything.top) * inverseTemperature - log(everything.total));
    drawnLogps[at] = (float)((score - allowed.top) * inverseTemperature - log(allowed.total));
  }
  if (!sound && piece == 0 && threadIdx.x == 0) { ids[at] = -1; logps[at] = drawnLogps[at] = 0.f; }
  __syncthreads();
  if (chosen >= 0)
    for (int i = threadIdx.x * 8; i < HIDDEN; i += DRAWERS * 8) *(uint4*)(h + (size_t)row * HIDDEN + i) = *(const uint4*)(embedding + (size_t)chosen * HIDDEN + i);
  cluster_sync();
  if (piece == 0 && threadIdx.x == 0) arrive(clock, T, arrived, rows);
}
