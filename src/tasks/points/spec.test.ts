// The tests that the task's specification lists by number, on the miniatures of the golden sets: nothing here needs to be good at the
// task. Number 5 is src/verify/points.test.ts and src/sam/sam2/heads.test.ts, number 7 tests/e2e/points.test.ts.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { stream, streamId } from '../../core/index.ts'
import { teacherForce, teacherForceGroups } from '../../llm/index.ts'
import { openFamily, patchImage, type VqaFamily } from '../../models/index.ts'
import { addLora, tensorAt } from '../../nn/index.ts'
import { AdamW } from '../../optim/index.ts'
import { grpoLoss, resolveGrpo } from '../../rl/index.ts'
import { openSam2, Sam2Predictor } from '../../sam/index.ts'
import { makePointScene } from '../../scenes/index.ts'
import { backward, clearTape, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { resolvePoints } from './config.ts'
import { openItem, type PointItem, type PointSetup, releaseItem } from './item.ts'
import { askPoints, replyTo } from './reply.ts'

const golden = join(import.meta.dirname, '../../../tests/fixtures/golden')
let setup: PointSetup
let params: Map<string, Tensor>
let item: PointItem

before(() => {
  const policy = openFamily(join(golden, 'qwen2_5_vl-tiny'), { dtype: 'float32' }) as VqaFamily
  const sam = new Sam2Predictor(openSam2(join(golden, 'sa2va-tiny'), { dtype: 'float32' }).model)
  setup = { policy, sam, config: resolvePoints({ imageSize: 112 }), maxNewTokens: 12 }
  const { on, targets } = policy.adapter
  addLora(on, targets, { rank: 4, alpha: 8, seed: 3 })
  const adapters = policy.module.slots().filter((slot) => /\.lora_[AB]\.weight$/.test(slot.name))
  params = new Map(adapters.map((slot) => [slot.name, tensorAt(slot)]))
  for (const t of params.values()) t.requiresGrad_(true)
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

/** The tensors that learn, as plain data. */
function snapshot(of: ReadonlyMap<string, Tensor>): Map<string, Float32Array> {
  return new Map([...of].map(([name, t]) => [name, Float32Array.from(t.numbers())]))
}

function clearGradients(): void {
  for (const t of params.values()) t.setGrad(null)
}

test('test 1, gradient flow: lora_B learns in the first step, lora_A in the second, and nothing else ever changes', () => {
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
    assert.ok(
      [...grads].some(([name, sum]) => name.includes(`layers.${layer}.`) && Number.isFinite(sum) && sum > 0),
      `layer ${layer}`,
    )
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

test('test 1, control: equal rewards give no gradient at all', () => {
  pull([0, 0])
  for (const [name, sum] of gradients()) assert.equal(sum, 0, name)
  clearGradients()
})

test('test 1, control: log-probabilities taken while sampling cannot be learned from', () => {
  const logps = noGrad(() => teacherForce(setup.policy.model, item.prompt, answers()).logProbs(1).logps)
  assert.throws(() => backward(logps.sum()))
  logps.dispose()
})

test('test 4, stop: tokens after the stop do not count, the stop does', () => {
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
    assert.ok(Math.abs(sum - want[i]!) <= 1e-4 * Math.max(1e-3, want[i]!), `${sum} against ${want[i]}`)
  })
  const without = gradientOf(
    plain,
    lengths.map((n) => n - 1),
  )
  assert.ok(
    without.some((sum, i) => Math.abs(sum - want[i]!) > 1e-3 * want[i]!),
    'the stop counts',
  )
})

test('test 2, the model sees the image: another one changes the log-probabilities of the same answers to the same question', () => {
  const random = (_: number, k: number) => stream(streamId.test, 'points', k)
  const [texts] = askPoints(setup, [item], { rl: grpo, samples: 3, random })
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
  assert.ok(
    here.some((v, i) => Math.abs(v - there[i]!) > 1e-4),
    'the image has a say',
  )
  releaseItem(setup, other)
})

test('test 2, vision-language input: the prompt of an image has a token for every four patches, and none without its pixels', () => {
  const { policy } = setup
  for (const [side, patches] of [
    [840, 3600],
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

test('test 3, temperature and mask: what the sampler noted of each token is what the training pass computes', () => {
  const random = (_: number, k: number) => stream(streamId.test, 'consistency', k)
  for (const temperature of [1, 0.7]) {
    const [texts] = noGrad(() => askPoints(setup, [item], { rl: { ...grpo, temperature }, samples: 4, random }))
    const completions = texts!.map((t) => t.ids)
    const again = noGrad(() =>
      tidy(() => {
        const { logps } = teacherForce(setup.policy.model, item.prompt, completions).logProbs(temperature)
        return { width: logps.size(1), numbers: logps.numbers() } as never
      }),
    ) as { width: number; numbers: number[] }
    texts!.forEach(({ logps }, k) => {
      logps.forEach((noted, t) => {
        const got = again.numbers[k * again.width + t]!
        assert.ok(
          Math.abs(got - noted) <= 1e-5 * Math.max(1, Math.abs(noted)),
          `temperature ${temperature}, answer ${k}, token ${t}: ${got}, ${noted}`,
        )
      })
    })
  }
})

test('test 6, batch invariance: prompts of different lengths in one pass score as each alone', () => {
  const longer = openItem(setup, { ...makePointScene(5, 2).record, query: 'the very small red cup on the left' })
  assert.notEqual(longer.prompt.ids.length, item.prompt.ids.length)
  const [first, second] = answers()
  const groups = [[first!, second!], [second!]]
  const prompts = [item.prompt, longer.prompt]
  const scores = (of: number[]) =>
    noGrad(() =>
      tidy(
        () =>
          teacherForceGroups(
            setup.policy.model,
            of.map((i) => prompts[i]!),
            of.map((i) => groups[i]!),
          )
            .logProbsByPrompt(1)
            .map(({ logps }) => logps.sum().item()) as never,
      ),
    ) as number[]
  const [together, apart] = [scores([0, 1]), [...scores([0]), ...scores([1])]]
  together.forEach((sum, i) => {
    assert.ok(Math.abs(sum - apart[i]!) <= 1e-4, `prompt ${i}: ${sum} in the batch, ${apart[i]} alone`)
  })
  releaseItem(setup, longer)
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
