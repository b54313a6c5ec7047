// What bfloat16 may cost: the model computes in it, except where the last bits decide (angles of positions, scores). Compared with
// float32 arithmetic on the same rounded weights, on the trained miniature.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { generate, teacherForce } from '../../src/llm/index.ts'
import { maskIou } from '../../src/mask/index.ts'
import { type Loaded, openSa2VA, prepareImage } from '../../src/models/index.ts'
import { replaceTensor, tensorAt, trainOnly } from '../../src/nn/index.ts'
import { makeScene, sceneExample } from '../../src/scenes/index.ts'
import { clearTape, noGrad, tidy } from '../../src/tensor/index.ts'

const folder = fileURLToPath(new URL('../../assets/miniature', import.meta.url))
const half = openSa2VA(folder, { dtype: 'bfloat16' })
const wide = openSa2VA(folder, { dtype: 'float32' })
for (const slot of wide.model.slots())
  replaceTensor(
    slot,
    tidy(() => tensorAt(slot).to('bfloat16').to('float32')),
  )
after(() => {
  for (const { model } of [half, wide]) for (const t of model.parameters().values()) t.dispose()
})
const scenes = [0, 1, 2, 3].map((i) => sceneExample(makeScene(5, i)))

/** Log-probs of the scene's caption and of the answer with its mask, each after its question. */
function scored({ model, prompter, cfg }: Loaded, { image, mask, caption }: (typeof scenes)[number]) {
  return noGrad(() =>
    tidy(() => {
      const features = model.encode(prepareImage(image, cfg))
      const ids = (text: string) => prompter.tokenizer.encode(`${text}<|end|>`)
      const described = teacherForce(model, prompter.describe(features, mask), [ids(caption)])
      const answer = ids('Sure, it is [SEG].')
      const found = teacherForce(model, prompter.segment(features, caption), [answer])
      const state = found.stateAt(0, answer.indexOf(prompter.segId))
      const { logits } = model.drawMasks(features, model.segPrompts(state), [0])
      const both = [described, found].map((pass) => pass.logProbs())
      return {
        logps: both.flatMap(({ logps }) => logps.numbers()),
        entropies: both.flatMap(({ entropies }) => entropies.numbers()),
        mask: model.finishMasks(features, logits)[0]!,
      }
    }),
  )
}

const worst = (a: readonly number[], b: readonly number[]) => Math.max(...a.map((v, i) => Math.abs(v - b[i]!)))

test('log-probs and entropies are within 0.05 of float32 on the same weights, and masks overlap by 0.97', () => {
  const overlaps = scenes.map((scene) => {
    const [a, b] = [scored(half, scene), scored(wide, scene)]
    assert.ok(worst(a.logps, b.logps) < 0.05, `log-probs differ by ${worst(a.logps, b.logps)}`)
    assert.ok(worst(a.entropies, b.entropies) < 0.05, `entropies differ by ${worst(a.entropies, b.entropies)}`)
    return maskIou(a.mask, b.mask)
  })
  assert.ok(overlaps.reduce((sum, v) => sum + v, 0) / overlaps.length > 0.97, overlaps.join())
})

test('a model opened in bfloat16 computes in it, also when every weight is a float32 master that trains', () => {
  const own = openSa2VA(folder, { dtype: 'bfloat16' })
  trainOnly(own.model, [/./])
  const { model, prompter, cfg } = own
  assert.equal(model.placement.dtype, 'bfloat16')
  tidy(() => {
    const features = model.encode(prepareImage(scenes[0]!.image, cfg))
    const prompt = prompter.segment(features, scenes[0]!.caption)
    const pass = teacherForce(model, prompt, [prompter.tokenizer.encode('It is [SEG].')])
    const activations = { vision: features.vision, sam: features.sam.level2, hidden: pass.hidden }
    for (const [name, t] of Object.entries(activations)) assert.deepEqual([name, t.dtype], [name, 'bfloat16'])
    const [row] = generate(model, prompter.tokenizer, [prompt], { maxNewTokens: 12, stopStrings: ['<|end|>'] })
    assert.match(row!.text, /\[SEG\]/)
  })
  clearTape()
  for (const t of model.parameters().values()) t.dispose()
})
