// The terms of the reward equal the published reward code, which was run on these answers (tests/fixtures/reason).
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import type { Box, Point } from '../points/frame.ts'
import { type Placed, readAnswer } from './answer.ts'
import { formOf, type ReasonPreset, rewardOfReason } from './config.ts'
import { type ReasonParts, scoreReason } from './reward.ts'

const frame = { width: 840, height: 840 }
const nothing = { ...frame, counts: Uint32Array.of(840 * 840) }

interface Case {
  text: string
  truth: unknown
  total: number
  [term: string]: unknown
}

function casesOf(name: string): Case[] {
  const file = join(import.meta.dirname, '../../../tests/fixtures/reason', `${name}.json`)
  return (JSON.parse(readFileSync(file, 'utf8')) as { cases: Case[] }).cases
}

function partsOf(preset: ReasonPreset, text: string, truth: readonly Placed[]): ReasonParts {
  const form = formOf(preset)
  const answer = readAnswer(text, { form, coords: 'pixel', frame, allowNone: false })
  const sample = { text, answer, form, frame, truth, target: nothing, mask: null }
  return scoreReason(sample, rewardOfReason({ preset, reward: {} }))
}

/** Weights of the preset times the terms: the published total. */
function totalOf(preset: ReasonPreset, parts: ReasonParts): number {
  const weights = rewardOfReason({ preset, reward: {} }) as unknown as Record<string, number>
  return Object.entries(parts).reduce((sum, [name, value]) => sum + weights[name]! * value, 0)
}

const close = (got: number, expected: unknown, text: string) =>
  assert.ok(Math.abs(got - (expected as number)) < 1e-9, `${got} instead of ${expected}: ${text.slice(0, 300)}`)

test('vision-reasoner: format, matched accuracy, repetition and total equal the published code', () => {
  for (const { text, truth, ...expected } of casesOf('vision-reasoner')) {
    const objects = (truth as { bbox_2d: Box; point_2d: Point }[]).map((o) => ({
      box: o.bbox_2d,
      points: [o.point_2d],
    }))
    const parts = partsOf('vision-reasoner', text, objects)
    close(parts.thinking, expected['thinking'], text)
    close(2 * parts.format, expected['format'], text)
    close(parts.boxIou + parts.boxL1 + parts.point, expected['accuracy'], text)
    close(parts.nonRepeat, expected['nonRepeat'], text)
    close(totalOf('vision-reasoner', parts), expected.total, text)
  }
})

test('seg-zero: every term and the total equal the published code', () => {
  for (const { text, truth, ...expected } of casesOf('seg-zero')) {
    const { bbox, points } = truth as { bbox: Box; points: Point[] }
    const parts = partsOf('seg-zero', text, [{ box: bbox, points }])
    for (const name of ['thinking', 'format', 'boxIou', 'boxL1', 'point'] as const)
      close(parts[name], expected[name], `${name} ${text}`)
    close(totalOf('seg-zero', parts), expected.total, text)
  }
})

test('vlm-r1: overlap and format equal the published code', () => {
  for (const { text, truth, ...expected } of casesOf('vlm-r1')) {
    const parts = partsOf('vlm-r1', text, [{ box: truth as Box, points: [] }])
    close(parts.format, expected['format'], text)
    close(parts.boxIou, expected['boxIou'], text)
  }
})

test('no target: [] earns every term of places if it is allowed, an object none, and silence about a target none', () => {
  const read = (text: string, allowNone: boolean) =>
    readAnswer(`<think>a</think><answer>${text}</answer>`, { form: 'objects', coords: 'pixel', frame, allowNone })
  const score = (text: string, truth: Placed[], allowNone = true) => {
    const sample = {
      text,
      answer: read(text, allowNone),
      form: 'objects' as const,
      frame,
      truth,
      target: nothing,
      mask: null,
    }
    const { format, mask, boxIou, boxL1, point, count } = scoreReason(
      sample,
      rewardOfReason({ preset: 'default', reward: {} }),
    )
    return [format, mask, boxIou, boxL1, point, count]
  }
  const one = { box: [1, 1, 9, 9], points: [[5, 5]] } as unknown as Placed
  assert.deepEqual(score('[]', []), [1, 1, 1, 1, 1, 1])
  assert.deepEqual(score('[]', [], false), [0, 1, 1, 1, 1, 1])
  assert.deepEqual(score('[]', [one]).slice(2), [0, 0, 0, 0])
  assert.deepEqual(score('[{"bbox_2d":[1,1,9,9],"point_2d":[5,5]}]', []).slice(2), [0, 0, 0, 0])
  assert.deepEqual(score('nothing', []), [0, 0, 0, 0, 0, 0])
})

test('distances follow the size of the image: 840 pixels are the published ones', () => {
  const small = { width: 84, height: 84 }
  const truth: Placed[] = [{ box: [10, 10, 40, 40], points: [[20, 20]] }]
  const score = (text: string) => {
    const answer = readAnswer(`<answer>${text}</answer>`, {
      form: 'objects',
      coords: 'pixel',
      frame: small,
      allowNone: false,
    })
    const target = { ...small, counts: Uint32Array.of(84 * 84) }
    const { boxL1, point } = scoreReason({ text, answer, form: 'objects', frame: small, truth, target, mask: null }, rewardOfReason({ preset: 'default', reward: {} })) // biome-ignore format: one line
    return [boxL1, point]
  }
  assert.deepEqual(score('[{"bbox_2d":[10.9,10.9,40.9,40.9],"point_2d":[22.9,20]}]'), [1, 1])
  assert.deepEqual(score('[{"bbox_2d":[11,11,41,41],"point_2d":[23,20]}]'), [0, 0])
})
