import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LengthShaping } from './config.ts'
import { AvailabilityWatch, scoreGroup } from './mix.ts'
import { type Answer, defineReward, type Score } from './reward.ts'

const answers = (n: number): Answer[] =>
  Array.from({ length: n }, (_, i) => ({ id: `s${i}`, reference: 'a dog', caption: 'a dog' }))

function fixed(name: string, values: readonly (Score | undefined)[], nullMeans: 'row' | 'group' = 'row') {
  return defineReward({ name, range: [0, 1], doc: '', nullMeans, scoreBatch: () => values as Score[] })
}

test('the total is the weighted mean of the parts, which stay unweighted', async () => {
  const a = fixed('a', [1, 0])
  const b = fixed('b', [0, 0.5])
  const counted = (x: number, y: number) => [
    { name: 'a', weight: 1, value: x },
    { name: 'b', weight: 3, value: y },
  ]
  const rows = await scoreGroup(
    [
      { reward: a, weight: 1 },
      { reward: b, weight: 3 },
    ],
    answers(2),
  )
  assert.deepEqual(rows, [
    { total: 0.25, parts: { a: 1, b: 0 }, counted: counted(1, 0), dropped: [] },
    { total: 0.375, parts: { a: 0, b: 0.5 }, counted: counted(0, 0.5), dropped: [] },
  ])
})

test('a term lost for the group is lost for every row: no row keeps another scale', async () => {
  const a = fixed('a', [0.2, 0.4, 0.6])
  const b = fixed('b', [1, null, 1], 'group')
  const terms = [
    { reward: a, weight: 0.25 },
    { reward: b, weight: 0.75 },
  ]
  const rows = await scoreGroup(terms, answers(3))
  assert.deepEqual(
    rows.map((r) => r.total),
    [0.2, 0.4, 0.6],
  )
  assert.deepEqual(
    rows.map((r) => r.parts.b),
    [1, null, 1],
  )
  const skipped = await scoreGroup(terms, answers(3), { onUnavailable: 'skip' })
  assert.deepEqual(
    skipped.map((r) => r.total),
    [null, null, null],
  )
  await assert.rejects(scoreGroup(terms, answers(3), { onUnavailable: 'stop' }), /sample s0: b: expected a score/)
})

test('a row that cannot be scored has no total, and the others keep theirs', async () => {
  const a = fixed('a', [0.5, 0.5, 0.5])
  const b = fixed('b', [1, null, 0])
  const rows = await scoreGroup(
    [
      { reward: a, weight: 1 },
      { reward: b, weight: 1 },
    ],
    answers(3),
  )
  assert.deepEqual(
    rows.map((r) => r.total),
    [0.75, null, 0.25],
  )
})

test('NaN, infinity, undefined, text and values out of range are errors that name the sample', async () => {
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, undefined, 1.5, -0.1, '1' as unknown as number]) {
    const bad = fixed('mine', [0, value])
    await assert.rejects(
      scoreGroup([{ reward: bad, weight: 1 }], answers(2)),
      /sample s1: reward mine: expected a number from 0 to 1/,
    )
  }
  const text = fixed('mine', [0, '0.5' as unknown as number])
  await assert.rejects(scoreGroup([{ reward: text, weight: 1 }], answers(2)), /got the text "0\.5"$/)
  await assert.rejects(scoreGroup([{ reward: fixed('mine', [0]), weight: 1 }], answers(2)), /expected 2 scores.*got 1/)
})

test('two terms of one name and a weight of 0 are errors', async () => {
  const a = fixed('a', [1])
  await assert.rejects(
    scoreGroup(
      [
        { reward: a, weight: 1 },
        { reward: a, weight: 1 },
      ],
      answers(1),
    ),
    /one term of a name/,
  )
  await assert.rejects(scoreGroup([{ reward: a, weight: 0 }], answers(1)), /a positive weight/)
})

test('a run ends when the judge is unreachable too often, and not before', () => {
  const watch = new AvailabilityWatch(0.2)
  for (let i = 0; i < 10; i++) {
    watch.record(i, 4, 1)
    watch.record(i, 4, 0)
  }
  assert.throws(() => watch.record(10, 8, 8), /maxUnavailableFraction: expected at most 0.2 .* got 18 of 88/)
  assert.throws(() => watch.record(11, 8, 8), { exitCode: 69 })
  const long = new AvailabilityWatch(0.2, 3)
  for (let i = 0; i < 100; i++) long.record(i, 10, i % 3 === 2 ? 6 : 0)
  assert.throws(() => {
    for (let i = 100; i < 103; i++) long.record(i, 10, 3)
  }, /last 3 steps.* got \d+ of 30/) // a good past is forgotten
})

test('the calls of one step count together: a window of two steps holds both loops of both', () => {
  const watch = new AvailabilityWatch(0.2, 2)
  for (const lost of [4, 0]) watch.record(1, 10, lost)
  watch.record(2, 10, 0)
  assert.throws(() => watch.record(2, 10, 5), /last 2 steps.* got 9 of 40/)
})

test('if every term is lost, each substitute has the weight of its term', async () => {
  const substitute = (name: string, value: number) =>
    defineReward({ name, range: [0, 1], doc: '', scoreBatch: (all) => all.map(() => value) })
  const away = (name: string, value: number) =>
    defineReward({ ...fixed(name, [null], 'group'), fallback: substitute(`plain ${name}`, value) })
  const [row] = await scoreGroup(
    [
      { reward: away('a', 1), weight: 1 },
      { reward: away('b', 0), weight: 3 },
    ],
    answers(1),
  )
  assert.equal(row!.total, 0.25)
})

test('a reward that never answers is an error with a clear message after its time limit', async (t) => {
  const never = defineReward({ name: 'never', range: [0, 1], doc: 'test', score: () => new Promise<number>(() => {}) })
  const [answer] = [{ id: 'r#0', reference: 'a cat' }]
  const alive = setInterval(() => undefined, 1000) // a run has its engine's thread for that
  t.after(() => clearInterval(alive))
  await assert.rejects(
    scoreGroup([{ reward: never, weight: 1 }], [answer!], { timeoutSeconds: 0.05 }),
    /reward never: expected scores, got none in 0\.05 s/,
  )
})

test('a time of months is not over at once', async () => {
  const wait = () => new Promise<number>((done) => setTimeout(() => done(0.5), 20))
  const slow = defineReward({ name: 'slow', range: [0, 1], doc: 'test', score: wait })
  const [row] = await scoreGroup([{ reward: slow, weight: 1 }], answers(1), { timeoutSeconds: 1e7 })
  assert.equal(row!.total, 0.5)
})

test('what a reward throws is reported with its name', async () => {
  const throws = defineReward({
    name: 'mine',
    range: [0, 1],
    doc: '',
    score: () => Promise.reject(new Error('no file')),
  })
  await assert.rejects(
    scoreGroup([{ reward: throws, weight: 1 }], answers(1)),
    /reward mine: expected scores, got no file/,
  )
})

test('length shaping is a factor on the total and its terms: 2 of 4 words at lambda 0.5 keep three quarters', async () => {
  const length = LengthShaping.parse({ min: 4, max: 8, lambda: 0.5, floor: 0 })
  const [short] = await scoreGroup([{ reward: fixed('a', [0.8]), weight: 1 }], answers(1), {
    shaping: { of: 'caption', length },
  })
  assert.ok(Math.abs(short!.total! - 0.6) < 1e-12, `${short!.total}`)
  assert.equal(short!.counted[0]!.value, short!.total)
  assert.equal(short!.parts.a, 0.8, 'parts stay as they were scored')
})

test('every answer of a group gets the share of different texts, and the confidence of SAM2 is kept with the scores', async () => {
  const seen: (number | undefined)[] = []
  const score = ({ unique }: Answer) => {
    seen.push(unique)
    return 0
  }
  const reward = defineReward({ name: 'a', range: [0, 1], doc: '', score })
  const group = ['x', 'y', 'x', 'x'].map((text, i): Answer => ({ ...answers(4)[i]!, text }))
  group[0]!.maskConfidence = { iou: 0.5, object: 0.25 }
  const rows = await scoreGroup([{ reward, weight: 1 }], group)
  assert.deepEqual(seen, [0.5, 0.5, 0.5, 0.5])
  assert.deepEqual(rows[0]!.metrics, { 'mask_confidence/iou': 0.5, 'mask_confidence/object': 0.25 })
  assert.equal(rows[1]!.metrics, undefined)
})
