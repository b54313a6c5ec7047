#ifdef HEADS
// Queries and keys of patches [rows][3][HEADS][DIM], turned in place; cos, sin: [rows][DIM] float32, both halves alike. Heads have
// 64, 72 or 80 numbers: a thread takes four numbers of each half.
KERNEL __launch_bounds__(THREADS) rotate_patches(u16* qkv, const float* cos, const float* sin) {
  wait_for_previous();
  constexpr int HALF = DIM / 2, FOURS = HALF / 4;
  const size_t row = blockIdx.x;
  for (int j = threadIdx.x; j < 2 * HEADS * FOURS; j += THREADS) {
    const int at = j % FOURS * 4;
    u16* p = qkv + row * QKV + j / FOURS * DIM + at;
    const uint2 a = *(const uint2*)p, b = *(const uint2*)(p + HALF);
    const float4 c = *(const float4*)(cos + row * DIM + at), s = *(const float4*)(sin + row * DIM + at);
    const float x[4] = {low(a.x), high(a.x), low(a.y), high(a.y)}, y[4] = {low(b.x), high(b.x), low(b.y), high(b.y)};
    *(uint2*)p = make_uint2(pack(x[0] * c.x - y[0] * s.x, x[1] * c.y - y[1] * s.y), pack(x[2] * c.z - y[2] * s.z, x[3] * c.w - y[3] * s.w));
    *(uint2*)(p + HALF) =
        make_uint2(pack(y[0] * c.x + x[0] * s.x, y[1] * c.y + x[1] * s.y), pack(y[2] * c.z + x[2] * s.z, y[3] * c.w + x[3] * s.w));
  }
}
#endif

#ifdef WIDTH
// Where a row of a map [B][H][columns] is when the map is in windows of `side` x `side` cells; 0: where it was.
DEVICE size_t window_row(int row, int side, int columns) {
  if (side == 0) return row;
  const int line = row / columns, column = row % columns;
  return (size_t)(line / side * (columns / side) + column / side) * side * side + line % side * side + column % side;
}

// sum = x + y * scale (where given), rounded after each step as ATen's ops do; out = its layer norm, rounded once. y is in windows of `from`
// cells a side, out in windows of `to`. LANES threads have a row in registers.
KERNEL __launch_bounds__(THREADS) normed_sum(const u16* x, const u16* y, const u16* scale, const u16* weight, const u16* bias, float eps,
                                             u16* sum, u16* out, int rows, int columns, int from, int to) {
  constexpr int EACH = (WIDTH / 8 + LANES - 1) / LANES;
  wait_for_previous();
  const int own = (blockIdx.x * THREADS + threadIdx.x) / LANES, row = min(own, rows - 1), first = threadIdx.x % LANES * 8;
  const size_t at = (size_t)row * WIDTH, atY = window_row(row, from, columns) * WIDTH, atOut = window_row(row, to, columns) * WIDTH;
  uint4 a[EACH], b[EACH];
#pragma unroll
  for (int k = 0, i = first; k < EACH; k++, i += LANES * 8) {
    a[k] = i < WIDTH ? fresh8(x + at + i) : make_uint4(0, 0, 0, 0);
    if (y && i < WIDTH) b[k] = fresh8(y + atY + i);
  }
  Eight h[EACH];
  float mean = 0.f, squares = 0.f;
#pragma unroll
  for (int k = 0, i = first; k < EACH; k++, i += LANES * 8) {
    if (y && i < WIDTH) {
      a[k] = sum8(a[k], scale ? scaled8(b[k], 1.f, __ldg((const uint4*)(scale + i))) : b[k]);
      if (own < rows) *(uint4*)(sum + at + i) = a[k];
    }
    h[k] = eight(a[k]);
#pragma unroll
    for (int e = 0; e < 8; e++) mean += h[k].v[e];
  }
  mean = total<LANES>(mean) * (1.f / WIDTH);
#pragma unroll
  for (int k = 0, i = first; k < EACH; k++, i += LANES * 8)
#pragma unroll
    for (int e = 0; e < 8; e++) squares += i < WIDTH ? (h[k].v[e] - mean) * (h[k].v[e] - mean) : 0.f;
  const float spread = rsqrtf(total<LANES>(squares) * (1.f / WIDTH) + eps);
#pragma unroll
  for (int k = 0, i = first; k < EACH; k++, i += LANES * 8) {
    if (own >= rows || i >= WIDTH) return;
    const Eight w = eight(__ldg((const uint4*)(weight + i))), c = eight(__ldg((const uint4*)(bias + i)));
#pragma unroll
    for (int e = 0; e < 8; e++) h[k].v[e] = (h[k].v[e] - mean) * spread * w.v[e] + c.v[e];
    store8(out + atOut + i, h[k]);
  }
}
#endif
