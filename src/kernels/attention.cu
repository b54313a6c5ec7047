// Attention of one new token a row. SHARE samples of a prompt are one unit: they read its keys together. Each query head has one of 8 places
// of its key/value head; places without a head stay zero. PIECES blocks share the columns of a unit and key/value head, the READERS warps
// of a block its tiles of 16 columns; partial results are joined by their maxima, in a fixed order.
// A unit without a prompt (-1) has rows that nobody waits for: what it has is left as it is.
// Keys and values of prompts: [prompt][GROUPS][room][DIM]; of new tokens: [row][GROUPS][ownRoom][DIM].
constexpr int SERVED = HEADS / GROUPS, PLACES = SHARE * 8, SLABS = (PLACES + 15) / 16, SPAN = SLABS * 16;
constexpr int BLOCK = READERS * 32, ROUNDS = (SPAN + READERS - 1) / READERS;
constexpr int PARTS = DIM / 32, STEP = DIM + 32;  // elements between two queries in shared memory

struct Inputs {
  const u16* qkv;
  u16* out;
  const u16 *promptKeys, *promptValues;
  u16 *ownKeys, *ownValues;
  const int *promptOf, *promptLength, *clock, *position;
  const float2* turns;  // cosine and sine, [position][DIM / 2]
  const u16 *queryNorm, *keyNorm;
  float eps;
  int room, ownRoom;
};

// A head as a warp holds it (element lane + 32 i), normed where the model does, turned to its position. Rounded where ATen's ops round.
DEVICE void load_head(float* v, const u16* from, const u16* norm, float eps, const float2* turns, int lane) {
#pragma unroll
  for (int i = 0; i < PARTS; i++) v[i] = wide(__ldcg(from + lane + 32 * i));
  if (norm) {
    float s = 0.f;
#pragma unroll
    for (int i = 0; i < PARTS; i++) s += v[i] * v[i];
    s = rsqrtf(total(s) * (1.f / DIM) + eps);
#pragma unroll
    for (int i = 0; i < PARTS; i++) v[i] = rounded(v[i] * s * wide(norm[lane + 32 * i]));
  }
#pragma unroll
  for (int i = 0; i < PARTS / 2; i++) {
    const float2 turn = turns[lane + 32 * i];
    const float a = v[i], b = v[i + PARTS / 2];
    v[i] = rounded(a * turn.x) - rounded(b * turn.y);
    v[i + PARTS / 2] = rounded(b * turn.x) + rounded(a * turn.y);
  }
}
DEVICE void store_head(u16* to, const float* v, int lane) {
#pragma unroll
  for (int i = 0; i < PARTS; i++) to[lane + 32 * i] = narrow(v[i]);
}

// What a warp has seen of its queries: running maxima, sums and weighted values.
struct Seen {
  float o[SLABS][PARTS][4][4], m0[SLABS], m1[SLABS], l0[SLABS], l1[SLABS];
};

DEVICE void load_tile(uint4 (*to)[PARTS], const u16* base, int first, int last, int g, int t) {
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const size_t at = (size_t)min(first + j * 8 + g, last - 1) * DIM + 8 * t;
#pragma unroll
    for (int q = 0; q < PARTS; q++) to[j][q] = fresh8(base + at + q * 32);
  }
}
DEVICE u32 word(uint4 v, int j) { return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w; }

// One slab of queries against a tile of keys; gives the weights of the tile, and scales down what was seen before.
DEVICE void weigh(Seen& seen, int slab, const u16* queries, uint4 (*keys)[PARTS], int first, int last, bool upper, bool lower, u32* weights, int g, int t) {
  const float scale = rsqrtf((float)DIM) * LOG2E;
  float s[2][4];
#pragma unroll
  for (int j = 0; j < 2; j++) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.f;
#pragma unroll
  for (int q = 0; q < PARTS; q++) {
    const uint4 a = *(const uint4*)(queries + (slab * 16 + g) * STEP + q * 32 + 8 * t), b = *(const uint4*)(queries + (slab * 16 + 8 + g) * STEP + q * 32 + 8 * t);
#pragma unroll
    for (int j = 0; j < 2; j++) products(s[j], a, b, keys[j][q]);
  }
#pragma unroll
  for (int j = 0; j < 2; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const bool inside = first + j * 8 + 2 * t + e < last;
      s[j][e] = inside && upper ? s[j][e] * scale : NEGATIVE_INFINITY;
      s[j][2 + e] = inside && lower ? s[j][2 + e] * scale : NEGATIVE_INFINITY;
    }
  float n0 = fmaxf(fmaxf(s[0][0], s[0][1]), fmaxf(s[1][0], s[1][1])), n1 = fmaxf(fmaxf(s[0][2], s[0][3]), fmaxf(s[1][2], s[1][3]));
#pragma unroll
  for (int d = 1; d < 4; d <<= 1) { n0 = fmaxf(n0, __shfl_xor_sync(~0u, n0, d)); n1 = fmaxf(n1, __shfl_xor_sync(~0u, n1, d)); }
  n0 = fmaxf(n0, seen.m0[slab]);
  n1 = fmaxf(n1, seen.m1[slab]);
  const float z0 = n0 == NEGATIVE_INFINITY ? 0.f : n0, z1 = n1 == NEGATIVE_INFINITY ? 0.f : n1;
  const float f0 = exp2f(seen.m0[slab] - z0), f1 = exp2f(seen.m1[slab] - z1);
  const bool same = seen.m0[slab] == n0 && seen.m1[slab] == n1;
  seen.m0[slab] = n0;
  seen.m1[slab] = n1;
  float e[2][4];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    e[j][0] = exp2f(s[j][0] - z0); e[j][1] = exp2f(s[j][1] - z0); e[j][2] = exp2f(s[j][2] - z1); e[j][3] = exp2f(s[j][3] - z1);
  }
  seen.l0[slab] = seen.l0[slab] * f0 + e[0][0] + e[0][1] + e[1][0] + e[1][1];
  seen.l1[slab] = seen.l1[slab] * f1 + e[0][2] + e[0][3] + e[1][2] + e[1][3];
  weights[0] = pack(e[0][0], e[0][1]); weights[1] = pack(e[0][2], e[0][3]); weights[2] = pack(e[1][0], e[1][1]); weights[3] = pack(e[1][2], e[1][3]);
  if (__all_sync(~0u, same)) return;
#pragma unroll
  for (int q = 0; q < PARTS; q++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float* o = seen.o[slab][q][j];
      o[0] *= f0; o[1] *= f0; o[2] *= f1; o[3] *= f1;
    }
}

// Sum and maximum of up to MOST pieces: (m, l, v) each, `at(k)` gives piece k. All are loaded before the first is used.
struct Joined {
  float m = NEGATIVE_INFINITY, l = 0.f;
  float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
};
template <int MOST, class F>
DEVICE Joined joined(int count, const F& at) {
  Joined pieces[MOST], all;
#pragma unroll
  for (int k = 0; k < MOST; k++) if (k < count) pieces[k] = at(k);
#pragma unroll
  for (int k = 0; k < MOST; k++) all.m = fmaxf(all.m, pieces[k].m);
  const float z = all.m == NEGATIVE_INFINITY ? 0.f : all.m;
#pragma unroll
  for (int k = 0; k < MOST; k++) {
    const float f = exp2f(pieces[k].m - z);
    all.l += f * pieces[k].l;
    add_scaled(all.v, f, pieces[k].v);
  }
  return all;
}
DEVICE void put_result(u16* out, int unit, int group, int place, int column, const Joined& all) {
  if ((place & 7) >= SERVED) return;
  const float f = 1.f / all.l;
  u16* to = out + (size_t)(unit * SHARE + (place >> 3)) * HEADS * DIM + (group * SERVED + (place & 7)) * DIM + column;
  *(uint2*)to = make_uint2(pack(all.v.x * f, all.v.y * f), pack(all.v.z * f, all.v.w * f));
}

// TOGETHER: the pieces are a cluster and join here; else they leave (m, l) and values in memory, and the last to arrive joins them.
template <bool TOGETHER>
DEVICE void attend(const Inputs& in, float* partial, float* partialMl, int* arrived) {
  float* values = (float*)dynamic;                // [READERS][SPAN][DIM]
  float* ml = values + READERS * SPAN * DIM;      // [READERS][SPAN][2]
  constexpr int ITEMS = PLACES * (DIM / 4);       // 4 columns each
  float4* blockValues = (float4*)(ml + READERS * SPAN * 2);  // the block's share of the items, by all pieces
  float2* blockMl = (float2*)(blockValues + ITEMS + 8);
  u16* queries = (u16*)(blockMl + ITEMS + 8);     // [SPAN][STEP]
  let_next_start();
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int pieces = gridDim.x, piece = blockIdx.x, group = blockIdx.y % GROUPS, unit = blockIdx.y / GROUPS;
  const int each = pieces / SHARE, sample = piece / each, ownPiece = piece % each;  // own tokens: blocks of the sample share them
  const int prompt = in.promptOf[unit];
  if (prompt < 0) {  // all blocks of a cluster leave
    if (unit == 0) wait_for_previous();  // this kernel does not end before the one it follows, whatever is open
    return;
  }
  if (TOGETHER) announce();
  const int length = in.promptLength[prompt];
  const size_t promptAt = (size_t)(prompt * GROUPS + group) * in.room * DIM;
  const u16 *pk = in.promptKeys + promptAt, *pv = in.promptValues + promptAt;
  const int tiles = (length + 15) >> 4, end = tiles * (piece + 1) / pieces;
  uint4 keys[2][PARTS], vals[2][PARTS];
  int tile = tiles * piece / pieces + w;
  if (tile < end) { load_tile(keys, pk, tile * 16, length, g, t); load_tile(vals, pv, tile * 16, length, g, t); }  // prompts do not change
  wait_for_previous();
  const int T = in.clock[0];
  float heads[ROUNDS][PARTS] = {}, head[PARTS];
#pragma unroll
  for (int k = 0; k < ROUNDS; k++) {  // place i: row i / 8 of the unit, head i % 8 of the group
    const int i = k * READERS + w, h = i & 7, r = unit * SHARE + (i >> 3);
    if (i < PLACES && h < SERVED) load_head(heads[k], in.qkv + (size_t)r * QKV + (group * SERVED + h) * DIM, in.queryNorm, in.eps, in.turns + (size_t)(in.position[r] + T) * (DIM / 2), lane);
  }
#pragma unroll
  for (int k = 0; k < ROUNDS; k++) if (k * READERS + w < SPAN) store_head(queries + (k * READERS + w) * STEP, heads[k], lane);
  const int row = unit * SHARE + sample;
  const size_t ownAt = (size_t)(row * GROUPS + group) * in.ownRoom * DIM;
  u16 *ok = in.ownKeys + ownAt, *ov = in.ownValues + ownAt;
  if (ownPiece == each - 1) {  // this block also reads the last tile
    const u16* from = in.qkv + (size_t)row * QKV + (HEADS + group) * DIM;
    if (w == READERS - 1) {
      load_head(head, from, in.keyNorm, in.eps, in.turns + (size_t)(in.position[row] + T) * (DIM / 2), lane);
      store_head(ok + (size_t)T * DIM, head, lane);
    }
    if (w == READERS - 2)
      for (int i = lane; i < DIM; i += 32) ov[(size_t)T * DIM + i] = __ldcg(from + GROUPS * DIM + i);
    __threadfence_block();
  }
  __syncthreads();
  Seen seen;
#pragma unroll
  for (int s = 0; s < SLABS; s++) {
    seen.m0[s] = seen.m1[s] = NEGATIVE_INFINITY;
    seen.l0[s] = seen.l1[s] = 0.f;
#pragma unroll
    for (int q = 0; q < PARTS; q++)
#pragma unroll
      for (int j = 0; j < 4; j++) seen.o[s][q][j][0] = seen.o[s][q][j][1] = seen.o[s][q][j][2] = seen.o[s][q][j][3] = 0.f;
  }
  // `only`: the slab whose queries see the tile; -1: all. The next tile is loaded as soon as registers are free.
  const auto consume = [&](int first, int last, int only, bool upper, bool lower, bool more, const u16* nextKeys, const u16* nextValues, int next, int nextLast) {
    u32 weights[SLABS][4];
#pragma unroll
    for (int s = 0; s < SLABS; s++)
      if (only < 0 || only == s) weigh(seen, s, queries, keys, first, last, upper, lower, weights[s], g, t);
    if (more) load_tile(keys, nextKeys, next, nextLast, g, t);
#pragma unroll
    for (int q = 0; q < PARTS; q++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const u32 b0 = transposed(word(vals[0][q], j)), b1 = transposed(word(vals[1][q], j));
#pragma unroll
        for (int s = 0; s < SLABS; s++)
          if (only < 0 || only == s) product(seen.o[s][q][j], weights[s][0], weights[s][1], weights[s][2], weights[s][3], b0, b1);
      }
    if (more) load_tile(vals, nextValues, next, nextLast, g, t);
  };
  const int ownTiles = (T + 16) >> 4, ownEnd = ownTiles * (ownPiece + 1) / each;
  const bool upper = (sample & 1) == 0, lower = !upper;
  int own = ownTiles * ownPiece / each + READERS - 1 - w;  // warps that may have fewer tiles of the prompt come first
  if (tile >= end && own < ownEnd) { load_tile(keys, ok, own * 16, T + 1, g, t); load_tile(vals, ov, own * 16, T + 1, g, t); }
  for (; tile < end; tile += READERS) {
    const bool most = tile + READERS < end;
    consume(tile * 16, length, -1, true, true, most || own < ownEnd, most ? pk : ok, most ? pv : ov, (most ? tile + READERS : own) * 16, most ? length : T + 1);
  }
  for (; own < ownEnd; own += READERS) consume(own * 16, T + 1, sample / 2, upper, lower, own + READERS < ownEnd, ok, ov, (own + READERS) * 16, T + 1);
#pragma unroll
  for (int s = 0; s < SLABS; s++) {
    float a0 = seen.l0[s], a1 = seen.l1[s];
#pragma unroll
    for (int d = 1; d < 4; d <<= 1) { a0 += __shfl_xor_sync(~0u, a0, d); a1 += __shfl_xor_sync(~0u, a1, d); }
    const int at = w * SPAN + s * 16 + g;
#pragma unroll
    for (int q = 0; q < PARTS; q++) {
      float (*o)[4] = seen.o[s][q];
      float *a = values + at * DIM + q * 32 + 8 * t, *b = a + 8 * DIM;
      *(float4*)a = make_float4(o[0][0], o[0][1], o[1][0], o[1][1]);
      *(float4*)(a + 4) = make_float4(o[2][0], o[2][1], o[3][0], o[3][1]);
      *(float4*)b = make_float4(o[0][2], o[0][3], o[1][2], o[1][3]);
      *(float4*)(b + 4) = make_float4(o[2][2], o[2][3], o[3][2], o[3][3]);
    }
    if (t == 0) {
      ml[at * 2] = seen.m0[s]; ml[at * 2 + 1] = a0;
      ml[(at + 8) * 2] = seen.m1[s]; ml[(at + 8) * 2 + 1] = a1;
    }
  }
  __syncthreads();
  if (TOGETHER) meet_cluster();
  const int mine = (ITEMS + pieces - 1) / pieces;
  for (int i = threadIdx.x; i < ITEMS; i += BLOCK) {
    const int place = i / (DIM / 4), column = i % (DIM / 4) * 4;
    const Joined all = joined<READERS>(READERS, [&](int k) {
      const int at = k * SPAN + place;
      return Joined{ml[at * 2], ml[at * 2 + 1], *(const float4*)(values + at * DIM + column)};
    });
    if (TOGETHER) {
      push(blockValues + piece * mine + i % mine, i / mine, all.v);
      push(blockMl + piece * mine + i % mine, i / mine, make_float2(all.m, all.l));
      continue;
    }
    const size_t at = (size_t)(blockIdx.y * pieces + piece) * PLACES + place;
    *(float4*)(partial + at * DIM + column) = all.v;
    if (column == 0) *(float2*)(partialMl + at * 2) = make_float2(all.m, all.l);
  }
  if (!TOGETHER) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(arrived + blockIdx.y, 1) == pieces - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (int i = threadIdx.x; i < ITEMS; i += BLOCK) {
      const int place = i / (DIM / 4), column = i % (DIM / 4) * 4;
      put_result(in.out, unit, group, place, column, joined<8>(pieces, [&](int k) {
        const size_t at = (size_t)(blockIdx.y * pieces + k) * PLACES + place;
        const float2 ml = __ldcg((const float2*)(partialMl + at * 2));
        return Joined{ml.x, ml.y, __ldcg((const float4*)(partial + at * DIM + column))};
      }));
    }
    if (threadIdx.x == 0) arrived[blockIdx.y] = 0;
    return;
  }
  cluster_sync();
  for (int j = threadIdx.x; j < mine; j += BLOCK) {
    const int i = piece * mine + j;
    if (i >= ITEMS) break;
    put_result(in.out, unit, group, i / (DIM / 4), i % (DIM / 4) * 4, joined<8>(pieces, [&](int k) {
      const float2 ml = blockMl[k * mine + j];
      return Joined{ml.x, ml.y, blockValues[k * mine + j]};
    }));
  }
}

#define ATTENTION(name, together)                                                                                                          \
  KERNEL __launch_bounds__(BLOCK, 1) name(const u16* qkv, u16* out, const u16* promptKeys, const u16* promptValues, u16* ownKeys,          \
                                            u16* ownValues, const int* promptOf, const int* promptLength, const int* clock,               \
                                            const int* position, const float2* turns, const u16* queryNorm, const u16* keyNorm, float eps, \
                                            int room, int ownRoom, float* partial, float* partialMl, int* arrived) {                      \
    attend<together>({qkv, out, promptKeys, promptValues, ownKeys, ownValues, promptOf, promptLength, clock, position, turns, queryNorm,   \
                      keyNorm, eps, room, ownRoom},                                                                                        \
                     partial, partialMl, arrived);                                                                                         \
  }
ATTENTION(attention_whole, true)
ATTENTION(attention_pieces, false)
