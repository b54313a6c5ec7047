# The Python side of engine.bench.ts: eager torch, same ops as engine-layer.ts. Reads jobs as JSON lines, answers with seconds.
import json, math, sys, time
import torch
import torch.nn.functional as F


def formula(n, length):
    i = torch.arange(length, dtype=torch.float64)
    scale = 1.0 if n < 0 else 0.05
    return (scale * torch.sin(0.37 * (i % 9973) + 1.3 * (i % 7) + n)).float()


class Layer:
    def __init__(self, hidden, batch, tokens):
        self.heads = max(2, hidden // 64)
        self.kv_heads = self.heads // 2
        self.hidden, self.dim = hidden, hidden // self.heads
        kv, inner = self.dim * self.kv_heads, hidden * 4
        shapes = [[hidden], [hidden, hidden], [hidden], [kv, hidden], [kv], [kv, hidden], [kv], [hidden, hidden], [hidden],
                  [inner, hidden], [inner, hidden], [hidden, inner]]
        self.w = [formula(n, math.prod(s)).reshape(s) for n, s in enumerate(shapes)]
        for n in (0, 8):
            self.w[n] += 1
        for t in self.w:
            t.requires_grad_()
        self.x = formula(-1, batch * tokens * hidden).reshape(batch, tokens, hidden)
        i = torch.arange(self.dim, dtype=torch.float64)
        angle = torch.arange(tokens, dtype=torch.float64)[:, None] / 10000 ** (2 * (i % (self.dim // 2)) / self.dim)
        self.cos, self.sin = angle.cos().float(), angle.sin().float()
        self.mask = torch.full([tokens, tokens], -math.inf).triu(1)

    def norm(self, x, w):
        return x * (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt() * w

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self):
        n1, q, qb, k, kb, v, vb, o, n2, gate, up, down = self.w
        x = self.x
        B, T, D = x.shape
        h = self.norm(x, n1)
        split = lambda t, n: t.view(B, T, n, self.dim).transpose(1, 2)
        groups = self.heads // self.kv_heads
        qs = self.rotate(split(F.linear(h, q, qb), self.heads))
        ks = self.rotate(split(F.linear(h, k, kb), self.kv_heads)).repeat_interleave(groups, 1)
        vs = split(F.linear(h, v, vb), self.kv_heads).repeat_interleave(groups, 1)
        scores = (qs @ ks.transpose(2, 3)) * (1 / math.sqrt(self.dim)) + self.mask
        mixed = (scores.softmax(-1) @ vs).transpose(1, 2).reshape(B, T, D)
        x2 = x + F.linear(mixed, o)
        g = self.norm(x2, n2)
        return x2 + F.linear(F.silu(F.linear(g, gate)) * F.linear(g, up), down)

    def step(self):
        out = self.forward()
        loss = (out * out).mean()
        loss.backward()
        for t in self.w:
            t.grad = None
        return loss


class Add:
    def __init__(self, **_):
        self.a, self.b = torch.tensor([1.0, 2, 3, 4]), torch.tensor([1.0, 2, 3, 4])

    def step(self):
        a, b = self.a, self.b
        for _ in range(20000):
            a + b


class AdamW:
    def __init__(self, tensors, elements, **_):
        self.p = [formula(i, elements).requires_grad_() for i in range(tensors)]
        for i, p in enumerate(self.p):
            p.grad = formula(i + 1, elements)
        make = lambda each: torch.optim.AdamW(self.p, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, foreach=each)
        self.opt = min((make(False), make(True)), key=self.time)  # the faster of Python's two ways

    def time(self, opt):
        opt.step()
        start = time.perf_counter()
        opt.step()
        return time.perf_counter() - start

    def step(self):
        self.opt.step()


class Forward(Layer):
    def step(self):
        for _ in range(20):
            with torch.no_grad():
                self.forward()


def main():
    torch.set_num_threads(int(sys.argv[1]))
    torch.set_flush_denormal(True)
    made = {}
    kinds = {'layer': Layer, 'forward': Forward, 'add': Add, 'adamw': AdamW}
    for line in sys.stdin:
        job = json.loads(line)
        key = json.dumps([job['kind'], job['make']])
        if key not in made:
            made[key] = kinds[job['kind']](**job['make'])
            for _ in range(job['warm']):
                made[key].step()
        start = time.perf_counter()
        cpu = time.process_time()
        for _ in range(job['times']):
            made[key].step()
        print(json.dumps({'wall': time.perf_counter() - start, 'cpu': time.process_time() - cpu}), flush=True)


if __name__ == '__main__':
    main()
