import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { hashes, makeToy, openRun, scratch, toyRun } from '../../tests/support/runs.ts'
import { alone } from '../distributed/index.ts'
import { cast, tensorAt } from '../nn/index.ts'
import { noGrad, type Tensor, tidy, zeros } from '../tensor/index.ts'
import { disposeModel, openModel } from './device.ts'
import { Learner } from './learner.ts'
import { disposeLearner } from './loop.ts'
import { loadRun, type RunState, readState, saveRun } from './state.ts'

const folder = scratch('learner')
const toy = makeToy(join(folder, 'toy'))
const config = toyRun(toy, join(folder, 'none'))
after(() => rmSync(folder, { recursive: true, force: true }))

test('only what the groups name gets gradients; counts show what that is', async () => {
  const { learner, dispose } = await openRun(config, 1)
  const mine = new Set(learner.slots.map((s) => s.name))
  for (const slot of learner.family.module.slots())
    assert.equal(tensorAt(slot).requiresGrad, mine.has(slot.name), slot.name)
  const counts = learner.counts()
  assert.deepEqual(
    counts.map((c) => c.group),
    config.train,
  )
  assert.equal(
    counts.reduce((n, c) => n + c.tensors, 0),
    mine.size,
  )
  assert.ok(!mine.has('language_model.model.embed_tokens.weight') && !mine.has('language_model.lm_head.weight'))
  dispose()
})

test('a group moves by its own share of the learning rate', async () => {
  const all = Object.fromEntries(Object.keys(config.lrScale).map((group) => [group, 1])) as typeof config.lrScale
  const scaled = { ...config, lrScale: { ...all, mask_decoder: 0.25 } }
  const { learner, dispose } = await openRun(scaled, 1)
  const moved = tidy(() => {
    const params = [...learner.params()]
    const before = noGrad(() => params.map(([, t]) => t.detach().clone()))
    for (const [, t] of params) t.setGrad(t.detach().onesLike())
    learner.optim.step(1e-2)
    return params.map(([name, t], i) => [name, before[i]!.sub(t.detach()).mean().item()] as const)
  })
  const slow = learner.namesOf('mask_decoder')
  assert.ok(slow.size > 0 && slow.size < moved.length)
  for (const [name, by] of moved) assert.ok(Math.abs(by - (slow.has(name) ? 2.5e-3 : 1e-2)) < 1e-6, `${name}: ${by}`)
  learner.optim.zeroGrad()
  dispose()
})

test('the optimizer has the betas, the epsilon and the decay of the settings', async () => {
  const optim = { ...config.optim, adamBeta1: 0.5, adamBeta2: 0.8, adamEpsilon: 0.1, weightDecay: 0.2 }
  const { learner, dispose } = await openRun({ ...config, optim }, 1)
  const lr = 1e-2
  tidy(() => {
    const [name, t] = [...learner.params()].find(([, p]) => p.ndim === 2)!
    let x = noGrad(() => t.detach().numbers())
    let [m, v] = [0, 0]
    for (const [i, g] of [1, -3].entries()) {
      for (const [, p] of learner.params()) p.setGrad(p.detach().onesLike().mul(g))
      learner.optim.step(lr)
      m = 0.5 * m + 0.5 * g
      v = 0.8 * v + 0.2 * g * g
      const move = m / (1 - 0.5 ** (i + 1)) / (Math.sqrt(v / (1 - 0.8 ** (i + 1))) + 0.1)
      x = x.map((w) => w * (1 - lr * 0.2) - lr * move)
      const got = noGrad(() => t.detach().numbers())
      got.forEach((w, at) => {
        assert.ok(Math.abs(w - x[at]!) < 1e-6, `${name} ${at} after update ${i + 1}: ${w}, ${x[at]}`)
      })
    }
  })
  learner.optim.zeroGrad()
  dispose()
})

test('in bfloat16 each role samples with one copy of its trained weights as they are, in float32 with the weights', () => {
  for (const dtype of ['bfloat16', 'float32'] as const) {
    const family = openModel({ ...config, dtype })
    const learner = new Learner(family, { ...config, dtype })
    const [name] = [...learner.start.keys()] as [string]
    const slot = learner.slots.find((s) => s.name === name)!
    const read = () =>
      tidy(() => {
        const like = zeros([1], { dtype })
        const [a, b] = [0, 1].map(() => cast(tensorAt(slot), like)) as [Tensor, Tensor]
        return { isCopy: a.handle === b.handle && a.handle !== tensorAt(slot).handle, values: a.numbers() }
      })
    const rounded = (weights: Tensor) => noGrad(() => tidy(() => weights.to(dtype).numbers()))
    for (let update = 0; update < 2; update++) {
      const policy = learner.forSampling(read)
      const ema = learner.asEma(() => learner.forSampling(read))
      assert.deepEqual(policy, { isCopy: dtype === 'bfloat16', values: rounded(tensorAt(slot)) })
      assert.deepEqual(ema.values, rounded(learner.ema.weights.get(name)!))
      if (update === 1) assert.notDeepEqual(ema.values, policy.values)
      noGrad(() => tidy(() => void tensorAt(slot).add_(0.5)))
    }
    assert.equal(read().isCopy, false)
    learner.dispose()
    disposeModel(family)
  }
})

test('a rank above the hidden size is refused', () => {
  const wide = { ...config, lora: { ...config.lora, rank: 33 } }
  const family = openModel(config)
  assert.throws(() => new Learner(family, wide), /lora.rank: expected at most the hidden size 32, got 33/)
  disposeModel(family)
})

test('adapters start from the seed: the same one gives the same weights, another one others, and B is 0', async () => {
  const factors = async (seed: number) => {
    const { learner, dispose } = await openRun({ ...config, seed }, 1)
    const found = hashes([...learner.params()].filter(([name]) => name.includes('.lora_A.')))
    const b = [...learner.params()].filter(([name]) => name.includes('.lora_B.'))
    assert.ok(b.length > 0 && b.every(([, t]) => tidy(() => t.detach().abs().sum().item()) === 0))
    dispose()
    return found
  }
  const first = await factors(1)
  assert.deepEqual(await factors(1), first)
  const other = await factors(2)
  assert.ok([...first].every(([name, hash]) => other.get(name) !== hash))
})

test('adapters are off while the reference is in place, and then as they were, also after an error', async () => {
  const { learner, dispose } = await openRun(config, 1)
  const adapter = learner.adapter!
  for (const was of [true, false]) {
    adapter.enabled = was
    const during = learner.asReference(() => adapter.enabled)
    assert.deepEqual([during, adapter.enabled], [false, was])
    assert.throws(() => learner.asReference(() => assert.fail('an error')), /an error/)
    assert.equal(adapter.enabled, was)
  }
  dispose()
})

test('a saved run comes back bit for bit: weights, EMA, optimizer and counters', async () => {
  const state: RunState = {
    version: 2,
    step: 3,
    settings: { 'rl.beta': 0.04 },
    loader: { version: 1, fingerprint: 'd', seed: 1, rank: 0, world: 1, epoch: 0, position: 2, seen: 2, rejects: {} },
    position: { events: 5, samples: 6 },
    tasks: {
      loop1: { balance: 1 / 3, norm: 1e-300, state: null },
      loop2: { balance: 1, norm: 0, state: { scale: 0.1 + 0.2 } },
    },
    entropy: { coef: 0.1 + 0.2, last: null },
    generation: null,
    flat: 0,
  }
  const [a, b] = [await openRun(config, 1), await openRun(config, 1)]
  const all = (o: typeof a) => {
    const { learner } = o
    return [hashes(learner.params()), hashes(learner.ema.weights), hashes(learner.optim.state())]
  }
  noGrad(() => {
    for (const t of [...a.learner.params().values(), ...a.learner.ema.weights.values()]) t.mul_(1.7).add_(0.3)
  })
  assert.notDeepEqual(all(a), all(b))
  const path = saveRun(join(folder, 'saved'), a.learner, state)
  assert.deepEqual(readState(path, config), state)
  loadRun(path, b.learner)
  assert.deepEqual(all(b), all(a))
  a.dispose()
  b.dispose()
})

test('with splitMoments each of 3 processes keeps about a third of moments, EMA copy and start values; together they keep all', () => {
  const learners = [0, 1, 2].map((rank) => {
    const world = { ...alone, rank, size: 3 }
    return new Learner(openModel(config), { ...config, splitMoments: true }, { world })
  })
  const moments = ({ optim }: Learner) =>
    tidy(() => [...optim.state()].flatMap(([key]) => /^(.*)\.exp_avg$/.exec(key)?.[1] ?? []))
  const kept = { moments, ema: (l: Learner) => [...l.ema.weights.keys()], start: (l: Learner) => [...l.start.keys()] }
  const params = learners[0]!.params()
  const values = (names: readonly string[]) => names.reduce((n, name) => n + params.get(name)!.numel, 0)
  for (const [what, of] of Object.entries(kept)) {
    const parts = learners.map(of)
    const all = parts.flat()
    assert.equal(new Set(all).size, all.length, `${what}: one process for each`)
    if (what !== 'start') assert.deepEqual(all.sort(), [...params.keys()].sort())
    for (const part of parts)
      if (what !== 'start') assert.ok(values(part) < 0.4 * values(all), `${what}: ${values(part)} of ${values(all)}`)
  }
  assert.deepEqual(
    learners.flatMap(kept.start).sort(),
    [...params.keys()].filter((name) => !name.includes('.lora_')).sort(),
  )
  for (const learner of learners) disposeLearner(learner)
})
