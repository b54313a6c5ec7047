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
