// Y [features][COLUMNS] = W * scale + F A^T in bfloat16, rounded once: W in BITS bit, F [features][EXTRA], A [COLUMNS][parts * EXTRA]; EXTRA a
// multiple of 16, or 0. Features from `second` and from `third` on are the next parts. A block has STRIPS times 64 columns of a part of A in
// shared memory, its warps take tiles of 16 features in turns. A lane has 16 neighbours of two features, so that column 16 t + 2 n + e is
// column 2 t + e of the n-th product.
constexpr int STEP = EXTRA | 16;  // elements between two columns of A: lanes meet different banks
KERNEL __launch_bounds__(THREADS, 2)
    widen(const unsigned char* W, const u16* scale, u16* Y, int features, const u16* F, const u16* A, int parts, int second, int third) {
  u16* strips = (u16*)dynamic;  // [STRIPS][64][STEP]
  let_next_start();
  wait_for_previous();  // Y may be what it read or wrote
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, begin = blockIdx.x * STRIPS * 64;
  const int part = blockIdx.y % parts, from = part == 0 ? 0 : part == 1 ? second : third, to = min(part == 0 ? second : part == 1 ? third : features, features);
  const int first = from + (blockIdx.y / parts * WARPS + w) * 16, step = gridDim.y / parts * WARPS * 16;
  if (first - w * 16 >= to) return;
#pragma unroll 8
  for (int i = threadIdx.x; i < STRIPS * 64 * (EXTRA / 8); i += THREADS) {
    const int c = i / (EXTRA / 8), k = i % (EXTRA / 8) * 8, place = (c & ~63) + (c >> 1 & 7) * 8 + (c >> 4 & 3) * 2 + (c & 1);
    *(uint4*)(strips + place * STEP + k) = begin + c < COLUMNS ? fresh8(A + ((size_t)(begin + c) * parts + part) * EXTRA + k) : make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  for (int tile = first; tile < to; tile += step) {
    const int rows[2] = {min(tile + g, to - 1), min(tile + 8 + g, to - 1)};
    uint2 f[EXTRA / 16 + 1][2];
#pragma unroll
    for (int i = 0; i < EXTRA / 8; i++) f[i / 2][i % 2] = *(const uint2*)(F + (size_t)rows[i % 2] * EXTRA + i / 2 * 16 + 4 * t);
#pragma unroll 1
    for (int strip = 0; strip < STRIPS && begin + strip * 64 < COLUMNS; strip++) {
      const int column = begin + strip * 64 + 16 * t;
      const auto number = [&](int h) { return (size_t)rows[h] * COLUMNS + min(column, COLUMNS - 16); };
      const Sixteen v[2] = {sixteen(W + number(0) / 8 * BITS), sixteen(W + number(1) / 8 * BITS)};
      float acc[8][4] = {};
#pragma unroll
      for (int i = 0; i < EXTRA / 2; i++) {
        const uint2 *p = f[i / 8], a = *(const uint2*)(strips + (strip * 64 + i % 8 * 8 + g) * STEP + i / 8 * 16 + 4 * t);
        product(acc[i % 8], p[0].x, p[1].x, p[0].y, p[1].y, a.x, a.y);
      }
#pragma unroll
      for (int h = 0; h < 2 && column < COLUMNS; h++) {
        const size_t at = number(h);
        const float s = wide(scale[BITS == 4 ? at / 64 : rows[h]]);
        const auto sum2 = [&](u32 both, int n) { return pack(low(both) * s + acc[n][h * 2], high(both) * s + acc[n][h * 2 + 1]); };
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const uint4 e = eight(v[h], half);
          *(uint4*)(Y + at + half * 8) = make_uint4(sum2(e.x, half * 4), sum2(e.y, half * 4 + 1), sum2(e.z, half * 4 + 2), sum2(e.w, half * 4 + 3));
        }
      }
    }
  }
}
