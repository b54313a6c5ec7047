import assert from 'node:assert/strict'
import test from 'node:test'
import { eps } from '../../tests/support/rounding.ts'
import { stream, streamId } from '../core/index.ts'
import {
  adamwUpdate,
  type DType,
  expectNoLeak,
  hasFusedAdamW,
  keep,
  noGrad,
  type Tensor,
  tensor,
  tidy,
} from '../tensor/index.ts'
import { AdamW, adamwOf, clipCoefficient, decayGroups } from './adamw.ts'
import { OptimConfig } from './config.ts'
import { Ema } from './ema.ts'

const shapes: Record<string, number[]> = { 'a.weight': [3, 4], 'a.bias': [4], 'b.weight': [2, 2] }

function numbersOf(name: string, step: number, scale: number): Float32Array {
  const random = stream(11, streamId.test, name, step)
  return Float32Array.from({ length: shapes[name]!.reduce((a, b) => a * b, 1) }, () => random.normal() * scale)
}

function parameters(dtype: DType = 'float32'): Map<string, Tensor> {
  const make = (name: string) => keep(tensor(numbersOf(name, 0, 1), shapes[name]!, { dtype })).requiresGrad_()
  return new Map(Object.keys(shapes).map((name) => [name, make(name)]))
}

function giveGradients(params: Map<string, Tensor>, step: number, skip?: string): void {
  tidy(() => {
    for (const [name, p] of params) {
      const data = numbersOf(name, step, 1)
      p.setGrad(name === skip ? null : tensor(data, shapes[name]!, { dtype: p.dtype }))
    }
  })
}

const bits = (params: ReadonlyMap<string, Tensor>) => [...params.values()].map((t) => t.numbers())
const free = (params: ReadonlyMap<string, Tensor>) => {
  for (const t of params.values()) t.dispose()
}
const config = OptimConfig.parse({ weightDecay: 0.1, learningRate: 1e-2 })

test('biases and other vectors are not decayed', () => {
  const params = parameters()
    .set('norm.weight', tensor([1, 2, 3]))
    .set('c.bias', tensor([1, 2], [1, 2]))
  const [decayed, rest] = decayGroups(params, 0.1)
  assert.deepEqual([...decayed!.params.keys()], ['a.weight', 'b.weight'])
  assert.deepEqual([[...rest!.params.keys()], rest!.weightDecay], [['a.bias', 'norm.weight', 'c.bias'], 0])
  free(params)
})

test('gradients that were set aside are added to those that came since, and are used alone if none came', () => {
  expectNoLeak(() => {
    const params = parameters()
    const optim = adamwOf(params, config)
    const gradients = () => new Map([...params].map(([name, t]) => [name, tidy(() => t.grad()?.numbers() ?? null)]))
    giveGradients(params, 1)
    const first = gradients()
    const aside = optim.takeGradients()
    assert.ok(
      [...gradients().values()].every((g) => g === null),
      'none is left',
    )
    giveGradients(params, 2, 'b.weight')
    const since = gradients()
    optim.addGradients(aside)
    for (const [name, values] of gradients())
      values!.forEach((v, i) => {
        const sum = first.get(name)![i]! + (since.get(name)?.[i] ?? 0)
        assert.ok(Math.abs(v - sum) < 1e-6, `${name} ${i}: ${v}, not ${sum}`)
      })
    optim.zeroGrad()
    optim.dispose()
    free(params)
  })
})

test('stop, save, load into a new optimizer and continue: the same weights bit for bit', () => {
  expectNoLeak(() => {
    const straight = parameters()
    const one = adamwOf(straight, config)
    for (let s = 1; s <= 6; s++) {
      giveGradients(straight, s, s === 2 ? 'b.weight' : undefined)
      one.clipGradNorm(1)
      one.step(1e-2)
      one.zeroGrad()
    }
    const resumed = parameters()
    const two = adamwOf(resumed, config)
    for (let s = 1; s <= 3; s++) {
      giveGradients(resumed, s, s === 2 ? 'b.weight' : undefined)
      two.clipGradNorm(1)
      two.step(1e-2)
      two.zeroGrad()
    }
    const three = adamwOf(resumed, config)
    tidy(() => three.load(two.state()))
    for (let s = 4; s <= 6; s++) {
      giveGradients(resumed, s)
      three.clipGradNorm(1)
      three.step(1e-2)
      three.zeroGrad()
    }
    assert.deepEqual(bits(resumed), bits(straight))
    tidy(() => assert.equal(three.state().get('b.weight.step')!.item(), 5))
    for (const o of [one, two, three]) o.dispose()
    free(straight)
    free(resumed)
  })
})

test('a state with a missing, another or a misshapen tensor is refused by name', () => {
  const params = parameters()
  const optim = adamwOf(params, config)
  tidy(() => {
    const state = optim.state()
    const less = new Map(state)
    less.delete('a.bias.exp_avg')
    assert.throws(() => optim.load(less), /a\.bias\.exp_avg/)
    assert.throws(() => optim.load(new Map([...state, ['c.exp_avg', tensor(0)]])), /c\.exp_avg/)
    assert.throws(() => optim.load(new Map([...state, ['a.bias.exp_avg', tensor([0])]])), /expected \[4\]/)
    assert.throws(
      () => optim.load(new Map([...state, ['a.bias.exp_avg', tensor([0, 0, 0, 0], { dtype: 'float64' })]])),
      /float32/,
    )
  })
  optim.dispose()
  free(params)
})

// an update is about ten operations on either path, each at most eps / 2 off
const tenRoundings = 10 * eps.float32

test('the addon loop, the foreach ops and (torch 2) the fused kernel agree', () => {
  const paths = hasFusedAdamW() ? (['foreach', 'fused'] as const) : (['foreach'] as const)
  for (const path of paths) {
    tidy(() => {
      const make = () => [0, 1, 2, 3].map((s) => tensor(numbersOf('a.weight', s, 1).map((v) => (s === 3 ? v * v : v))))
      const [left, right] = [make(), make()]
      const lists = (t: Tensor[]) => ({ params: [t[0]!], grads: [t[1]!], expAvgs: [t[2]!], expAvgSqs: [t[3]!] })
      const h = { lr: 1e-2, beta1: 0.9, beta2: 0.99, eps: 1e-8, weightDecay: 0.1, step: 5 }
      adamwUpdate(lists(left), h, 'cpu')
      adamwUpdate(lists(right), h, path)
      left.forEach((t, i) => {
        const other = right[i]!.numbers()
        for (const [j, v] of t.numbers().entries())
          assert.ok(Math.abs(v - other[j]!) <= tenRoundings * Math.max(1, Math.abs(v)), `${path} ${i} ${j}`)
      })
    })
  }
})

test('a parameter without gradient is left alone, decay included', () => {
  const params = parameters()
  const optim = adamwOf(params, config)
  const before = params.get('b.weight')!.numbers()
  giveGradients(params, 1, 'b.weight')
  optim.step(0.1)
  assert.deepEqual(params.get('b.weight')!.numbers(), before)
  assert.notDeepEqual(params.get('a.weight')!.numbers(), numbersOf('a.weight', 0, 1))
  optim.dispose()
  free(params)
})

test('NaN gradients are named, nothing is scaled, and step() refuses until they are dropped', () => {
  expectNoLeak(() => {
    const params = parameters()
    const optim = adamwOf(params, config)
    giveGradients(params, 1)
    tidy(() => params.get('a.bias')!.setGrad(tensor([0, Number.NaN, 1, 2])))
    const before = bits(params)
    assert.ok(Number.isNaN(optim.clipGradNorm(1)))
    assert.deepEqual(optim.nonFiniteGradients(), ['a.bias'])
    assert.throws(() => optim.step(0.1), /a\.bias/)
    assert.deepEqual(bits(params), before)
    tidy(() => assert.deepEqual(params.get('a.weight')!.grad()!.numbers(), [...numbersOf('a.weight', 1, 1)]))
    optim.zeroGrad()
    assert.equal(params.get('a.bias')!.grad(), null)
    giveGradients(params, 2)
    optim.clipGradNorm(1)
    optim.step(0.1)
    optim.dispose()
    free(params)
  })
})

test('a parameter whose gradient comes later is updated as in its own first step', () => {
  const start = [0.5, -0.25, 2]
  const update = (gradients: readonly Record<string, number[]>[]) => {
    const params = new Map(['a', 'b'].map((name) => [name, tensor(start).requiresGrad_()]))
    const optim = adamwOf(params, config)
    for (const given of gradients) {
      tidy(() => {
        for (const [name, values] of Object.entries(given)) params.get(name)!.setGrad(tensor(values))
      })
      optim.step(0.1)
      optim.zeroGrad()
    }
    const after = [...params.values()].map((p) => p.numbers())
    optim.dispose()
    free(params)
    return after
  }
  const [first, second] = [
    [1, -2, 0.5],
    [3, 0.1, -1],
  ]
  const [a, b] = update([{ a: first }, { a: second, b: first }])
  assert.deepEqual(a, update([{ a: first }, { a: second }])[0])
  assert.deepEqual(b, update([{ b: first }])[1])
})

test('an optimizer keeps moments of the parameters it owns, and leaves the values of the others', () => {
  const params = parameters()
  const before = bits(params)
  const optim = adamwOf(params, config, undefined, (name) => name === 'a.bias')
  giveGradients(params, 1)
  optim.step(0.1)
  const [weight, bias, other] = bits(params)
  assert.deepEqual([weight, other], [before[0], before[2]])
  assert.notDeepEqual(bias, before[1])
  const kept = tidy(() => [...optim.state().keys()].filter((name) => !name.endsWith('.step')))
  assert.deepEqual(kept, ['a.bias.exp_avg', 'a.bias.exp_avg_sq'])
  optim.dispose()
  free(params)
})

test('clipping spans all groups and leaves small gradients bit for bit', () => {
  const params = parameters()
  const optim = adamwOf(params, config)
  giveGradients(params, 1)
  const before = tidy(() => [...params.values()].map((p) => p.grad()!.numbers()))
  const norm = Math.sqrt(before.flat().reduce((sum, g) => sum + g * g, 0))
  assert.ok(Math.abs(optim.clipGradNorm(1e3) - norm) < 1e-6)
  assert.deepEqual(
    tidy(() => [...params.values()].map((p) => p.grad()!.numbers())),
    before,
  )
  optim.clipGradNorm(0.5)
  assert.ok(Math.abs(optim.clipGradNorm(0) - 0.5) < 1e-6)
  assert.ok(Math.abs(optim.clipGradNorm(0) - 0.5) < 1e-6, 'a maximum of 0 only measures')
  optim.dispose()
  free(params)
})

test('the norm spans weights of several dtypes: the root of all squares', () => {
  const params = new Map([
    ['single', tensor([0]).requiresGrad_()],
    ['double', tensor([0], { dtype: 'float64' }).requiresGrad_()],
  ])
  const optim = adamwOf(params, config)
  tidy(() => {
    params.get('single')!.setGrad(tensor([3]))
    params.get('double')!.setGrad(tensor([4], { dtype: 'float64' }))
  })
  assert.ok(Math.abs(optim.clipGradNorm(1) - 5) < 1e-6, 'a norm of 3, 4, 5')
  const clipped = tidy(() => [...params.values()].map((p) => p.grad()!.numbers()[0]!))
  assert.ok(Math.hypot(clipped[0]! - 0.6, clipped[1]! - 0.8) < 1e-6, `3 and 4 became ${clipped.join(' and ')}`)
  optim.dispose()
  free(params)
})

test("the clip divides by the norm and torch's 1e-6, and is never above 1", () => {
  const like = tensor(0, { dtype: 'float64' })
  assert.equal(clipCoefficient(1e-6, 1e-6, like), 0.5)
  assert.equal(clipCoefficient(0.5, 1, like), 1)
  like.dispose()
})

test('bfloat16 parameters and a name in two groups are refused', () => {
  tidy(() => {
    const half = new Map([['x', tensor([1], { dtype: 'bfloat16' })]])
    assert.throws(() => new AdamW([{ params: half, weightDecay: 0 }]), /x: expected float32, got bfloat16/)
    const group = { params: new Map([['x', tensor([1])]]), weightDecay: 0 }
    assert.throws(() => new AdamW([group, group]), /x: expected in one group/)
  })
})

test('a group can have its own learning rate', () => {
  const params = parameters()
  const groups = [...params].map(([name, t], i) => ({ params: new Map([[name, t]]), weightDecay: 0, lrScale: i }))
  const optim = new AdamW(groups)
  giveGradients(params, 1)
  optim.step(1e-3)
  assert.deepEqual(params.get('a.weight')!.numbers(), [...numbersOf('a.weight', 0, 1)])
  const moved = params
    .get('b.weight')!
    .numbers()
    .map((v, i) => Math.abs(v - numbersOf('b.weight', 0, 1)[i]!))
  for (const m of moved) assert.ok(Math.abs(m - 2e-3) < 1e-6)
  optim.dispose()
  free(params)
})

test('after 5 steps towards a constant the EMA is the closed form: start * d^5 + target * (1 - d^5)', () => {
  expectNoLeak(() => {
    const [start, target] = [parameters(), parameters()]
    tidy(() => noGrad(() => target.forEach((t) => void t.mul_(3))))
    const ema = new Ema(start, { decay: 0.9 })
    for (let s = 1; s <= 5; s++) assert.ok(ema.update(target, s))
    for (const name of start.keys()) {
      const [a, b] = [start.get(name)!.numbers(), target.get(name)!.numbers()]
      ema.weights
        .get(name)!
        .numbers()
        .forEach((v, i) => {
          const closed = a[i]! * 0.9 ** 5 + b[i]! * (1 - 0.9 ** 5)
          assert.ok(Math.abs(v - closed) < 15 * eps.float32 * Math.max(1, Math.abs(a[i]!), Math.abs(b[i]!))) // 5 steps of 3
        })
    }
    ema.dispose()
    free(start)
    free(target)
  })
})

test('the EMA of bfloat16 weights is float32 and follows, where a bfloat16 one would not move', () => {
  tidy(() => {
    const source = new Map([['x', tensor([0.5], { dtype: 'bfloat16' })]])
    const target = new Map([['x', tensor([0.51], { dtype: 'bfloat16' })]])
    const ema = new Ema(source, { decay: 0.999 })
    let narrow = source.get('x')!
    for (let s = 1; s <= 200; s++) {
      ema.update(target)
      narrow = narrow.mul(0.999).add(target.get('x')!.mul(0.001))
    }
    const goal = target.get('x')!.item()
    assert.equal(ema.weights.get('x')!.dtype, 'float32')
    assert.ok(Math.abs(ema.weights.get('x')!.item() - (0.5 * 0.999 ** 200 + goal * (1 - 0.999 ** 200))) < 1e-5)
    assert.equal(narrow.item(), 0.5)
    ema.dispose()
  })
})

test('the EMA takes its turn every n steps, never shares memory with its source, and loads what it saved', () => {
  const params = parameters()
  const ema = new Ema(params, { decay: 0.5, every: 2 })
  const start = bits(params)
  tidy(() => noGrad(() => params.forEach((t) => void t.add_(1))))
  assert.deepEqual(bits(ema.weights), start)
  assert.equal(ema.update(params, 1), false)
  assert.deepEqual(bits(ema.weights), start)
  assert.equal(ema.update(params, 2), true)
  const saved = bits(ema.weights)
  const other = new Ema(params, { decay: 0.5, every: 2 })
  other.load(ema.weights)
  assert.deepEqual(bits(other.weights), saved)
  assert.throws(() => other.load(new Map()), /a\.weight/)
  assert.throws(() => new Ema(params, { decay: 1 }), /decay/)
  ema.dispose()
  other.dispose()
  free(params)
})
