import assert from 'node:assert/strict'
import test from 'node:test'
import {
  backward,
  checkpoint,
  clearTape,
  customFunction,
  expectNoLeak,
  gradEnabled,
  gradOf,
  keep,
  manualSeed,
  memory,
  noGrad,
  randn,
  resetPeak,
  savingFunction,
  type Tensor,
  tapeLength,
  tensor,
  tidy,
} from './index.ts'

type Block = (...inputs: Tensor[]) => Tensor
const plain = (fn: Block, ...inputs: Tensor[]) => fn(...inputs)
const taped = (fn: Block, ...inputs: Tensor[]) => checkpoint(fn, ...inputs)
const f64 = { dtype: 'float64' } as const

function worst(a: readonly number[], b: readonly number[]): number {
  return Math.max(...a.map((v, i) => Math.abs(v - b[i]!)))
}

/** Gradients of both leaves for the given way to run blocks; dropout on, two bridges with common history, a shared side input. */
function gradients(w: Tensor, x: Tensor, run: typeof plain): number[] {
  manualSeed(11)
  const block: Block = (h, side) => h!.matmul(w).dropout(0.4, true).add(side!).tanh()
  const side = x.mul(2)
  const other = x.sin().mul(side) // shares history with side
  let h = run(block, x.mul(1.5), side)
  h = run(block, h.mul(2), side)
  h = run((a, b) => block(a!, b!).mul(block(b!, a!)), h, other)
  backward(h.sum().add(h.mul(h).sum()))
  const out = [...w.grad()!.numbers(), ...x.grad()!.numbers()]
  w.setGrad(null)
  x.setGrad(null)
  return out
}

test('checkpointed gradients equal plain ones: dropout, a shared input, bridges with common history', () => {
  expectNoLeak(() =>
    tidy(() => {
      manualSeed(3)
      const w = randn([6, 6], f64).requiresGrad_()
      const x = randn([3, 6], f64).requiresGrad_()
      const expected = gradients(w, x, plain)
      assert.ok(worst(gradients(w, x, taped), expected) < 1e-14)
      assert.equal(tapeLength(), 0)
      const w32 = w.detach().to('float32').requiresGrad_()
      const x32 = x.detach().to('float32').requiresGrad_()
      assert.ok(worst(gradients(w32, x32, taped), gradients(w32, x32, plain)) < 2e-6)
    }),
  )
})

test('checkpoints and custom functions inside a checkpoint get their gradients too', () => {
  tidy(() => {
    const square = customFunction(
      (a: Tensor) => a.mul(a),
      ([a], g) => [g.mul(a).mul(2)],
    )
    const w = randn([4, 4], f64).requiresGrad_()
    const grad = (run: typeof plain, sq: (t: Tensor) => Tensor) => {
      const inner: Block = (h) => sq(h!.matmul(w).tanh())
      const outer: Block = (h) => run(inner, run(inner, h!).add(1))
      backward(run(outer, run(outer, w.sin())).sum())
      const g = w.grad()!.numbers()
      w.setGrad(null)
      return g
    }
    const expected = grad(plain, (t) => t.mul(t))
    assert.ok(
      worst(
        grad(taped, (t) => t.mul(t)),
        expected,
      ) < 1e-13,
    )
    assert.ok(worst(grad(taped, square), expected) < 1e-13)
    assert.ok(worst(grad(plain, square), expected) < 1e-13)
    assert.equal(tapeLength(), 0)
  })
})

test('a checkpoint may give several results of which some are used', () => {
  tidy(() => {
    const x = tensor([1, 2, 3], f64).requiresGrad_()
    const [a, , c] = checkpoint((t: Tensor) => [t.mul(2), t.exp(), t.pow(2)], x) as [Tensor, Tensor, Tensor]
    backward(a.sum().add(c.sum()))
    assert.deepEqual(x.grad()!.numbers(), [4, 6, 8])
  })
})

test('with retainGraph the tape serves a second backward', () => {
  tidy(() => {
    const x = tensor([1, 2], f64).requiresGrad_()
    const y = checkpoint((t: Tensor) => t.pow(3), x.mul(2))
    const loss = y.sum()
    backward(loss, { retainGraph: true })
    assert.deepEqual(x.grad()!.numbers(), [24, 96])
    backward(loss)
    assert.deepEqual(x.grad()!.numbers(), [48, 192])
    assert.equal(tapeLength(), 0)
  })
})

test('backward leaves the random numbers where they were', () => {
  tidy(() => {
    const w = randn([8]).requiresGrad_()
    const draw = (run: typeof plain) => {
      manualSeed(5)
      backward(run((t) => t!.dropout(0.5, true), w.mul(2)).sum())
      return randn([4]).numbers()
    }
    assert.deepEqual(draw(taped), draw(plain))
  })
})

test('checkpointing needs less than a third of the memory', () => {
  const layers = 24
  tidy(() => {
    const weights = Array.from({ length: layers }, () => randn([64, 64]).mul(0.1).requiresGrad_())
    const x = randn([256, 64])
    const peak = (run: typeof plain) => {
      resetPeak()
      const base = memory().bytes
      tidy(() => {
        let h = x
        for (const w of weights)
          h = tidy(() => run((t) => t!.add(t!.matmul(w).gelu().tanh().sigmoid().mul(t!).sin().exp().cos()), h))
        backward(h.sum())
      })
      for (const w of weights) w.setGrad(null)
      return memory().peakBytes - base
    }
    const whole = peak(plain)
    const small = peak(taped)
    assert.ok(small < whole / 3, `${small} of ${whole} bytes`)
  })
})

test('a segment that fails when it is run again leaves no tape, no mode and no tensor behind', () => {
  expectNoLeak(() =>
    tidy(() => {
      const x = tensor([1, 2]).requiresGrad_()
      let calls = 0
      const y = checkpoint((t: Tensor) => {
        const inner = checkpoint((u: Tensor) => u.mul(3), t.mul(2))
        if (++calls === 2) throw new RangeError('second time')
        return inner
      }, x.mul(1))
      assert.throws(() => backward(y.sum()), /second time/)
      assert.equal(tapeLength(), 0)
      assert.equal(gradEnabled(), true)
      backward(x.mul(5).sum())
      assert.deepEqual(x.grad()!.numbers(), [5, 5])
    }),
  )
})

test('customFunction has the gradient it says, and the one of differences', () => {
  tidy(() => {
    // a * b^2 with a broadcast-free custom rule
    const f = customFunction(
      (a: Tensor, b: Tensor) => a.mul(b).mul(b),
      ([a, b], g) => [g.mul(b).mul(b), g.mul(a).mul(b).mul(2)],
    )
    const a = tensor([0.3, -1.2, 2], f64).requiresGrad_()
    const b = tensor([1.1, 0.4, -0.7], f64).requiresGrad_()
    const loss = (p: Tensor, q: Tensor) => f(p.mul(2), q).sin().sum()
    backward(loss(a, b))
    const h = 1e-6
    for (const [which, t] of [a, b].entries()) {
      const values = t.numbers()
      const moved = (i: number, by: number) => {
        const changed = tensor(values.with(i, values[i]! + by), f64)
        return noGrad(() => (which === 0 ? loss(changed, b) : loss(a, changed)).item())
      }
      const differences = values.map((_, i) => (moved(i, h) - moved(i, -h)) / (2 * h))
      assert.ok(worst(t.grad()!.numbers(), differences) < 1e-8)
    }
  })
})

test('customFunction may give no gradient for an input, and must not give one of a wrong shape', () => {
  tidy(() => {
    const a = tensor([1, 2]).requiresGrad_()
    const b = tensor([3, 4]).requiresGrad_()
    const half = customFunction(
      (x: Tensor, y: Tensor) => x.mul(y),
      ([, y], g) => [g.mul(y), null],
    )
    backward(half(a, b).sum())
    assert.deepEqual([a.grad()!.numbers(), b.grad()], [[3, 4], null])
    const wrong = customFunction(
      (x: Tensor) => x.mul(2),
      (_, g) => [g.sum()],
    )
    assert.throws(
      () => backward(wrong(a).sum()),
      /gradient of input 0: expected float32 \[2\] on cpu, got float32 \[\] on cpu/,
    )
    assert.throws(() => a.setGrad(tensor([1, 2, 3])), /expected a gradient Float\[2\] on cpu, got Float\[3\]/)
  })
})

test('a forgotten graph is freed with its handles, a forgotten tape by clearTape', () => {
  tidy(() => {
    const w = keep(randn([64, 64])).requiresGrad_()
    const base = memory()
    tidy(() => {
      let h = w
      for (let i = 0; i < 20; i++) h = h.matmul(w).tanh()
      h.sum() // never differentiated
    })
    assert.equal(memory().bytes, base.bytes)
    tidy(() => void checkpoint((t: Tensor) => t.matmul(w), w.mul(2)))
    assert.ok(memory().tensors > base.tensors && tapeLength() === 2)
    clearTape()
    assert.equal(memory().tensors, base.tensors)
    assert.equal(memory().bytes, base.bytes)
    w.dispose()
  })
})

test('backward of something without a graph says why', () => {
  tidy(() => {
    const x = tensor([1, 2]).requiresGrad_()
    assert.throws(() => backward(x.detach().sum()), /backward: expected a tensor that depends on a parameter/)
    assert.throws(() => backward(noGrad(() => x.sum())), /computed under noGrad/)
    assert.throws(() => backward(x.mul(2)), /grad can be implicitly created only for scalar outputs/)
    const loss = x.mul(x).sum()
    backward(loss)
    assert.throws(() => backward(loss), /second time/)
  })
})

test('gradOf returns gradients, also of gradients, and null for what was not used', () => {
  tidy(() => {
    const x = tensor([1, 2, 3], f64).requiresGrad_()
    const unused = tensor([1], f64).requiresGrad_()
    const [first, none] = gradOf([x.pow(3).sum()], [x, unused], { createGraph: true })
    assert.equal(none, null)
    assert.deepEqual(first!.numbers(), [3, 12, 27])
    assert.deepEqual(gradOf([first!.sum()], [x])[0]!.numbers(), [6, 12, 18])
    assert.equal(x.grad(), null)
  })
})

/** Gradients of both parameters from two losses, one backward each after both forwards. */
function twoRoots(run: typeof plain, trunk: (w: Tensor) => Tensor, order: readonly number[]): number[][] {
  return tidy(() => {
    const [w1, w2] = [tensor([2, 3], f64).requiresGrad_(), tensor([5, 7], f64).requiresGrad_()]
    const a = run((x) => x!.mul(x!).tanh(), trunk(w1)).sum()
    const b = run((x) => run((y) => y!.mul(0.5), x!.mul(x!)), trunk(w2)).sum()
    for (const i of order) backward([a, b][i]!)
    return [w1, w2].map((w) => w.grad()!.numbers())
  })
}

test('two checkpointed losses, each with its own backward, give the gradients of plain ones in either order', () => {
  expectNoLeak(() => {
    for (const trunk of [(w: Tensor) => w.mul(1), (w: Tensor) => w])
      for (const order of [
        [0, 1],
        [1, 0],
      ]) {
        assert.deepEqual(twoRoots(taped, trunk, order), twoRoots(plain, trunk, order))
        assert.equal(tapeLength(), 0)
      }
  })
})

test('an input that segments of two losses take carries both gradients', () => {
  tidy(() => {
    const w = tensor([2, 3], f64).requiresGrad_()
    const x = w.mul(w)
    const a = checkpoint((t: Tensor) => t.sin(), x).sum()
    const b = checkpoint((t: Tensor) => t.cos(), x).sum()
    backward(a)
    backward(b)
    const expected = w.numbers().map((v) => 2 * v * (Math.cos(v * v) - Math.sin(v * v)))
    assert.ok(worst(w.grad()!.numbers(), expected) < 1e-14)
    assert.equal(tapeLength(), 0)
  })
})

test('a second loss over a segment that was already run backwards is an error with a clear message; with retainGraph it works', () => {
  expectNoLeak(() =>
    tidy(() => {
      const w = tensor([2, 3], f64).requiresGrad_()
      const trunk = () => checkpoint((t: Tensor) => t.mul(t), w.mul(1))
      const shared = trunk()
      const [a, b] = [shared.sum(), shared.mul(2).sum()]
      backward(a)
      assert.throws(() => backward(b), /already run backwards.*retainGraph/s)
      w.setGrad(null)
      const again = trunk()
      const [c, d] = [again.sum(), again.mul(2).sum()]
      backward(c, { retainGraph: true })
      backward(d)
      assert.deepEqual(w.grad()!.numbers(), [12, 18])
      const forgotten = trunk().sum()
      clearTape()
      assert.throws(() => backward(forgotten), /tape was cleared/)
    }),
  )
})

test('a segment nothing refers to any more leaves the tape with the next backward', () => {
  tidy(() => {
    const w = tensor([2, 3], f64).requiresGrad_()
    tidy(() => void checkpoint((t: Tensor) => t.mul(t), w.mul(2)))
    const unused = checkpoint((t: Tensor) => t.mul(t), w.mul(3))
    backward(checkpoint((t: Tensor) => t.mul(t), w.mul(1)).sum())
    assert.equal(tapeLength(), 2, 'the one in hand stays')
    backward(unused.sum())
    assert.deepEqual(w.grad()!.numbers(), [40, 60])
    assert.equal(tapeLength(), 0)
  })
})

test('gradOf through a checkpoint or a custom function says that it cannot, beside one it works', () => {
  tidy(() => {
    const w = tensor([2, 3], f64).requiresGrad_()
    const double = customFunction(
      (t: Tensor) => t.mul(2),
      (_, g) => [g.mul(2)],
    )
    for (const f of [(t: Tensor) => checkpoint((u: Tensor) => u.mul(u), t), double]) {
      const out = f(w.mul(1))
      assert.throws(() => gradOf([out.sum()], [w]), /gradOf: expected a graph without checkpoints/)
      assert.deepEqual(gradOf([out.mul(3).sum()], [out])[0]!.numbers(), [3, 3])
      assert.deepEqual(gradOf([w.pow(2).sum()], [w])[0]!.numbers(), [4, 6])
    }
    clearTape()
  })
})

test('one tensor given as the gradient of two inputs is two gradients', () => {
  tidy(() => {
    const [a, b] = [tensor([1, 2]).requiresGrad_(), tensor([3, 4]).requiresGrad_()]
    const sum = customFunction<[Tensor, Tensor]>(
      (x, y) => x.add(y),
      (_, g) => [g, g],
    )
    backward(sum(a, b).mul(2).sum())
    noGrad(() => a.grad()!.mul_(0.5))
    assert.deepEqual(
      [a.grad()!.numbers(), b.grad()!.numbers()],
      [
        [1, 1],
        [2, 2],
      ],
    )
  })
})

test('a constant that a checkpoint hands through stays a constant', () => {
  tidy(() => {
    const constant = tensor([1, 2])
    const w = tensor([3, 4]).requiresGrad_()
    const [same, product] = checkpoint((x: Tensor) => [x, x.mul(w)], constant) as [Tensor, Tensor]
    assert.equal(constant.requiresGrad, false)
    backward(same.add(product).sum())
    assert.deepEqual([w.grad()!.numbers(), constant.grad()], [[1, 2], null])
  })
})

test('saved values go while they are consumed, also after a custom function', () => {
  const head = customFunction(
    (t: Tensor) => t.mul(2),
    (_, g) => [g.mul(2)],
  )
  const depth = 16
  const change = (last: (t: Tensor) => Tensor) =>
    tidy(() => {
      const w = randn([128, 128]).requiresGrad_()
      const [loss] = tidy(() => {
        let h = w
        for (let i = 0; i < depth; i++) h = h.matmul(w).tanh()
        return [last(h).sum(), h] as const // the caller holds h, and with it the graph
      })
      const base = memory().bytes
      backward(loss)
      return memory().bytes - base
    })
  assert.ok(change(head) < -0.8 * depth * 128 * 128 * 4, 'freed while the graph is still there')
})

test('noGrad restores the mode after an error', () => {
  assert.throws(() =>
    noGrad(() => {
      throw new Error('inside')
    }),
  )
  assert.equal(gradEnabled(), true)
})

test('a function keeps intermediates for its derivative, and the tape frees them with it', () => {
  const x = keep(tensor([1, 2, 3], { dtype: 'float64' })).requiresGrad_()
  const live = memory().tensors
  const cube = savingFunction<[Tensor], { square: Tensor }>(
    (a) => {
      const square = a.mul(a)
      return { out: square.mul(a), saved: { square } }
    },
    (_, { square }, grad) => [square.mul(3).mul(grad)],
  )
  tidy(() => {
    backward(cube(cube(x)).sum())
    assert.deepEqual(x.grad()!.numbers(), [9, 9 * 2 ** 8, 9 * 3 ** 8])
  })
  assert.equal(memory().tensors, live, 'backward leaks nothing')
  tidy(() => void cube(x))
  assert.equal(memory().tensors > live, true, 'kept for a backward that may come')
  clearTape()
  assert.equal(memory().tensors, live, 'a cleared tape leaks nothing')
  assert.deepEqual(
    noGrad(() => tidy(() => cube(x).numbers())),
    [1, 8, 27],
  )
  x.dispose()
})
