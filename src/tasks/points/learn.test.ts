// Gradient flow, stopping, and what the image does, on the miniatures of the golden sets: nothing here needs to be good at the task.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { stream, streamId } from '../../core/index.ts'
import { makePointScene } from '../../data/index.ts'
import { type AskingFamily, openFamily, openSam2, patchImage, Sam2Predictor, teacherForce } from '../../models/index.ts'
import { AdamW } from '../../optim/index.ts'
import { grpoLoss, resolveGrpo } from '../../rl/index.ts'
import { backward, clearTape, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { resolvePoints } from './config.ts'
import { openItem, type PointItem, type PointSetup, releaseItem } from './item.ts'
import { adaptPolicy, learnPoints, snapshot } from './learn.ts'
import { askPoints, replyTo } from './reply.ts'

const golden = join(import.meta.dirname, '../../../tests/fixtures/golden')
const learning = { steps: 1, records: 1, samples: 2, learningRate: 1e-3, seed: 3, lora: { rank: 4, alpha: 8 } }
let setup: PointSetup
let params: Map<string, Tensor>
let item: PointItem

before(() => {
  const policy = openFamily(join(golden, 'qwen2_5_vl-tiny'), { dtype: 'float32' }) as AskingFamily
  const sam = new Sam2Predictor(openSam2(join(golden, 'sa2va-tiny'), { dtype: 'float32' }).model)
  setup = { policy, sam, config: resolvePoints({ imageSize: 112 }), maxNewTokens: 12 }
  params = adaptPolicy(setup, learning)
  item = openItem(setup, makePointScene(5, 1).record)
})
after(() => releaseItem(setup, item))

const grpo = resolveGrpo({ numGenerations: 2, maxCompletionLength: 12, beta: 0 })
const answers = () =>
  ['[[10,20]]', '[[90,7],[3,4]]'].map((t) => setup.policy.tokenizer.encode(`${t}<|im_end|>`, { addSpecial: false }))

/** One backward pass of two answers with the given advantages. */
function pull(advantages: readonly number[], completions = answers(), cut?: readonly number[]): void {
  tidy(() => {
    const { logps } = teacherForce(setup.policy.model, item.prompt, completions).logProbs(1)
    const T = logps.size(1)
    const on = completions.flatMap((ids, k) =>
      Array.from({ length: T }, (_, t) => (t < (cut?.[k] ?? ids.length) ? 1 : 0)),
    )
    const mask = tensor(Float32Array.from(on), [completions.length, T])
    backward(grpoLoss({ logps, mask, advantages: tensor(Float32Array.from(advantages)) }, grpo).loss)
  })
  clearTape()
}

function gradients(): Map<string, number> {
  return new Map([...params].map(([name, t]) => [name, tidy(() => t.grad()?.abs().sum().item() ?? 0)]))
}

function clearGradients(): void {
  for (const t of params.values()) t.setGrad(null)
}

test('lora_B learns in the first step, lora_A in the second, and nothing else ever changes', () => {
  const { module: model } = setup.policy
  const layers = 3
  assert.equal(params.size, 2 * 4 * layers)
  const frozen = [...model.parameters()].filter(([name]) => !params.has(name))
  const before = new Map(frozen.map(([name, t]) => [name, Float32Array.from(t.numbers())]))
  const start = snapshot(params)
  for (const [name, value] of start)
    if (/lora_B/.test(name))
      assert.ok(
        value.every((v) => v === 0),
        name,
      )
  const optim = new AdamW([{ params, weightDecay: 0 }])
  pull([1, -1])
  const grads = gradients()
  for (const [name, sum] of grads) if (/lora_A/.test(name)) assert.equal(sum, 0, name)
  for (let layer = 0; layer < layers; layer++)
    assert.ok([...grads].some(([name, sum]) => name.includes(`layers.${layer}.`) && Number.isFinite(sum) && sum > 0))
  optim.step(1e-3)
  const first = snapshot(params)
  const moved = (from: Map<string, Float32Array>, to: Map<string, Float32Array>, name: string) =>
    to.get(name)!.reduce((sum, v, i) => sum + Math.abs(v - from.get(name)![i]!), 0)
  for (const name of params.keys()) {
    if (/lora_A/.test(name)) assert.deepEqual(first.get(name), start.get(name))
    else assert.ok(moved(start, first, name) > 1e-10, name)
  }
  optim.zeroGrad()
  pull([1, -1])
  optim.step(1e-3)
  const second = snapshot(params)
  for (const name of params.keys()) if (/lora_A/.test(name)) assert.ok(moved(first, second, name) > 0, name)
  for (const [name, t] of frozen) assert.deepEqual(Float32Array.from(t.numbers()), before.get(name), name)
  clearGradients()
  optim.dispose()
})

test('equal rewards give no gradient at all', () => {
  pull([0, 0])
  for (const [name, sum] of gradients()) assert.equal(sum, 0, name)
  clearGradients()
})

test('log-probabilities taken while sampling cannot be learned from', () => {
  const logps = noGrad(() => teacherForce(setup.policy.model, item.prompt, answers()).logProbs(1).logps)
  assert.throws(() => backward(logps.sum()))
  logps.dispose()
})

test('tokens after the stop do not count, the stop does', () => {
  const plain = answers()
  const longer = plain.map((ids) => Int32Array.from([...ids, 40, 41, 42]))
  const lengths = plain.map((ids) => ids.length)
  const gradientOf = (completions: Int32Array[], cut: number[]) => {
    pull([1, -1], completions, cut)
    const out = [...gradients().values()]
    clearGradients()
    return out
  }
  const want = gradientOf(plain, lengths)
  gradientOf(longer, lengths).forEach((sum, i) => {
    assert.ok(Math.abs(sum - want[i]!) <= 1e-4 * Math.max(1e-3, want[i]!))
  })
  const without = gradientOf(
    plain,
    lengths.map((n) => n - 1),
  )
  assert.ok(without.some((sum, i) => Math.abs(sum - want[i]!) > 1e-3 * want[i]!))
})

test('another image changes the log-probabilities of the same answers to the same question', () => {
  const random = (_: number, k: number) => stream(streamId.test, 'points', k)
  const [texts] = askPoints(setup, [item], { samples: 3, temperature: 1, random })
  const scoresOn = (of: PointItem) =>
    noGrad(() =>
      tidy(() =>
        teacherForce(
          setup.policy.model,
          of.prompt,
          texts!.map((t) => t.ids),
        )
          .logProbs(1)
          .logps.numbers(),
      ),
    )
  const other = openItem(setup, {
    ...makePointScene(5, 2).record,
    query: item.record.query,
    points: item.positive.points,
    mask: item.record.mask,
  })
  assert.deepEqual(other.prompt.ids, item.prompt.ids)
  const [here, there] = [scoresOn(item), scoresOn(other)]
  assert.ok(here.some((v, i) => Math.abs(v - there[i]!) > 1e-4))
  releaseItem(setup, other)
})

test('the prompt of an image has a token for every four patches, and none without its pixels', () => {
  const { policy } = setup
  for (const [side, patches] of [
    [448, 1024],
    [112, 64],
  ] as const) {
    const image = patchImage({ width: side, height: side, data: new Uint8Array(3 * side * side) })
    assert.equal(image.rows * image.columns, patches)
    assert.equal(image.pixels.length, patches * 1176)
  }
  const tokens = item.prompt.ids.filter((id) => id === policy.imageIds[0]).length
  assert.equal(tokens, 16)
  assert.throws(() => policy.model.promptEmbeddings({ ids: item.prompt.ids, images: [] } as never), /image tokens/)
})

test('SAM2 reads each image once, whatever the number of answers, and decodes only what was corrected', () => {
  const { sam } = setup
  const [encodes, prompts] = [sam.encodes, sam.prompts]
  const opened = openItem(setup, makePointScene(5, 3).record)
  const texts = ['[[10,20]]', '[[60,20]]', '[[10,20],[70,70]]', '[]', 'nonsense', ' [[60, 20]]'].map((text) => ({
    ids: new Int32Array(0),
    text,
    finished: true,
    logps: new Float32Array(0),
  }))
  const replies = replyTo(setup, opened, texts)
  assert.equal(sam.encodes - encodes, 1)
  assert.equal(sam.prompts - prompts, 1 + 3)
  assert.deepEqual(
    replies.map((r) => [r.answer.valid, r.mask1 !== null]),
    [
      [true, true],
      [true, true],
      [true, true],
      [true, false],
      [false, false],
      [true, true],
    ],
  )
  assert.deepEqual(replies[5]!.mask1, replies[1]!.mask1, 'said twice, drawn once')
  releaseItem(setup, opened)
})

test('a learning rate of 0 changes nothing to the digit', () => {
  const start = snapshot(params)
  const records = (i: number) => makePointScene(5, i).record
  learnPoints(setup, params, records, { ...learning, learningRate: 0 })
  assert.deepEqual(snapshot(params), start)
})
