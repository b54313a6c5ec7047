import assert from 'node:assert/strict'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { box, picture } from '../../../tests/support/sa2va.ts'
import { Mismatch } from '../../core/index.ts'
import { generate, teacherForce, teacherForceGroups } from '../../llm/index.ts'
import { maskFromDense } from '../../mask/index.ts'
import { backward, memory, noGrad, type Tensor, tidy } from '../../tensor/index.ts'
import { prepareQwenImage, type QwenGroundedFeatures } from './inputs.ts'
import { type LoadedSa2VAQwen, openSa2VAQwen } from './load.ts'

const golden = join(import.meta.dirname, '../../../tests/fixtures/golden')
const sets = { 'Qwen2.5-VL': 'sa2va-qwen2_5_vl-tiny', 'Qwen3-VL': 'sa2va-qwen3vl-tiny' }

function open(set: string, region?: 'overlay' | 'cells'): LoadedSa2VAQwen {
  return openSa2VAQwen(join(golden, set), { dtype: 'float32', region })
}

function free({ model }: LoadedSa2VAQwen): void {
  for (const t of model.parameters().values()) t.dispose()
}

function featuresOf(loaded: LoadedSa2VAQwen, width: number, height: number): QwenGroundedFeatures {
  return loaded.model.encode(prepareQwenImage(picture(width, height), loaded.cfg, loaded.processor))
}

function freeFeatures({ tokens, deepstack, sam, picture: bytes }: QwenGroundedFeatures): void {
  for (const t of [tokens, ...deepstack, sam.level0, sam.level1, sam.level2, bytes]) t.dispose()
}

function close(a: Tensor, b: Tensor, limit: number): void {
  assert.deepEqual(a.shape, b.shape)
  const [x, y] = [a.numbers(), b.numbers()]
  const worst = x.reduce((most, value, i) => Math.max(most, Math.abs(value - y[i]!)), 0)
  assert.ok(worst <= limit, `${worst} apart`)
}

for (const [name, set] of Object.entries(sets)) {
  describe(`Sa2VA on ${name}`, () => {
    const loaded = open(set)
    const { model, prompter } = loaded
    const features = featuresOf(loaded, 150, 104)
    const other = featuresOf(loaded, 90, 140)
    after(() => {
      for (const f of [features, other]) freeFeatures(f)
      free(loaded)
    })
    const long = prompter.segment(features, 'the large red circle on the left')
    const short = prompter.segment(other, 'it')
    const answer = prompter.tokenizer.encode('Sure, it is [SEG].<|im_end|>')

    test('a batch of prompts of different pictures gives what each gives alone', () => {
      tidy(() => {
        const options = { maxNewTokens: 6, stopStrings: [] }
        const both = generate(model, prompter.tokenizer, [long, short], options)
        const alone = [long, short].map((p) => generate(model, prompter.tokenizer, [p], options)[0]!)
        assert.deepEqual(
          both.map((r) => [...r.ids]),
          alone.map((r) => [...r.ids]),
        )
      })
    })

    test('pictures of different grids that are encoded together give what each gives alone', () => {
      tidy(() => {
        const images = [picture(150, 104), picture(90, 140)].map((image) =>
          prepareQwenImage(image, loaded.cfg, loaded.processor),
        )
        const together = noGrad(() => model.encodeAll(images))
        for (const [i, alone] of [features, other].entries()) {
          const { tokens, deepstack, sam, ...rest } = together[i]!
          const pairs = [[tokens, alone.tokens], ...deepstack.map((t, j) => [t, alone.deepstack[j]!])] as const
          for (const [a, b] of pairs) close(a!, b!, 1e-5)
          for (const level of ['level0', 'level1', 'level2'] as const) close(sam[level], alone.sam[level], 1e-4)
          const { rows, columns, height, width } = alone
          assert.deepEqual({ ...rest, picture: 0 }, { rows, columns, height, width, picture: 0 })
        }
      })
    })

    test('phrases of one picture read it once and answer as if each had read it', () => {
      tidy(() => {
        const prompts = ['the circle', 'the square on the right', 'it'].map((p) => prompter.segment(features, p))
        assert.ok(model.sharedPrefix(prompts[0]!, prompts[1]!) > features.tokens.size(0))
        assert.equal(model.sharedPrefix(long, short), 0)
        const options = { maxNewTokens: 5, stopStrings: [] }
        assert.deepEqual(
          generate(model, prompter.tokenizer, prompts, options).map((r) => [...r.ids]),
          prompts.map((p) => [...generate(model, prompter.tokenizer, [p], options)[0]!.ids]),
        )
      })
    })

    test('the state of a generated [SEG] is the one of the teacher-forced pass', () => {
      tidy(() => {
        const options = { maxNewTokens: 3, stopStrings: [] }
        const [first] = generate(model, prompter.tokenizer, [long], options)
        // any token will do: the first one that the model says
        const [row] = generate(model, prompter.tokenizer, [long], { ...options, segId: first!.ids[0] })
        const forced = teacherForce(model, long, [row!.ids]).stateAt(0, row!.segAt[0]!)
        close(row!.segStates!.narrow(0, 0, 1), forced, 1e-4)
      })
    })

    test('rows padded on the right, and recomputed layers, give the same log-probabilities and gradients', () => {
      const weight = model.model.model.language_model.layers[1]!.self_attn as unknown as { q_proj: { weight: Tensor } }
      const w = weight.q_proj.weight
      const run = (of: () => Tensor) => {
        w.requiresGrad_(true)
        const out = tidy(() => {
          const logps = of()
          backward(logps.sum())
          return logps.numbers()
        })
        const grad = w.grad()!.numbers()
        w.setGrad(null)
        w.requiresGrad_(false)
        return { out, grad }
      }
      const plain = run(() => teacherForce(model, long, [answer]).logProbs().logps)
      const again = run(() => teacherForce(model, long, [answer], { checkpointing: true }).logProbs().logps)
      assert.deepEqual(again.out, plain.out)
      const worst = again.grad.reduce((most, g, i) => Math.max(most, Math.abs(g - plain.grad[i]!)), 0)
      assert.ok(worst < 1e-5, `${worst}`)
      noGrad(() =>
        tidy(() => {
          const rows = teacherForceGroups(model, [short, long], [[answer], [answer]]).logProbs().logps
          close(rows.narrow(0, 1, 1).flatten(), teacherForce(model, long, [answer]).logProbs().logps.flatten(), 1e-4)
        }),
      )
    })

    test('a mask is drawn at the size of the picture', () => {
      tidy(() => {
        const state = teacherForce(model, long, [answer]).stateAt(0, answer.indexOf(prompter.segId))
        const { logits, choice } = model.drawMasks(features, model.segPrompts(state))
        const [mask] = model.finishMasks(features, logits)
        assert.deepEqual([mask!.height, mask!.width, choice.length], [104, 150, 1])
      })
    })

    test('a region drawn on the picture keeps the tokens of the prompt and changes their content', () => {
      tidy(() => {
        const left = prompter.describe(features, box(150, 104, 10, 10, 60, 60))
        const right = prompter.describe(features, box(150, 104, 90, 30, 140, 90))
        assert.deepEqual([...left.ids], [...right.ids])
        assert.equal(left.thin, false)
        assert.equal(model.sharedPrefix(left, right), 0)
        const [a, b] = [left, right].map((p) => model.promptInputs(p).embeddings.numbers())
        assert.ok(a!.some((value, i) => Math.abs(value - b![i]!) > 1e-3))
        const shown = prompter.tokenizer.decode(left.ids.filter((id) => id !== loaded.cfg.image_token_id))
        assert.match(shown, /outlined in red\.<\|im_end\|>/)
      })
    })

    test('nothing stays allocated after prompts, passes and features', () => {
      const round = () => {
        const f = featuresOf(loaded, 100, 100)
        tidy(() => {
          generate(model, prompter.tokenizer, [prompter.describe(f, box(100, 100, 5, 5, 60, 60))], {
            maxNewTokens: 2,
            stopStrings: [],
          })
        })
        freeFeatures(f)
      }
      round()
      const before = memory().tensors
      round()
      assert.equal(memory().tensors, before)
    })

    test('an empty mask, and a question that holds the token of the picture, are refused', () => {
      const nothing = maskFromDense(new Uint8Array(150 * 104), 104, 150)
      assert.throws(() => prompter.describe(features, nothing), /an empty mask/)
      assert.throws(() => prompter.segment(features, { question: 'what is <|image_pad|>?' }), Mismatch)
    })
  })

  test(`${name}: copied cells are between <vp> and </vp> with the rows and positions of their cells`, () => {
    const loaded = open(set, 'cells')
    const { model, prompter, cfg, processor } = loaded
    const features = featuresOf(loaded, 150, 104)
    const merge = processor.merge
    const [rows, columns] = [features.rows / merge, features.columns / merge]
    const mask = box(150, 104, 0, 0, 75, 52)
    const prompt = prompter.describe(features, mask)
    const units = rows * columns
    const visual = [...prompt.ids.keys()].filter((i) => prompt.ids[i] === cfg.image_token_id)
    const copies = visual.slice(units)
    // written out: a cell is inside when its nearest sample, its upper left corner, is
    const inside = Array.from({ length: units }, (_, u) => u).filter((u) => {
      const [y, x] = [Math.floor((Math.floor(u / columns) * 104) / rows), Math.floor(((u % columns) * 150) / columns)]
      return y < 52 && x < 75
    })
    assert.deepEqual([...prompt.regions[0]!], inside)
    assert.equal(copies.length, inside.length)
    assert.equal(prompt.ids[copies[0]! - 1], prompter.tokenizer.idOf('<vp>'))
    assert.equal(prompt.ids[copies.at(-1)! + 1], prompter.tokenizer.idOf('</vp>'))
    const { axes, next } = model.promptPositions(prompt)
    copies.forEach((at, k) => {
      for (const axis of axes) assert.equal(axis[at], axis[visual[0]! + inside[k]!])
    })
    const after = copies.at(-1)! + 1
    assert.equal(axes[0]![after], axes[0]![copies[0]! - 1]! + 1)
    assert.equal(next, axes[0]!.at(-1)! + 1)
    tidy(() => {
      const { embeddings, additions } = model.promptInputs(prompt)
      for (const t of [embeddings, ...additions])
        copies.forEach((at, k) => {
          assert.deepEqual(t.select(1, at).numbers(), t.select(1, visual[0]! + inside[k]!).numbers())
        })
      assert.equal(additions.length, cfg.base === 'qwen3_vl' ? 3 : 0)
      assert.equal(
        generate(model, prompter.tokenizer, [prompt], { maxNewTokens: 2, stopStrings: [] })[0]!.ids.length,
        2,
      )
    })
    freeFeatures(features)
    free(loaded)
  })
}
