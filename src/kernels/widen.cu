// Y [features][COLUMNS] = W * scale + F A in bfloat16, rounded once: W in BITS bit, F [features][EXTRA], A [parts * EXTRA][COLUMNS]; EXTRA a
// multiple of 16, or 0. Features from `second` and from `third` on are the next parts. A block has STRIPS times 64 columns of a part of A in
// shared memory, its warps take tiles of 16 features in turns. A lane has 16 neighbours of two features, so that column 16 t + 2 n + e is
// column 2 t + e of the n-th product.
constexpr int STEP = EXTRA | 16, RANK = EXTRA ? EXTRA : 1;  // elements between two columns of A: lanes meet different banks
KERNEL __launch_bounds__(THREADS, 2)
    widen(const unsigned char* W, const u16* scale, u16* Y, int features, const u16* F, const u16* A, int parts, int second, int third) {
  u16* columns = (u16*)dynamic;  // [STRIPS][64][STEP]
  let_next_start();
  wait_for_previous();  // Y may be what it read or wrote
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, begin = blockIdx.x * STRIPS * 64;
  const int part = blockIdx.y % parts, from = part == 0 ? 0 : part == 1 ? second : third, to = min(part == 0 ? second : part == 1 ? third : features, features);
  const int first = from + (blockIdx.y / parts * WARPS + w) * 16, step = gridDim.y / parts * WARPS * 16, strips = min(STRIPS, (COLUMNS - begin + 63) / 64);
  if (first - w * 16 >= to) return;
#pragma unroll 4
  for (int i = threadIdx.x; i < STRIPS * 8 * EXTRA; i += THREADS) {  // a warp has 32 neighbours of a column
    const int c = i / RANK * 8, k = i % RANK;
    const uint4 v = begin + c < COLUMNS ? fresh8(A + ((size_t)part * EXTRA + k) * COLUMNS + begin + c) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const int place = (c & ~63) + ((c + j) >> 1 & 7) * 8 + (c >> 4 & 3) * 2 + (j & 1);
      columns[place * STEP + k] = ((const u16*)&v)[j];
    }
  }
  __syncthreads();
  const auto number = [&](int tile, int strip, int h) { return (size_t)min(tile + 8 * h + g, to - 1) * COLUMNS + min(begin + strip * 64 + 16 * t, COLUMNS - 16); };
  const auto load = [&](int tile, int strip, int h) { return sixteen(W + number(tile, strip, h) / 8 * BITS); };
  Sixteen v[2] = {load(first, 0, 0), load(first, 0, 1)};
  for (int tile = first; tile < to; tile += step) {
    uint2 f[EXTRA / 16 + 1][2];
    const float ofRow[2] = {BITS == 8 ? wide(scale[min(tile + g, to - 1)]) : 0.f, BITS == 8 ? wide(scale[min(tile + 8 + g, to - 1)]) : 0.f};
#pragma unroll
    for (int i = 0; i < EXTRA / 8; i++) f[i / 2][i % 2] = *(const uint2*)(F + (size_t)min(tile + i % 2 * 8 + g, to - 1) * EXTRA + i / 2 * 16 + 4 * t);
#pragma unroll 1
    for (int strip = 0; strip < strips; strip++) {
      const bool last = strip + 1 == strips;
      const Sixteen next[2] = {load(last ? tile + step : tile, last ? 0 : strip + 1, 0), load(last ? tile + step : tile, last ? 0 : strip + 1, 1)};
      float acc[8][4] = {};
#pragma unroll
      for (int i = 0; i < EXTRA / 2; i++) {
        const uint2 *p = f[i / 8], a = *(const uint2*)(columns + (strip * 64 + i % 8 * 8 + g) * STEP + i / 8 * 16 + 4 * t);
        product(acc[i % 8], p[0].x, p[1].x, p[0].y, p[1].y, a.x, a.y);
      }
#pragma unroll
      for (int h = 0; h < 2 && begin + strip * 64 + 16 * t < COLUMNS; h++) {
        const size_t at = number(tile, strip, h);
        const float s = BITS == 4 ? wide(scale[at / 64]) : ofRow[h];
        const auto sum2 = [&](u32 both, int n) { return pack(low(both) * s + acc[n][h * 2], high(both) * s + acc[n][h * 2 + 1]); };
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const uint4 e = eight(v[h], half);
          *(uint4*)(Y + at + half * 8) = make_uint4(sum2(e.x, half * 4), sum2(e.y, half * 4 + 1), sum2(e.z, half * 4 + 2), sum2(e.w, half * 4 + 3));
        }
      }
      v[0] = next[0];
      v[1] = next[1];
    }
  }
}
