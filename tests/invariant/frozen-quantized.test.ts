// frozenWeights int8 and nf4: the matrices of the language model's layers in 8 or 4 bit, everything else to the bit as it was.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { teacherForce } from '../../src/llm/index.ts'
import { modelSizes, openSa2VA, releasedConfig, Sa2VAFamily } from '../../src/models/index.ts'
import { addLora, count, type FrozenForm, frozenForms, isQuantized, type Linear, tensorAt } from '../../src/nn/index.ts'
import { decidingSettings, differences } from '../../src/run/identity.ts'
import {
  chooseSampling,
  disposeModel,
  Learner,
  openModel,
  resolveRun,
  type SamplingChoice,
  sft,
} from '../../src/run/index.ts'
import { disposeLearner } from '../../src/run/loop.ts'
import { reportTrainables } from '../../src/run/start-up.ts'
import { makeScene, sceneExample } from '../../src/scenes/index.ts'
import { requireGrounded } from '../../src/tasks/index.ts'
import { memory, noGrad, resetPeak, tidy } from '../../src/tensor/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { hashes, hostOf, makeToy, openRun, samplesIn, scratch, toyRun } from '../support/runs.ts'
import { fillAdapters, goldenFolder } from '../support/sa2va.ts'

const folder = scratch('quantized')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

const miniature = join(import.meta.dirname, '../../assets/miniature')
const quantizedForms = ['int8', 'nf4'] as const
const checkpointing = true
const matrix = /^language_model\.model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj\.weight$/

for (const form of quantizedForms)
  test(`exactly the matrices of the layers are stored in ${form}, each while the folder is read`, () => {
    const exact = openSa2VA(goldenFolder)
    const exactBytes = count(exact.model.parameters().values()).bytes
    const before = memory().bytes
    resetPeak()
    const rounded = openSa2VA(goldenFolder, { frozenWeights: form })
    const peak = memory().peakBytes - before
    const found = rounded.model.slots().filter((slot) => isQuantized(tensorAt(slot)))
    const expected = exact.model.names().filter((name) => matrix.test(name))
    assert.deepEqual(
      found.map((slot) => slot.name),
      expected,
    )
    assert.equal(expected.length, 7 * exact.cfg.llm.num_hidden_layers)
    const [was, now] = [hashes(exact.model.parameters()), hashes(rounded.model.parameters())]
    for (const [name, hash] of was) if (!matrix.test(name)) assert.equal(now.get(name), hash, `${name} is as it was`)
    for (const slot of found.filter(({ owner }) => (owner as Linear).inFeatures % 64 === 0)) {
      const values = exact.model.parameters().get(slot.name)!.numel
      assert.equal(count([tensorAt(slot)]).elements, values, `${slot.name} counts its values`)
    }
    const bytes = count(rounded.model.parameters().values()).bytes
    const matrices = exact.model.slots().flatMap((s) => (matrix.test(s.name) ? [tensorAt(s)] : []))
    const ofRow = (columns: number) => (form === 'int8' ? columns + 4 : Math.ceil(columns / 64) * (32 + 4))
    const saved = matrices.reduce((n, t) => n + t.size(0) * (4 * t.size(1) - ofRow(t.size(1))), 0)
    assert.equal(
      bytes,
      exactBytes - saved,
      'a byte a value and a scale a row, or half a byte and a scale every 64 columns',
    )
    const largest = Math.max(...[...exact.model.parameters().values()].map((t) => 4 * t.numel))
    assert.ok(peak < bytes + 6 * largest, `${peak} bytes while loading, ${bytes} loaded, ${exactBytes} exactly`)
    for (const { model } of [exact, rounded]) for (const t of model.parameters().values()) t.dispose()
  })

const scenes = [0, 1, 2, 3].map((i) => sceneExample(makeScene(5, i)))

/** Log-probabilities of the captions of some regions. */
function logProbs(frozenWeights: FrozenForm): number[] {
  const family = Sa2VAFamily.open(miniature, { frozenWeights })
  const out = noGrad(() =>
    tidy(() =>
      scenes.flatMap(({ image, mask, caption }) => {
        const [features] = family.encode([family.prepare(image)])
        const pass = teacherForce(family.model, family.describe(features!, mask), [family.completion(caption)])
        return pass.logProbs().logps.numbers()
      }),
    ),
  )
  disposeModel(family)
  return out
}

test('log-probabilities of the miniature stay near the exact ones, and are others', () => {
  const exact = logProbs('exact')
  for (const [form, limit] of [
    ['int8', 0.05],
    ['nf4', 0.5],
  ] as const) {
    const rounded = logProbs(form)
    const far = Math.max(...exact.map((v, i) => Math.abs(v - rounded[i]!)))
    assert.ok(exact.length > 20 && far > limit / 500 && far < limit, `${form}: ${exact.length} tokens, ${far} apart`)
  }
})

test('an export has the bytes of the source, and with adapters those of an export from exact weights', () => {
  const lora = { rank: 4, alpha: 8, seed: 1 }
  const files = readdirSync(goldenFolder)
  const written = (name: string, frozenWeights: FrozenForm, divisor: number | null) => {
    const settings = { checkpointing, frozenWeights, model: goldenFolder, device: 'cpu', dtype: 'bfloat16' } as const
    const family = requireGrounded(openModel(resolveRun(settings)))
    addLora(family.adapter.on, family.adapter.targets, lora)
    if (divisor !== null) fillAdapters(family.module as never, divisor)
    const out = join(folder, name)
    family.export(out)
    disposeModel(family)
    return files.map((file) => readFileSync(join(out, file)))
  }
  const source = files.map((file) => readFileSync(join(goldenFolder, file)))
  const same = (a: readonly Buffer[], b: readonly Buffer[]) => a.every((bytes, i) => bytes.equals(b[i]!))
  const exact = written('exact', 'exact', 50)
  assert.ok(!same(exact, source), 'adapters that add something')
  for (const form of quantizedForms) {
    assert.ok(same(written(`untrained-${form}`, form, null), source), 'adapters that add nothing')
    assert.ok(same(written(`merged-${form}`, form, 50), exact), 'merged into the exact weights of the source')
  }
})

for (const frozenWeights of quantizedForms)
  test(`a run in ${frozenWeights} samples from the policy that it scores, and every group gets a gradient`, async () => {
    const o = await openRun(toyRun(toy, join(folder, 'none'), { frozenWeights, checkpointing }))
    try {
      const before = hashes(
        o.learner.family.module.slots().flatMap((s) => (isQuantized(tensorAt(s)) ? [[s.name, tensorAt(s)]] : [])),
      )
      const groups = await o.sample()
      assert.ok(
        groups.some((g) => samplesIn(g).some((s) => s.ids.length > 1)),
        'something was said',
      )
      const report = await o.learn(groups, 1e-3)
      const metrics = report.metrics(0)
      assert.ok(metrics['loop1/sampling/sampling_logp_difference/max']! < 1e-3, 'the sampler is the policy')
      for (const group of o.config.train) assert.ok(report.groupNorms[group]! > 0, `${group} gets a gradient`)
      const parameters = o.learner.family.module.parameters()
      assert.deepEqual(hashes([...before.keys()].map((name) => [name, parameters.get(name)!])), before)
    } finally {
      o.dispose()
    }
  })

for (const frozenWeights of quantizedForms)
  test(`merged weights in ${frozenWeights} sample and answer what separate adapters do in float32, the default on the CPU`, async () => {
    const story = async (weights: 'merged' | 'exact' | 'auto') => {
      const input = {
        frozenWeights,
        checkpointing,
        sampling: { weights },
        optim: { learningRate: 2e-2, emaDecay: 0.5 },
      }
      const o = await openRun(toyRun(toy, join(folder, 'none'), input))
      try {
        const rounds = []
        for (let step = 0; step < 2; step++) {
          const groups = await o.sample(step)
          rounds.push(groups)
          await o.learn(groups, 2e-2)
        }
        const all = rounds.flat()
        const said = all.map((g) => [g.samples.map((s) => s.text), g.replies.map((r) => (r as { text: string }).text)])
        return {
          said,
          logps: all.flatMap((g) => samplesIn(g).flatMap((s) => [...s.logps])),
          choice: o.learner.sampling,
        }
      } finally {
        o.dispose()
      }
    }
    const [merged, exact, auto] = [await story('merged'), await story('exact'), await story('auto')]
    assert.deepEqual(merged.said, exact.said)
    const far = Math.max(...merged.logps.map((v, i) => Math.abs(v - exact.logps[i]!)))
    assert.ok(far > 0 && far < 1e-4, `log-probs differ by ${far}`)
    assert.deepEqual(auto, { ...exact, choice: { weights: 'exact', why: null } })
  })

test('the start of a run says how it samples if memory decided', () => {
  const config = toyRun(toy, join(folder, 'none'), { frozenWeights: 'int8', checkpointing })
  const learner = new Learner(openModel(config), config)
  const lines = (sampling: SamplingChoice) => {
    const texts: string[] = []
    Object.assign(learner, { sampling })
    reportTrainables(learner, config, { progress: ({ text }) => void texts.push(text!) })
    return texts.filter((text) => text.includes('sampling'))
  }
  assert.deepEqual(lines(learner.sampling), [])
  const sizes = modelSizes(releasedConfig('internvl3-8b'))
  const onGpu = (gib: number) =>
    chooseSampling(sizes, { ...config, maxTiles: 1 }, { bytes: gib * 2 ** 30, kernels: true })
  const [large, small] = [lines(onGpu(139.8)), lines(onGpu(16))]
  assert.match(
    large.join(),
    /^ {2}sampling\.weights auto: merged, merged copies bring the planned peak to [\d.]+ GiB of 139\.8 GiB$/,
  )
  assert.match(
    small.join(),
    /^ {2}sampling\.weights auto: exact, merged copies bring the planned peak to [\d.]+ GiB of 16\.0 GiB$/,
  )
  disposeLearner(learner)
})

test('supervised learning on quantized matrices lowers the loss as much as on exact ones', async () => {
  const falls = { exact: 0, int8: 0, nf4: 0 }
  for (const frozenWeights of frozenForms) {
    const output = join(folder, `sft-${frozenWeights}`)
    const input = { checkpointing, frozenWeights, maxSteps: 8, saveSteps: 0, batchSize: 4, data: { shuffle: false } }
    const config = toyRun(toy, output, { ...input, dataPath: 'scenes:8', optim: { learningRate: 1e-2 } })
    await sft(config, { everything: false, maskWeight: 0, exportTo: null }, hostOf())
    const losses = readRun(output).events.flatMap((e) => (e.t === 'step' ? [e.metrics.loss!] : []))
    falls[frozenWeights] = losses[0]! - losses.at(-1)!
  }
  assert.ok(falls.exact > 0.5, `exact weights: ${falls.exact}`)
  for (const form of quantizedForms)
    assert.ok(Math.abs(falls[form] / falls.exact - 1) < 0.1, `exact ${falls.exact}, ${form} ${falls[form]}`)
})

test('settings that do not work with quantized weights are refused with a clear message', () => {
  for (const [form, bits] of [
    ['int8', 8],
    ['nf4', 4],
  ] as const) {
    const refused = (input: object, words: string) =>
      assert.throws(() => resolveRun({ frozenWeights: form, ...input }), new RegExp(words))
    refused({}, `settings: checkpointing: expected true with frozenWeights ${form}, got false`)
    const config = toyRun(toy, join(folder, 'none'), { frozenWeights: form, checkpointing })
    const family = openModel(config)
    assert.throws(
      () => new Learner(family, config, { everything: true }),
      new RegExp(`trainable: language_model\\.\\S+_proj\\.weight: expected .* exactly, got one in ${bits} bit`),
    )
    disposeModel(family)
  }
})

test('a run is not resumed with another form of its frozen weights', () => {
  const [exact, int8, nf4] = frozenForms.map((frozenWeights) =>
    decidingSettings(toyRun(toy, join(folder, 'none'), { checkpointing, frozenWeights }), 4),
  )
  assert.deepEqual(differences(exact!, int8!), ['frozenWeights: "exact", now "int8"'])
  assert.deepEqual(differences(int8!, nf4!), ['frozenWeights: "int8", now "nf4"'])
})
