// Runs of the point task on a plain Qwen3-VL: it trains, resumes, is evaluated and exported as a Qwen2.5-VL is.
import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { listCheckpoints, loadAdapter, openWeights } from '../../src/checkpoint/index.ts'
import { decodeImage } from '../../src/image/index.ts'
import { teacherForce } from '../../src/llm/index.ts'
import { openFamily, type QwenVLFamily } from '../../src/models/index.ts'
import { doctor, evaluateModel, type RunInput, resolveRun, storedSettings, train } from '../../src/run/index.ts'
import { coordinatesText, isInside, pixelAt, printedPoint, toModelFrame } from '../../src/tasks/index.ts'
import { noGrad, tidy } from '../../src/tensor/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { makeQwen3Policy } from '../support/qwen3-policy.ts'
import { hostOf, scratch, stoppingAfter } from '../support/runs.ts'

const assets = join(import.meta.dirname, '../../assets/points-miniature')
const golden = join(import.meta.dirname, '../fixtures/golden/qwen3_vl-tiny')
const folder = scratch('qwen3-run')
after(() => rmSync(folder, { recursive: true, force: true }))
const model = makeQwen3Policy(join(folder, 'model'))

const settings = (output: string, more: Partial<RunInput> = {}) =>
  resolveRun({
    ...{ task: 'points', model, output: join(folder, output), device: 'cpu', threads: 1, dataPath: 'neighbours:8' },
    ...{ evalRecords: 0, batchSize: 2, maxSteps: 3, saveSteps: 1, tensorboard: false, checkGroups: false },
    data: { workers: 0 },
    points: {
      sam: join(assets, 'sam2'),
      imageSize: 96,
      wording: 'short',
      keepEasy: null,
      maxPoints: 1,
      ...more.points,
    },
    rl: { numGenerations: 2, maxCompletionLength: 6, beta: 0 },
    optim: { learningRate: 1e-2 },
    lora: { rank: 4, alpha: 8 },
  })

const metricsOf = (output: string) =>
  readRun(output).events.flatMap((e) => (e.t === 'step' ? [e.metrics as Record<string, number>] : []))

const whole = settings('whole')
await train(whole, hostOf())

test('the coordinates of a run are those of the family, and are written down with its settings', () => {
  assert.equal(whole.points.coords, 'thousand')
  assert.equal(storedSettings(whole.output)['points.coords'], 'thousand')
  assert.equal(settings('own', { points: { coords: 'pixel' } }).points.coords, 'pixel')
  const older = resolveRun({ task: 'points', model: join(assets, 'policy'), points: { sam: 'x' } })
  assert.equal(older.points.coords, 'pixel')
})

test('coordinates of the golden set are the pixels, indices and printed numbers of the rule for thousandths', () => {
  const { coordinate_cases } = JSON.parse(readFileSync(join(golden, 'golden.json'), 'utf8'))
  assert.equal(coordinate_cases.length, 15)
  for (const one of coordinate_cases) {
    const place = toModelFrame(one.relative, 'thousand', one)
    assert.deepEqual(place, one.pixel)
    assert.equal(isInside(place, one), one.inside)
    assert.deepEqual(pixelAt(place, one, one), one.index)
    assert.deepEqual(printedPoint(one.index, 'thousand', one, one), one.printed)
  }
})

test('coordinates that the family was not trained to write are warned of', () => {
  const family = { name: 'qwen3_vl', coords: 'thousand' } as const
  assert.equal(coordinatesText(family, 'thousand'), 'points.coords thousand: coordinates are 0 to 1000 of the sides')
  assert.match(
    coordinatesText(family, 'pixel'),
    /^warning: points\.coords pixel: .*qwen3_vl was trained to write thousand$/,
  )
})

test('a run that stops after a step and resumes is the run that did not stop', async () => {
  const halves = settings('halves')
  await train(halves, stoppingAfter(1))
  await train(halves, hostOf())
  assert.deepEqual(metricsOf(halves.output), metricsOf(whole.output))
  assert.ok(metricsOf(whole.output).every((metrics) => metrics['grad_norm']! > 0))
})

/** Log-probabilities of a fixed answer about a picture. */
function scores(family: QwenVLFamily, picture: Parameters<QwenVLFamily['prepare']>[0]): number[] {
  const values = noGrad(() =>
    tidy(() => {
      const [features] = family.encode([family.prepare(picture)])
      const prompt = family.ask(features!, 'Where?')
      return teacherForce(family.model, prompt, [Int32Array.of(5, 6, 7)])
        .logProbs()
        .logps.numbers()
    }),
  )
  for (const t of family.module.parameters().values()) t.dispose()
  return values
}

test('its adapter has the names of PEFT, and the merged export scores as the adapter does', async () => {
  const open = (dir: string) => openFamily(dir, { dtype: 'float32' }) as QwenVLFamily
  const picture = await decodeImage(readFileSync(join(golden, 'image.png')))
  const adapter = listCheckpoints(whole.output)[0]!.path
  const { names } = openWeights(join(adapter, 'adapter_model.safetensors'))
  assert.equal(names.length, 2 * 4 * 3)
  assert.ok(
    names.every((name) => /^base_model\.model\.model\.language_model\.layers\.\d\.self_attn\.[qkvo]_/.test(name)),
  )
  const trained = open(model)
  loadAdapter(trained.module, adapter, { dropout: 0 })
  const merged = join(folder, 'merged')
  trained.export(merged)
  assert.deepEqual(openWeights(merged).names, openWeights(model).names)
  const [base, adapted, exported] = [
    scores(open(model), picture),
    scores(trained, picture),
    scores(open(merged), picture),
  ]
  assert.notDeepEqual(adapted, base)
  adapted.forEach((value, i) => {
    assert.ok(Math.abs(value - exported[i]!) < 1e-4, `${value} against ${exported[i]}`)
  })
})

test('it is evaluated, and the doctor passes', async () => {
  const { metrics, records } = await evaluateModel(settings('e'), { adapter: null, ema: false, records: 2 }, hostOf())
  assert.equal(records, 2)
  assert.ok(Number.isFinite(metrics['points/gain']!.mean))
  const failed = (await doctor(settings('doctor'), hostOf())).filter((finding) => finding.pass === false)
  assert.deepEqual(failed, [])
})
