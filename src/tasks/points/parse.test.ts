import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type RandomStream, stream, streamId } from '../../core/index.ts'
import { coordinateKinds, PointAnswerConfig, pointModes } from './answer-config.ts'
import { isInside } from './frame.ts'
import { parsePointAnswer } from './parse.ts'

/** Pieces a hostile or broken answer is made of; some would run if anything were evaluated. */
const pieces = [
  ...['[', ']', '{', '}', ',', ':', '"', "'", '```', '```json', '\\', '\n', ' ', '<think>', '</think>', '<answer>'],
  ...['</answer>', '0', '-0', '1e309', '-1', '839.9999999999999', '840', '1e-320', '007', 'NaN', 'null', 'true', '12'],
  ...['"point_2d"', '"negative_points"', '"points"', '"x"', '"y"', '"stop"', '"bbox_2d"', '"__proto__"', '"length"'],
  ...['[[10,20]]', '{"point_2d":[3,4]}', '[1,2]', '"constructor"', '\u2028', '\uFEFF', '\uD800', '🙂', '\u0000'],
  ...[
    'globalThis.hacked = 1',
    '(() => { globalThis.hacked = 1 })()',
    '`$' + '{globalThis.hacked = 1}`',
    '<script>',
    '/*',
    '//',
  ],
]

function hostileText(random: RandomStream): string {
  const kind = random.below(4)
  if (kind === 0) return Array.from({ length: random.below(30) }, () => random.pick(pieces)).join('')
  if (kind === 1) return String.fromCharCode(...Array.from({ length: random.below(60) }, () => random.below(0x10000)))
  const number = () =>
    random.pick([random.uniform() * 1000, random.below(900), -random.below(9), 1e308 * random.below(99)])
  const points = Array.from({ length: random.below(9) }, () => [number(), number()])
  const text = JSON.stringify(random.pick<unknown>([points, { negative_points: points }, { x: points }]))
  if (kind === 2) return text
  const cut = random.below(text.length + 1)
  return text.slice(0, cut) + random.pick(pieces) + text.slice(cut + random.below(3))
}

test('10,000 random and hostile texts: never an exception, never code run, never a point outside the image', () => {
  const random = stream(streamId.test, 'hostile points')
  let valid = 0
  for (let i = 0; i < 10_000; i++) {
    const settings = PointAnswerConfig.parse({
      mode: random.pick(pointModes),
      coords: random.pick(coordinateKinds),
      thinking: random.below(2) === 1,
      maxPoints: 1 + random.below(4),
      dupRadius: random.pick([null, 0, 0.01, 0.5]),
    })
    const frame = { width: 28 * (1 + random.below(40)), height: 28 * (1 + random.below(40)) }
    const answer = parsePointAnswer(hostileText(random), frame, settings)
    const { counts } = answer
    assert.ok([...answer.negatives, ...answer.positives].every((p) => isInside(p, frame)))
    if (answer.box) {
      const [x1, y1, x2, y2] = answer.box
      assert.ok(0 <= x1 && x1 < x2 && x2 <= frame.width && 0 <= y1 && y1 < y2 && y2 <= frame.height)
    }
    assert.equal(counts.raw, counts.kept + counts.oob + counts.dup + counts.extra)
    if (answer.valid) valid++
    else assert.deepEqual([answer.format, answer.negatives.length, answer.positives.length, counts.raw], [0, 0, 0, 0])
  }
  assert.ok(!('hacked' in globalThis))
  assert.ok(valid > 400, `${valid} valid texts among them`)
  assert.equal(({} as Record<string, unknown>)['point_2d'], undefined)
})

test('brackets nested a hundred thousand deep do not throw', () => {
  const settings = PointAnswerConfig.parse({})
  for (const text of ['['.repeat(1e5), '['.repeat(1e5) + ']'.repeat(1e5), '{"a":'.repeat(1e5)])
    assert.equal(parsePointAnswer(text, { width: 840, height: 840 }, settings).valid, false)
})

test('brackets and quotes inside a label belong to the label', () => {
  const settings = PointAnswerConfig.parse({})
  const frame = { width: 840, height: 840 }
  for (const label of ['a ] b', '}', '[', 'say \\"here]\\"']) {
    const text = `Here they are: [{"point_2d": [10, 20], "label": "${label}"}]`
    assert.deepEqual(parsePointAnswer(text, frame, settings).counts.kept, 1, text)
  }
})

test('without an answer block, what follows the last thought is the answer', () => {
  const settings = PointAnswerConfig.parse({ thinking: true })
  const valid = (text: string) => parsePointAnswer(text, { width: 840, height: 840 }, settings).valid
  assert.ok(valid('<think>a</think> or <think>b</think> [[5,5]]'))
  assert.equal(valid('<think>a</think> [[5,5]] <think>b</think> none'), false)
})
