import assert from 'node:assert/strict'
import test from 'node:test'
import { stream } from '../../core/index.ts'
import type { GroundedFamily } from '../../models/index.ts'
import { type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { gridOf, pooled, sampleBoth, sampleField, spreadOf } from './action.ts'

const counted = (n: number) => Float32Array.from({ length: n }, (_, i) => i)

function assertNear(got: ArrayLike<number>, want: readonly number[], what: string): void {
  assert.equal(got.length, want.length, what)
  want.forEach((v, i) => {
    assert.ok(Math.abs(got[i]! - v) < 1e-5, `${what} ${i}: ${got[i]}, not ${v}`)
  })
}

test('the grid of a field holds the mean of each of its squares, rows before columns', () => {
  tidy(() => {
    const field = pooled(tensor(counted(16), [1, 4, 4]), 2)
    assert.deepEqual(field.shape, [1, 2, 2])
    assertNear(field.numbers(), [2.5, 4.5, 10.5, 12.5], 'square')
  })
  assert.deepEqual([gridOf(8, 16), gridOf(8, 12), gridOf(8, 4)], [8, 6, 4])
})

test('the spread is the deviation over records, averaged over dimensions; of one record, over its dimensions', () => {
  tidy(() => {
    const two = spreadOf([tensor([0, 0, 5]), tensor([2, 4, 5])])
    assert.ok(Math.abs(two - (Math.SQRT2 + 2 * Math.SQRT2) / 3) < 1e-6, `${two}`)
    const one = spreadOf([tensor([1, 3])])
    assert.ok(Math.abs(one - Math.SQRT2) < 1e-6, `${one}`)
    assert.equal(spreadOf([]), 1)
    assert.equal(spreadOf([tensor([3])]), 1, 'one number: a grid of one place, no held-out records')
  })
})

/** Draws for answer a logits that count up from 10 a; says which prompts and pictures it was asked with. */
function counting(asked: { prompts: number[]; features: readonly object[] }[] = []): GroundedFamily {
  const drawMasks = (features: readonly object[], prompts: Tensor) => {
    asked.push({ prompts: prompts.numbers(), features })
    const rows = prompts.size(0)
    const values = Float32Array.from({ length: rows * 16 }, (_, i) => 10 * Math.floor(i / 16) + (i % 16))
    return {
      logits: tensor(values, [rows, 4, 4]),
      choice: Array.from({ length: rows }, (_, a) => a),
      confidence: tensor(counted(2 * rows), [rows, 2]),
    }
  }
  return { drawMasks } as unknown as GroundedFamily
}

/** Bilinear from 2 x 2 to 4 x 4, pixel centres apart from the corners. */
function upsampled(grid: readonly number[]): number[] {
  const share = [0, 0.25, 0.75, 1]
  return Array.from({ length: 16 }, (_, i) => {
    const [v, h] = [share[Math.floor(i / 4)]!, share[i % 4]!]
    const row = (r: number) => grid[2 * r]! * (1 - h) + grid[2 * r + 1]! * h
    return row(0) * (1 - v) + row(1) * v
  })
}

const noiseOf = (random: ReturnType<typeof stream>, scale: number) =>
  Array.from({ length: 4 }, (_, i) => scale * random.normalAt(i))

test('a field action moves the mask that is drawn the way the action says: u = m + noise, y + the noise between its squares', () => {
  const randoms = [0, 1, 2].map((k) => stream(7, 'field', k))
  const of = [0, 1, 1] // the answer of each sample
  tidy(() => {
    const answered = { features: [{ a: 0 }, { a: 1 }], means: tensor(counted(4), [2, 2]), of }
    const drawn = sampleField(counting(), answered, 0.5, 2, randoms)
    drawn.forEach(({ action, logits, confidence }, m) => {
      const noise = noiseOf(randoms[m]!, 0.5)
      const base = 10 * of[m]!
      assertNear(
        action.value,
        [2.5, 4.5, 10.5, 12.5].map((v, i) => v + base + noise[i]!),
        `action of ${m}`,
      )
      const up = upsampled(noise)
      assertNear(
        logits.numbers(),
        up.map((v, i) => base + i + v),
        `mask of ${m}`,
      )
      assert.deepEqual([action.choice, confidence], [of[m], { iou: 2 * of[m]!, object: 2 * of[m]! + 1 }])
    })
  })
})

test('both actions: the prompt is moved first, each sample is drawn from its own picture and prompt, then the field', () => {
  const [prompt, field] = ['prompt', 'field'].map((use) => [0, 1].map((k) => stream(7, use, k)))
  const asked: { prompts: number[]; features: readonly object[] }[] = []
  tidy(() => {
    const features = [{ a: 0 }, { a: 1 }]
    const answered = { features, means: tensor(counted(4), [2, 2]), of: [1, 0] }
    const randoms = [0, 1].map((k) => ({ prompt: prompt![k]!, field: field![k]! }))
    const drawn = sampleBoth(counting(asked), answered, { prompt: 0.1, field: 2 }, 2, randoms)
    const moved = [2, 3, 0, 1].map((v, i) => v + 0.1 * prompt![Math.floor(i / 2)]!.normalAt(i % 2))
    assertNear(asked[0]!.prompts, moved, 'prompt')
    assert.deepEqual(asked[0]!.features, [features[1], features[0]])
    drawn.forEach(({ action, logits }, m) => {
      assertNear(action.prompt!, moved.slice(2 * m, 2 * m + 2), `prompt of ${m}`)
      const noise = noiseOf(field![m]!, 2)
      assertNear(
        action.value,
        [2.5, 4.5, 10.5, 12.5].map((v, i) => v + 10 * m + noise[i]!),
        `action of ${m}`,
      )
      assertNear(
        logits.numbers(),
        upsampled(noise).map((v, i) => 10 * m + i + v),
        `mask of ${m}`,
      )
    })
  })
})
