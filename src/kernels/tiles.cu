// The feed-forward part of up to 64 rows: tiles of 64 columns come by the tensor copy engine (TMA), up to STAGES of them ahead, and are
// multiplied by wgmma. Weights are asked for before the kernel waits for its input. One warp copies, four multiply.
struct __align__(64) TileMap {
  unsigned char bytes[128];
};
constexpr int TILED = 160, COLUMNS = 64, ROWS_BYTES = 64 * COLUMNS * 2;

DEVICE u32 at_shared(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void barrier_init(u64* b, int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at_shared(b)), "r"(count) : "memory"); }
DEVICE void barrier_expect(u64* b, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at_shared(b)), "r"(bytes) : "memory"); }
DEVICE void barrier_arrive(u64* b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at_shared(b)) : "memory"); }
DEVICE void barrier_wait(u64* b, int phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(at_shared(b)), "r"(phase)
      : "memory");
}
// 64 columns of the rows of a tile, each row 128 bytes, in the order wgmma wants (128-byte swizzle). What is outside the matrix is 0.
DEVICE void load_tile(u32 to, const TileMap& map, int column, int row, u64* b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map),
               "r"(column), "r"(row), "r"(at_shared(b))
               : "memory");
}
DEVICE u64 tile_at(u32 address) { return (u64)(address >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62; }

// Sums of the products of all rows of X with COUNT tiles of N rows of W, tile i from row_of(i) on, over `count` times 64 columns from `first`.
// done(d): d[i][4 j + e] is the sum of row g (e < 2) or g + 8 of the warp's 16 and feature 8 j + 2 t + (e & 1) of tile i.
template <int COUNT, int N, int STAGES, class Row, class Done>
DEVICE void tiles(const TileMap& W, const TileMap& X, int first, int count, const Row& row_of, const Done& done) {
  constexpr int TILE = N * COLUMNS * 2, STAGE = ROWS_BYTES + COUNT * TILE;
  __shared__ u64 full[STAGES], empty[STAGES];
  const u32 base = (at_shared(dynamic) + 1023) & ~1023;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(full + s, 1);
      barrier_init(empty + s, 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  let_next_start();
  if (threadIdx.x >= 128) {
    if (threadIdx.x > 128) return;
    const auto load_weights = [&](int k, int s) {
      barrier_expect(full + s, STAGE);
#pragma unroll
      for (int i = 0; i < COUNT; i++) load_tile(base + s * STAGE + ROWS_BYTES + i * TILE, W, (first + k) * COLUMNS, row_of(i), full + s);
    };
    const auto load_rows = [&](int k, int s) { load_tile(base + s * STAGE, X, (first + k) * COLUMNS, 0, full + s); };
    const int ahead = min(count, STAGES);
    for (int k = 0; k < ahead; k++) load_weights(k, k);
    wait_for_previous();
    for (int k = 0; k < ahead; k++) load_rows(k, k);
    for (int k = STAGES, s = 0, phase = 0; k < count; k++) {
      barrier_wait(empty + s, phase);
      load_weights(k, s);
      load_rows(k, s);
      if (++s == STAGES) { s = 0; phase ^= 1; }
    }
    return;
  }
  float d[COUNT][N / 2];
#pragma unroll
  for (int i = 0; i < COUNT; i++)
#pragma unroll
    for (int j = 0; j < N / 2; j++) d[i][j] = 0.f;
  for (int k = 0, s = 0, phase = 0; k < count; k++) {
    barrier_wait(full + s, phase);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    const u64 rows = tile_at(base + s * STAGE), weights = tile_at(base + s * STAGE + ROWS_BYTES);
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int i = 0; i < COUNT; i++) Tile<N>::product(d[i], rows + 2 * j, weights + i * (TILE / 16) + 2 * j);
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    if ((threadIdx.x & 31) == 0) barrier_arrive(empty + s);
    if (++s == STAGES) { s = 0; phase ^= 1; }
  }
  wait_for_previous();  // it may still read what is written now
  done(d);
}

// y = silu(gate) * up of x, W [2 INNER, HIDDEN]: a block GATES features of each.
KERNEL __launch_bounds__(TILED, 1) gate_up_tiles(const __grid_constant__ TileMap W, const __grid_constant__ TileMap X, u16* Y, int rows) {
  const int from = blockIdx.x * GATES;
  tiles<2, GATES, GATE_STAGES>(
      W, X, 0, (HIDDEN + COLUMNS - 1) / COLUMNS, [&](int i) { return from + i * INNER; },
      [&](const float(*d)[GATES / 2]) {
        const int lane = threadIdx.x & 31, t = lane & 3, row = (threadIdx.x >> 5) * 16 + (lane >> 2);
#pragma unroll
        for (int j = 0; j < GATES / 8; j++)
#pragma unroll
          for (int e = 0; e < 4; e += 2) {
            const int r = row + 4 * e, f = from + 8 * j + 2 * t;
            if (r < rows && f < INNER) *(u32*)(Y + (size_t)r * INNER + f) = gated2(pack(d[0][4 * j + e], d[0][4 * j + e + 1]), pack(d[1][4 * j + e], d[1][4 * j + e + 1]));
          }
      });
}

// Sums of W x over parts of the columns, W [HIDDEN, INNER]: Y [parts][rows][HIDDEN] in float32. A block 64 features of a part.
KERNEL __launch_bounds__(TILED, 1) down_tiles(const __grid_constant__ TileMap W, const __grid_constant__ TileMap X, float* Y, int rows) {
  constexpr int TILES = (HIDDEN + 63) / 64, CHUNKS = (INNER + COLUMNS - 1) / COLUMNS;
  const int from = blockIdx.x % TILES * 64, part = blockIdx.x / TILES, parts = gridDim.x / TILES, first = CHUNKS * part / parts;
  tiles<1, 64, DOWN_STAGES>(
      W, X, first, CHUNKS * (part + 1) / parts - first, [&](int) { return from; },
      [&](const float(*d)[32]) {
        const int lane = threadIdx.x & 31, t = lane & 3, row = (threadIdx.x >> 5) * 16 + (lane >> 2);
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
          for (int e = 0; e < 4; e += 2) {
            const int r = row + 4 * e, f = from + 8 * j + 2 * t;
            if (r < rows && f < HIDDEN) *(float2*)(Y + ((size_t)part * rows + r) * HIDDEN + f) = make_float2(d[0][4 * j + e], d[0][4 * j + e + 1]);
          }
      });
}
