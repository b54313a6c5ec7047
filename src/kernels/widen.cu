// Y [features][COLUMNS] = W * scale in bfloat16, W in 8 bit: 16 numbers a thread, rounded once.
DEVICE u32 scaled_pair(u32 four, int shift, float scale) {
  return pack((float)(signed char)(four >> shift) * scale, (float)(signed char)(four >> (shift + 8)) * scale);
}
DEVICE uint4 scaled_eight(u32 a, u32 b, float scale) {
  return make_uint4(scaled_pair(a, 0, scale), scaled_pair(a, 16, scale), scaled_pair(b, 0, scale), scaled_pair(b, 16, scale));
}
KERNEL __launch_bounds__(THREADS) widen8(const signed char* W, const u16* scale, u16* Y, int vectors) {
  let_next_start();
  wait_for_previous();  // Y may be what it read or wrote
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < vectors; i += gridDim.x * THREADS) {
    const uint4 v = weights8((const u16*)W + (size_t)i * 8);
    const float s = wide(scale[i / (COLUMNS / 16)]);
    uint4* y = (uint4*)Y + (size_t)i * 2;
    y[0] = scaled_eight(v.x, v.y, s);
    y[1] = scaled_eight(v.z, v.w, s);
  }
}
