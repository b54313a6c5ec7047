import assert from 'node:assert/strict'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { openWeights, readTensors } from '../../src/checkpoint/index.ts'
import { stream, streamId } from '../../src/core/index.ts'
import { alone, type World } from '../../src/distributed/index.ts'
import { teacherForce } from '../../src/llm/index.ts'
import { toDense } from '../../src/mask/index.ts'
import type { GroundedFamily } from '../../src/models/index.ts'
import { evaluateModel, type RunConfig, sft } from '../../src/run/index.ts'
import { type SupervisedRecord, supervisedLoss } from '../../src/tasks/index.ts'
import { backward, tensor, tidy } from '../../src/tensor/index.ts'
import { chatTemplate, regionQuestions, segmentAnswers, segmentQuestions } from '../../src/text/index.ts'
import { expandImage } from '../../src/text/prompts.ts'
import { readRun } from '../../src/tracking/index.ts'
import { encodeConversation, ignoreLabel } from '../support/conversation.ts'
import {
  changed,
  hashes,
  hostOf,
  makeToy,
  openRun,
  runBytes,
  scratch,
  stoppingAfter,
  storedWeights,
  toyRun,
} from '../support/runs.ts'

const folder = scratch('sft')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

const plain = { everything: false, maskWeight: 1, exportTo: null }
const open = (config: RunConfig) => openRun(config, 2)
const config = (name: string, input: Parameters<typeof toyRun>[2] = {}) =>
  toyRun(toy, join(folder, name), {
    maxSteps: 1,
    saveSteps: 1,
    lora: { dropout: 0 },
    data: { shuffle: false },
    optim: { learningRate: 2e-2, emaDecay: 0.9 },
    ...input,
  })

test('dropout takes no part in an evaluation: its metrics are those of the saved weights alone', async () => {
  const config = toyRun(toy, join(folder, 'run'), {
    maxSteps: 2,
    saveSteps: 0,
    evalRecords: 4,
    train: ['lora'],
    optim: { learningRate: 2e-2 },
    lora: { dropout: 0.5 },
    rl: { maxCompletionLength: 8 },
  })
  const { after: trained } = await sft(config, { everything: false, maskWeight: 0, exportTo: null }, hostOf())
  assert.ok(trained!['mask/giou']!.mean > 0, 'masks that meet nothing could not tell dropout from none')
  const data = { ...config.data, split: 'eval' as const }
  const options = { adapter: config.output, ema: false, records: 4 }
  const alone = await evaluateModel({ ...config, data }, options, hostOf())
  assert.deepEqual(trained, alone.metrics)
})

/** Cross-entropy of one answer, summed, and the mask logits of its [SEG] where it has one. */
function readAnswer(family: GroundedFamily, features: object, prompt: never, answer: Int32Array) {
  const pass = teacherForce(family.model, prompt, [answer])
  const nll = -pass.logProbs().logps.sum().item()
  const at = answer.indexOf(family.segId)
  const logits = at < 0 ? null : family.drawMasks(features, family.segPrompts(pass.stateAt(0, at))).logits
  return { nll, tokens: answer.length, logits }
}

/** 2 BCE + 0.5 Dice over all pixels, in plain numbers; the target is the mask at the nearest pixel of each cell. */
function maskTerm(logits: number[], target: number[]): number {
  const p = logits.map((x) => 1 / (1 + Math.exp(-x)))
  const sum = (of: (i: number) => number) => p.reduce((n, _, i) => n + of(i), 0)
  const bce = -sum((i) => (target[i] ? Math.log(p[i]!) : Math.log(1 - p[i]!))) / p.length
  const dice = 1 - (2 * sum((i) => p[i]! * target[i]!) + 1) / (sum((i) => p[i]!) + sum((i) => target[i]!) + 1)
  return 2 * bce + 0.5 * dice
}

test('the supervised loss is the one written out: nll per token of each kind, and the weighted mask terms', async () => {
  const o = await open(config('none'))
  const { family } = o.cycle
  const records: SupervisedRecord[] = o.items.map(({ example }) => ({ example, input: family.prepare(example.image) }))
  const random = () => stream(7, streamId.rows, 1)
  const maskWeight = 0.3
  tidy(() => {
    const { loss } = supervisedLoss(family, records, random(), { trainEncoders: false, maskWeight })
    const words = random()
    const described = o.items.map(({ features, example }) => {
      const prompt = family.describe(features, example.mask, words.pick(regionQuestions))
      return readAnswer(family, features, prompt as never, family.completion(example.caption, { words: true }))
    })
    const segmented = o.items.map(({ features, example }) => {
      const prompt = family.segment(features, { question: words.pick(segmentQuestions(example.caption)) })
      return readAnswer(family, features, prompt as never, family.completion(words.pick(segmentAnswers)))
    })
    const perToken = (rows: typeof described) =>
      rows.reduce((n, r) => n + r.nll, 0) / rows.reduce((n, r) => n + r.tokens, 0)
    const masks = segmented.map(({ logits }, i) => {
      const [, h, w] = logits!.shape as [number, number, number]
      const { mask } = o.items[i]!.example
      const dense = toDense(mask)
      const cells = Array.from({ length: h * w }, (_, at) => {
        const y = Math.floor((Math.floor(at / w) * mask.height) / h)
        return dense[y * mask.width + Math.floor(((at % w) * mask.width) / w)]!
      })
      return maskTerm(logits!.numbers(), cells)
    })
    const expected = perToken(described) + perToken(segmented) + (maskWeight * (masks[0]! + masks[1]!)) / 2
    assert.ok(Math.abs(loss.item() - expected) < 1e-4, `${loss.item()} against ${expected}`)
    const part = (own: number) => {
      const read = records.map((record, i) => (i === own ? record : { ...record, input: null }))
      return supervisedLoss(family, read, random(), { trainEncoders: false, maskWeight }).loss.item()
    }
    const sum = part(0) + part(1)
    assert.ok(Math.abs(sum - expected) < 1e-4, `the parts of two processes add up to ${sum}, expected ${expected}`)
  })
  o.dispose()
})

test("a row is encoded as the reference's trainer does: prompt, answer with its end and with loss, separator", async () => {
  const o = await open(config('none'))
  const { family } = o.cycle
  const template = chatTemplate('phi3_chat')
  for (const { features, example } of o.items) {
    const prompt = family.describe(features, example.mask, regionQuestions[1])
    const answer = family.completion(example.caption, { words: true })
    const images = (features as { tiles: number }).tiles * 16
    const { imagePositions } = prompt as unknown as { imagePositions: number[] }
    const parts = { numTiles: 1, tokensPerTile: images, regionTokens: [imagePositions.length - images] }
    const turn = { input: expandImage(regionQuestions[1]!, parts), output: example.caption }
    const { inputIds, labels } = encodeConversation([turn], template, family.tokenizer, { maxLength: 8192 })
    const end = prompt.ids.length + answer.length
    assert.deepEqual([...inputIds.subarray(0, end)], [...prompt.ids, ...answer])
    assert.deepEqual([...labels.subarray(0, end)], [...prompt.ids.map(() => ignoreLabel), ...answer])
    assert.ok(labels.subarray(end).every((label) => label === ignoreLabel))
  }
  o.dispose()
})

test('the gradient of a supervised step is the mean over its records, and the EMA copy follows it', async () => {
  const settings = config('mean', { batchSize: 1, rl: { gradientAccumulationSteps: 2 } })
  await sft(settings, plain, hostOf())
  const o = await open(settings)
  const { family } = o.cycle
  let mean = 0
  o.items.forEach(({ id, example }, micro) => {
    const random = stream(settings.seed, streamId.rows, 0, micro, id)
    const record = { example, input: family.prepare(example.image) }
    tidy(() => {
      const { loss } = supervisedLoss(family, [record], random, { trainEncoders: false, maskWeight: 1 })
      mean += loss.item() / 2
      backward(loss.div(2))
    })
  })
  const norm = o.learner.optim.clipGradNorm(Number.POSITIVE_INFINITY)
  o.dispose()
  const [logged] = readRun(settings.output).events.filter((e) => e.t === 'step')
  assert.ok(Math.abs(logged!.metrics!.grad_norm! / norm - 1) < 1e-4, `${logged!.metrics!.grad_norm} against ${norm}`)
  assert.ok(Math.abs(logged!.metrics!.loss! - mean) < 1e-4, `${logged!.metrics!.loss} against ${mean}`)
  const [start, trained] = [0, 1].map((step) => storedWeights(settings.output, step, ['trainables', 'adapter_model']))
  const ema = storedWeights(settings.output, 1, ['ema'])
  let moved = 0
  for (const [name, values] of ema) {
    const [before, now] = [start!.get(name)!, trained!.get(name)!]
    values.forEach((value, i) => {
      assert.ok(Math.abs(value - (0.9 * before[i]! + 0.1 * now[i]!)) < 1e-6, `${name} is its closed form`)
      if (now[i] !== before[i]) moved++
    })
  }
  assert.ok(moved > 100, `${moved} values moved`)
})

test('gradients above maxGradNorm are scaled by one factor; 0 leaves them as they are', async () => {
  const run = async (name: string, maxGradNorm: number) => {
    const settings = config(name, { optim: { learningRate: 1e-3, emaDecay: 0.9, maxGradNorm } })
    await sft(settings, plain, hostOf())
    const [step] = readRun(settings.output).events.filter((e) => e.t === 'step')
    const moments = [...storedWeights(settings.output, 1, ['optimizer'])].filter(([key]) => key.endsWith('.exp_avg'))
    return { norm: step!.metrics!.grad_norm!, values: moments.flatMap(([, values]) => [...values]) }
  }
  const free = await run('free', 0)
  const clipped = await run('clipped', free.norm / 4)
  assert.equal(clipped.norm, free.norm, 'the logged norm is that before')
  const largest = Math.max(...free.values.map(Math.abs))
  assert.ok(largest > 0)
  const bound = 16 * 2 ** -24 + 4e-6 / free.norm // float32, and what libtorch adds to the norm
  for (const [i, value] of free.values.entries())
    assert.ok(Math.abs(clipped.values[i]! - value / 4) <= bound * largest, `${i}: ${clipped.values[i]}, ${value}`)
})

test('adapters have a dropout of 0.05 unless it is set', async () => {
  const dropoutOf = async (name: string, dropout: number | null) => {
    const settings = config(name, { lora: { dropout } })
    await sft(settings, plain, hostOf())
    const file = join(settings.output, 'checkpoint_step_1', 'adapter_config.json')
    return JSON.parse(readFileSync(file, 'utf8')).lora_dropout
  }
  assert.deepEqual([await dropoutOf('usual', null), await dropoutOf('set', 0.25)], [0.05, 0.25])
})

test('a run that is stopped exports nothing', async () => {
  const exportTo = join(folder, 'stopped-export')
  const settings = config('stopped', { maxSteps: 3 })
  const { stopped, step, exported } = await sft(settings, { ...plain, exportTo }, stoppingAfter(1))
  assert.deepEqual([stopped, step, exported, existsSync(exportTo)], [true, 1, null, false])
})

const words = ['language_model.model.embed_tokens.weight', 'language_model.lm_head.weight']

test('embeddings and head train when they are named, are exported, and nothing else changes', async () => {
  const exportTo = join(folder, 'export')
  await sft(config('words', { train: ['embeddings', 'head'] }), { ...plain, exportTo }, hostOf())
  const bytes = (dir: string) => tidy(() => hashes(readTensors(openWeights(dir), 'cpu')))
  assert.deepEqual(changed(bytes(toy), bytes(exportTo)).sort(), [...words].sort())
  const o = await open(config('none', { train: ['embeddings', 'head', 'mask_decoder'] }))
  const { groupNorms } = await o.learn(await o.sample(), 1e-3)
  o.dispose()
  for (const group of ['embeddings', 'head']) assert.ok(groupNorms[group]! > 0, `${group} has a gradient in both loops`)
})

/** Gradients of these steps, counted from 1, are not finite. */
function poisoned(bad: readonly number[]): World {
  let step = 0
  return {
    ...alone,
    sumGradients: async (parameters) => {
      if (!bad.includes(++step)) return
      const [first] = parameters.values()
      tidy(() => first!.setGrad(tensor(new Float32Array(first!.numel).fill(Number.NaN), [...first!.shape])))
    },
  }
}

test('onNonFinite skip leaves weights, EMA and optimizer of sft as they were; three in a row end it', async () => {
  const run = (name: string, bad: readonly number[], onNonFinite: 'skip' | 'stop' = 'skip') =>
    sft(config(name, { maxSteps: 5, saveTotalLimit: 9, onNonFinite }), plain, hostOf(), poisoned(bad))
  assert.equal((await run('skip', [2, 3, 5])).step, 5)
  const stored = [1, 2, 3, 4, 5].map((step) => weightsAt('skip', step))
  for (const skipped of [2, 3, 5]) assert.deepEqual(stored[skipped - 1], stored[skipped - 2], `step ${skipped}`)
  assert.notDeepEqual(stored[3], stored[2], 'the step after two skipped ones learns')
  const warnings = readRun(join(folder, 'skip')).events.filter((e) => e.t === 'warning' && e.kind === 'non-finite')
  assert.deepEqual(
    warnings.map((e) => e.step),
    [2, 3, 5],
  )
  for (const [bad, how, message] of [
    [[2, 3, 4], 'skip', /sft: learning: .*3 updates in a row skipped/],
    [[2], 'stop', /step 2: gradient norm: expected a finite number, got NaN.*onNonFinite skip/],
  ] as const)
    await assert.rejects(run(`ends-${how}`, bad, how), (error: Error & { exitCode?: number }) => {
      assert.match(error.message, message)
      assert.equal(error.exitCode, 76)
      return true
    })
})

/** Hashes of all tensors of a checkpoint: weights, EMA and optimizer. */
function weightsAt(name: string, step: number): Map<string, string> {
  const inStep = `checkpoint_step_${step}/`
  const files = [...runBytes(join(folder, name))].filter(([path]) => path.startsWith(inStep))
  const tensors = files.filter(([path]) => path.endsWith('.safetensors'))
  assert.ok(tensors.length >= 3, `${files.map(([path]) => path)}`)
  return new Map(tensors.map(([path, hash]) => [path.slice(inStep.length), hash]))
}
