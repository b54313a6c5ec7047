// Element-wise parts of a layer in a training pass, and their derivatives. A block works on one row unless said otherwise; `ld` are
// elements from row to row. Sums are in float32, in the same order every time.
typedef long long i64;

// Sum of a value over the block, the same in every thread. All threads call it.
DEVICE float block_total(float v) {
  __shared__ float sums[32];
  v = total(v);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = v;
  __syncthreads();
  float all = 0.f;
  for (int k = 0; k < blockDim.x / 32; k++) all += sums[k];
  return all;
}
DEVICE float block_most(float v) {
  __shared__ float most[32];
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
  __syncthreads();
  if ((threadIdx.x & 31) == 0) most[threadIdx.x >> 5] = v;
  __syncthreads();
  float all = most[0];
  for (int k = 1; k < blockDim.x / 32; k++) all = fmaxf(all, most[k]);
  return all;
}

// sum = x + y (if y is given), out = sum / rms(sum) * weight
KERNEL __launch_bounds__(1024) sum_norm(const u16* x, const u16* y, int ldy, const u16* weight, float eps, u16* sum, u16* out) {
  wait_for_previous();
  const size_t row = blockIdx.x;
  const int i = threadIdx.x * 8;
  const bool inside = i < HIDDEN;
  Eight a = {{0, 0, 0, 0, 0, 0, 0, 0}};
  if (inside) {
    a = load8(x + row * HIDDEN + i);
    if (y) {
      const Eight b = load8(y + row * ldy + i);
#pragma unroll
      for (int k = 0; k < 8; k++) a.v[k] = rounded(a.v[k] + b.v[k]);
      store8(sum + row * HIDDEN + i, a);
    }
  }
  float part = 0.f;
#pragma unroll
  for (int k = 0; k < 8; k++) part += a.v[k] * a.v[k];
  const float scale = rsqrtf(block_total(part) * (1.f / HIDDEN) + eps);
  if (!inside) return;
  const Eight w = load8(weight + i);
#pragma unroll
  for (int k = 0; k < 8; k++) a.v[k] = rounded(a.v[k] * scale) * w.v[k];
  store8(out + row * HIDDEN + i, a);
}

// out = residual + d/dx of the norm of x
KERNEL __launch_bounds__(1024)
    norm_back(const u16* grad, const u16* x, const u16* weight, float eps, const u16* residual, int ldr, u16* out, int ldo) {
  wait_for_previous();
  const size_t row = blockIdx.x;
  const int i = threadIdx.x * 8;
  const bool inside = i < HIDDEN;
  Eight a = {{0, 0, 0, 0, 0, 0, 0, 0}}, g = a;
  float squares = 0.f, along = 0.f;
  if (inside) {
    a = load8(x + row * HIDDEN + i);
    g = load8(grad + row * HIDDEN + i);
    const Eight w = load8(weight + i);
#pragma unroll
    for (int k = 0; k < 8; k++) {
      g.v[k] *= w.v[k];
      squares += a.v[k] * a.v[k];
      along += a.v[k] * g.v[k];
    }
  }
  const float scale = rsqrtf(block_total(squares) * (1.f / HIDDEN) + eps);
  along = block_total(along) * scale * scale * (1.f / HIDDEN);
  if (!inside) return;
  Eight r = load8(residual + row * ldr + i);
#pragma unroll
  for (int k = 0; k < 8; k++) r.v[k] += scale * (g.v[k] - a.v[k] * along);
  store8(out + row * ldo + i, r);
}

// Two halves of a head turned against each other, `sign` -1 back. cos, sin: [rows][DIM] bfloat16, both halves alike.
DEVICE void turn8(Eight& a, Eight& b, const u16* cos, const u16* sin, float sign) {
  const Eight c = load8(cos), s = load8(sin);
#pragma unroll
  for (int k = 0; k < 8; k++) {
    const float x = a.v[k], y = b.v[k], t = sign * s.v[k];
    a.v[k] = x * c.v[k] - y * t;
    b.v[k] = y * c.v[k] + x * t;
  }
}
constexpr int HALF = DIM / 2, EIGHTS = HALF / 8;

// Queries and keys of a row, in place.
KERNEL __launch_bounds__(THREADS) rotate(u16* qkv, int ld, const u16* cos, const u16* sin) {
  wait_for_previous();
  const size_t row = blockIdx.x;
  for (int j = threadIdx.x; j < (HEADS + GROUPS) * EIGHTS; j += THREADS) {
    const int at = j % EIGHTS * 8;
    u16* p = qkv + row * ld + j / EIGHTS * DIM + at;
    Eight a = load8(p), b = load8(p + HALF);
    turn8(a, b, cos + row * DIM + at, sin + row * DIM + at, 1.f);
    store8(p, a);
    store8(p + HALF, b);
  }
}

DEVICE void add8(Eight& a, const u16* p) {
  const Eight b = load8(p);
#pragma unroll
  for (int k = 0; k < 8; k++) a.v[k] += b.v[k];
}

// Gradients of heads, [rows][heads][DIM] each, turned back and put side by side: [rows][ld]. Rows from `split` on have separate
// gradients, which count from there. The second ones, if given, are added.
KERNEL __launch_bounds__(THREADS)
    rotate_back(const u16* dq, const u16* dq2, const u16* dk, const u16* dk2, const u16* dv, const u16* dv2, int split, const u16* eq, const u16* eq2,
                const u16* ek, const u16* ek2, const u16* ev, const u16* ev2, u16* out, int ld, const u16* cos, const u16* sin) {
  wait_for_previous();
  const size_t row = blockIdx.x;
  const bool behind = blockIdx.x >= split;
  const size_t own = behind ? row - split : row;
  for (int j = threadIdx.x; j < (HEADS + 2 * GROUPS) * EIGHTS; j += THREADS) {
    const int head = j / EIGHTS, at = j % EIGHTS * 8;
    const bool query = head < HEADS, key = !query && head < HEADS + GROUPS;
    const size_t from = query ? (own * HEADS + head) * DIM + at : (own * GROUPS + head - HEADS - (key ? 0 : GROUPS)) * DIM + at;
    const u16* one = (query ? (behind ? eq : dq) : key ? (behind ? ek : dk) : (behind ? ev : dv)) + from;
    const u16* two = query ? (behind ? eq2 : dq2) : key ? (behind ? ek2 : dk2) : (behind ? ev2 : dv2);
    Eight a = load8(one), b = load8(one + HALF);
    if (two) {
      add8(a, two + from);
      add8(b, two + from + HALF);
    }
    if (query || key) turn8(a, b, cos + row * DIM + at, sin + row * DIM + at, -1.f);
    u16* p = out + row * ld + head * DIM + at;
    store8(p, a);
    store8(p + HALF, b);
  }
}

// Rows of [ld]: gate, up -> silu(gate) up
KERNEL __launch_bounds__(THREADS) gated_rows(const u16* both, int ld, u16* out) {
  wait_for_previous();
  const size_t row = blockIdx.x;
  for (int i = threadIdx.x * 8; i < INNER; i += THREADS * 8) {
    Eight g = load8(both + row * ld + i);
    const Eight u = load8(both + row * ld + INNER + i);
#pragma unroll
    for (int k = 0; k < 8; k++) g.v[k] = rounded(g.v[k] / (1.f + __expf(-g.v[k]))) * u.v[k];
    store8(out + row * INNER + i, g);
  }
}

// Gradient of silu(gate) up -> that of gate and up in their place, and the activation once more in its own
KERNEL __launch_bounds__(THREADS) gated_back(u16* grad, u16* both, int ld) {
  wait_for_previous();
  const size_t row = blockIdx.x;
  for (int i = threadIdx.x * 8; i < INNER; i += THREADS * 8) {
    const Eight g = load8(both + row * ld + i), u = load8(both + row * ld + INNER + i), d = load8(grad + row * INNER + i);
    Eight act, dg, du;
#pragma unroll
    for (int k = 0; k < 8; k++) {
      const float s = 1.f / (1.f + __expf(-g.v[k])), opened = g.v[k] * s;
      act.v[k] = rounded(opened) * u.v[k];
      du.v[k] = d.v[k] * opened;
      dg.v[k] = d.v[k] * u.v[k] * s * (1.f + g.v[k] * (1.f - s));
    }
    store8(grad + row * INNER + i, act);
    store8(both + row * ld + i, dg);
    store8(both + row * ld + INNER + i, du);
  }
}

// Attention of the same queries over two sets of keys becomes that over one: in the last `rows` of `all` rows [HEADS][DIM] of a. The
// log-sum-exp is [HEADS][all] and [HEADS][rows]. A block is a row; HEADS * DIM / 8 threads work.
KERNEL __launch_bounds__(1024) join(u16* a, float* lse_a, int all, const u16* b, float* lse_b, int rows) {
  wait_for_previous();
  const size_t row = blockIdx.x, own = row + (all - rows);
  for (int j = threadIdx.x; j < HEADS * DIM / 8; j += blockDim.x) {
    const size_t head = j / (DIM / 8), at = own * HEADS * DIM + j * 8;
    const float la = lse_a[head * all + own], lb = lse_b[head * rows + row], most = fmaxf(la, lb);
    const float ea = __expf(la - most), eb = __expf(lb - most), both = 1.f / (ea + eb);
    Eight x = load8(a + at);
    const Eight y = load8(b + row * HEADS * DIM + j * 8);
#pragma unroll
    for (int k = 0; k < 8; k++) x.v[k] = (x.v[k] * ea + y.v[k] * eb) * both;
    store8(a + at, x);
  }
  __syncthreads();  // every thread has read the log-sum-exp
  for (int head = threadIdx.x; head < HEADS; head += blockDim.x) {
    float &la = lse_a[(size_t)head * all + own], &lb = lse_b[(size_t)head * rows + row];
    const float most = fmaxf(la, lb), both = most + __logf(__expf(la - most) + __expf(lb - most));
    la = both;
    lb = both;
  }
}

// Scores [rows][ld] of which V count -> log-probability of an id, entropy, log-sum-exp; of scores divided by the temperature.
KERNEL __launch_bounds__(1024) score_rows(const u16* scores, int ld, int V, const i64* ids, float inverse, float* logp, float* entropy, float* lse) {
  wait_for_previous();
  const size_t row = blockIdx.x;
  const u16* p = scores + row * ld;
  const int step = blockDim.x * 8;
  float most = NEGATIVE_INFINITY;
  for (int i = threadIdx.x * 8; i < V; i += step) {
    const Eight a = load8(p + i);
    for (int k = 0; k < 8; k++)
      if (i + k < V) most = fmaxf(most, a.v[k]);
  }
  most = block_most(most);
  float s = 0.f, e = 0.f;
  for (int i = threadIdx.x * 8; i < V; i += step) {
    const Eight a = load8(p + i);
    for (int k = 0; k < 8; k++)
      if (i + k < V) {
        const float z = (a.v[k] - most) * inverse, q = __expf(z);
        s += q;
        e += q * z;
      }
  }
  s = block_total(s);
  e = block_total(e);
  if (threadIdx.x) return;
  const float l = logf(s);
  lse[row] = most * inverse + l;
  logp[row] = (wide(p[ids[row]]) - most) * inverse - l;
  entropy[row] = l - e / s;
}

// Scores become their gradient, in place: g (onehot - p) - h p (log p + entropy), divided by the temperature. Columns from V on become 0.
KERNEL __launch_bounds__(1024) score_back(u16* scores, int ld, int V, const i64* ids, float inverse, const float* entropy, const float* lse,
                                       const float* of_logp, const float* of_entropy) {
  wait_for_previous();
  const size_t row = blockIdx.x;
  u16* p = scores + row * ld;
  const int id = (int)ids[row];
  const float l = lse[row], whole = entropy[row], g = of_logp[row] * inverse, h = of_entropy[row] * inverse;
  for (int i = threadIdx.x * 8; i < ld; i += blockDim.x * 8) {
    Eight a = load8(p + i);
#pragma unroll
    for (int k = 0; k < 8; k++) {
      const float z = a.v[k] * inverse - l, q = __expf(z);
      a.v[k] = i + k < V ? g * ((i + k == id ? 1.f : 0.f) - q) - h * q * (z + whole) : 0.f;
    }
    store8(p + i, a);
  }
}
