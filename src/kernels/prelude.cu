// What the kernels share. No header is included: NVRTC brings none. Sizes are given on the command line:
// HIDDEN, INNER (feed-forward), HEADS (queries), GROUPS (key/value heads), DIM (of a head).
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define NEGATIVE_INFINITY __int_as_float(0xff800000)

extern __shared__ __align__(16) unsigned char dynamic[];

#ifdef HEADS
constexpr int QKV = (HEADS + 2 * GROUPS) * DIM;
#endif
constexpr int WARPS = 8, THREADS = 256;
constexpr float LOG2E = 1.4426950408889634f;

// bfloat16, two in a word: the lower half comes first in memory
DEVICE float low(u32 v) { return __uint_as_float(v << 16); }
DEVICE float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
DEVICE float wide(u16 v) { return __uint_as_float((u32)v << 16); }
DEVICE u32 pack(float a, float b) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
DEVICE u16 narrow(float a) { return (u16)pack(a, 0.f); }
DEVICE float rounded(float a) { return wide(narrow(a)); }
DEVICE float squares(u32 v) { return low(v) * low(v) + high(v) * high(v); }
DEVICE float squares(uint4 v) { return squares(v.x) + squares(v.y) + squares(v.z) + squares(v.w); }
DEVICE u32 sum2(u32 a, u32 b) { return pack(low(a) + low(b), high(a) + high(b)); }
DEVICE u32 scaled2(u32 a, float s, u32 w) { return pack(low(a) * s * low(w), high(a) * s * high(w)); }
DEVICE uint4 sum8(uint4 a, uint4 b) { return make_uint4(sum2(a.x, b.x), sum2(a.y, b.y), sum2(a.z, b.z), sum2(a.w, b.w)); }
DEVICE uint4 scaled8(uint4 a, float s, uint4 w) {
  return make_uint4(scaled2(a.x, s, w.x), scaled2(a.y, s, w.y), scaled2(a.z, s, w.z), scaled2(a.w, s, w.w));
}
struct Eight {
  float v[8];
};
DEVICE Eight eight(uint4 q) { return {{low(q.x), high(q.x), low(q.y), high(q.y), low(q.z), high(q.z), low(q.w), high(q.w)}}; }
DEVICE Eight load8(const u16* p) { return eight(*(const uint4*)p); }
DEVICE void store8(u16* p, const Eight& e) {
  *(uint4*)p = make_uint4(pack(e.v[0], e.v[1]), pack(e.v[2], e.v[3]), pack(e.v[4], e.v[5]), pack(e.v[6], e.v[7]));
}

// Weights are read once: not kept in L1.
DEVICE uint4 weights8(const u16* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
#ifdef BITS
// 16 neighbours of a row of a quantized matrix, and 8 of them in bfloat16.
#if BITS == 8
typedef uint4 Sixteen;
DEVICE Sixteen sixteen(const unsigned char* p) { return weights8((const u16*)p); }
// Two of four numbers: 128 + the lower seven bits, less 128 or 256 by the sign. No step rounds.
DEVICE u32 two_of(u32 four, u32 which) {
  const u32 v = __byte_perm(four, 0x43, which);
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(v & 0xff80ff80u), "r"(0xbf80bf80u), "r"(v & 0xff7fff7fu));  // sub needs 9.0
  return r;
}
DEVICE uint4 eight(Sixteen v, int half) {
  const u32 a = half ? v.z : v.x, b = half ? v.w : v.y;
  return make_uint4(two_of(a, 0x4140), two_of(a, 0x4342), two_of(b, 0x4140), two_of(b, 0x4342));
}
#else
typedef uint2 Sixteen;
DEVICE Sixteen sixteen(const unsigned char* p) {
  Sixteen v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
// One byte of each of four values of NF4 in bfloat16, looked up in those of the first and of the last eight.
DEVICE u32 bytes_of(u32 which, u32 upper, u32 a, u32 b, u32 c, u32 d) {
  return __byte_perm(__byte_perm(a, b, which), __byte_perm(c, d, which), upper);
}
DEVICE uint2 four(u32 codes) {
  const u32 which = codes & 0x7777, upper = (codes >> 1 & 0x4444) | 0x3210;
  const u32 lower = bytes_of(which, upper, 0xca063280, 0x00ba3d92, 0xad7c25a3, 0x803910e2);
  const u32 higher = bytes_of(which, upper, 0xbebfbfbf, 0x00bdbebe, 0x3e3e3e3d, 0x3f3f3f3e);
  return make_uint2(__byte_perm(lower, higher, 0x4051), __byte_perm(lower, higher, 0x6273));  // a byte's upper half comes first
}
DEVICE uint4 eight(Sixteen v, int half) {
  const u32 codes = half ? v.y : v.x;
  const uint2 a = four(codes), b = four(codes >> 16);
  return make_uint4(a.x, a.y, b.x, b.y);
}
#endif
#endif
// What an earlier kernel wrote comes from L2: an L1 line may be stale.
DEVICE uint4 fresh8(const u16* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// Over so many neighbours of a warp.
template <int COUNT = 32>
DEVICE float total(float v) {
#pragma unroll
  for (int d = COUNT / 2; d > 0; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// A 16 x 16 tile times a 16 x 8 tile. Both sides permute k alike: a thread's 16 bytes are 8 neighbours in k, which serve two products.
DEVICE void product(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
DEVICE void products(float* c, uint4 a, uint4 b, uint4 x) {
  product(c, a.x, b.x, a.y, b.y, x.x, x.y);
  product(c, a.z, b.z, a.w, b.w, x.z, x.w);
}
DEVICE u32 transposed(u32 a) {
  u32 d;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
  return d;
}

#if __CUDA_ARCH__ >= 900
// Overlap of launches: the next kernel may start, and load its weights, while this one runs; it waits before it reads results.
DEVICE void let_next_start() { asm volatile("griddepcontrol.launch_dependents;"); }
DEVICE void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Blocks of a cluster read and write each other's shared memory. A block announces itself as it begins, and `meet_cluster` says that all have begun.
DEVICE void announce() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void meet_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  meet_cluster();
}
DEVICE u32 cluster_rank() {
  u32 r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
DEVICE u32 of_block(const void* p, u32 rank) {
  u32 r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"((u32)__cvta_generic_to_shared(p)), "r"(rank));
  return r;
}
DEVICE float remote(const float* p, u32 rank) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(of_block(p, rank)));
  return v;
}
DEVICE double remote(const double* p, u32 rank) {
  double v;
  asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(v) : "r"(of_block(p, rank)));
  return v;
}
DEVICE float4 remote(const float4* p, u32 rank) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(of_block(p, rank)));
  return v;
}
DEVICE void push(float* p, u32 rank, float v) { asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(of_block(p, rank)), "f"(v) : "memory"); }
DEVICE void push(float2* p, u32 rank, float2 v) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1,%2};" ::"r"(of_block(p, rank)), "f"(v.x), "f"(v.y) : "memory");
}
DEVICE void push(float4* p, u32 rank, float4 v) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(of_block(p, rank)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
#else
// Before 9.0 a launch waits for the one before it, and there are no clusters: a block is alone.
DEVICE void let_next_start() {}
DEVICE void wait_for_previous() {}
DEVICE void announce() {}
DEVICE void meet_cluster() {}
DEVICE void cluster_sync() { __syncthreads(); }
DEVICE u32 cluster_rank() { return 0; }
template <class T> DEVICE T remote(const T* p, u32) { return *p; }
template <class T> DEVICE void push(T* p, u32, T v) { *p = v; }
#endif
DEVICE void add(float4& s, float4 v) { s.x += v.x; s.y += v.y; s.z += v.z; s.w += v.w; }
DEVICE void add_scaled(float4& s, float f, float4 v) { s.x += f * v.x; s.y += f * v.y; s.z += f * v.z; s.w += f * v.w; }
