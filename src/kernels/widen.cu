// Y [features][COLUMNS] = W * scale in bfloat16, W in BITS bit: 16 numbers a thread, rounded once.
DEVICE u32 scaled2(u32 v, float s) { return pack(low(v) * s, high(v) * s); }
KERNEL __launch_bounds__(THREADS) widen(const unsigned char* W, const u16* scale, u16* Y, int vectors) {
  let_next_start();
  wait_for_previous();  // Y may be what it read or wrote
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < vectors; i += gridDim.x * THREADS) {
    const Sixteen v = sixteen(W + (size_t)i * 2 * BITS);
    const float s = wide(scale[i / (BITS == 4 ? 4 : COLUMNS / 16)]);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint4 e = eight(v, half);
      ((uint4*)Y)[(size_t)i * 2 + half] = make_uint4(scaled2(e.x, s), scaled2(e.y, s), scaled2(e.z, s), scaled2(e.w, s));
    }
  }
}
