import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { stream } from '../../core/index.ts'
import { decodeRle, encodeRle, type Mask, maskFromDense } from '../../mask/index.ts'
import type { EvalEvent, MaskRle, Sample } from '../events.ts'
import { RunWriter } from '../run-writer.ts'
import { AlarmWatch } from './alarm-watch.ts'
import { alarmPrefix, alarmRules, alarmText } from './alarms.ts'
import { itemKinds } from './items.ts'
import { maskValues, traitsOf } from './traits.ts'

const side = 16
const steps = 29

/** A square from (at, at) with sides of `length` pixels. */
function square(at: number, length: number): MaskRle {
  const inside = (v: number) => v >= at && v < at + length
  const pixels = Array.from({ length: side * side }, (_, i) =>
    inside(i % side) && inside(Math.floor(i / side)) ? 1 : 0,
  )
  return encodeRle(maskFromDense(Uint8Array.from(pixels), side, side))
}

type Change = Partial<Pick<Sample, 'text' | 'made' | 'total' | 'truncated' | 'shown'>>

/** Samples of a step: records at different places, answered as `change` says; `how`: 0 at first, 1 at the end. */
function samplesAt(step: number, change: (how: number, record: number, random: number) => Change): Sample[] {
  const how = Math.min(1, step / 20)
  return Array.from({ length: 12 }, (_, i) => {
    const record = 100 * step + Math.floor(i / 2)
    const given = square(record % 8, 4)
    const random = stream(1, 'test', step, i).wordAt(0) / 2 ** 32
    const plain = { text: `thing number ${record}`, given, made: given, madeBy: 'policy' as const }
    const scores = { rewards: {}, total: 0.2 + 0.1 * random, advantage: 0, logp: 0, length: 5 }
    return { step, loop: 'a', id: `record ${record}`, k: i % 2, ...plain, ...scores, ...change(how, record, random) }
  })
}

function alarmsAlong(change: Parameters<typeof samplesAt>[1]): [step: number, kind: string][] {
  const watch = new AlarmWatch()
  return Array.from({ length: steps }, (_, i) =>
    watch.afterStep(samplesAt(i + 1, change).map(traitsOf)).map(({ kind }): [number, string] => [i + 1, kind]),
  ).flat()
}

test('a mask that was compared before is compared anew with another mask of a record', () => {
  const [made, small, large] = [square(2, 4), square(2, 2), square(2, 4)].map((rle) => decodeRle(rle)) as [
    Mask,
    Mask,
    Mask,
  ]
  const ious = [small, large, small].map((given) => maskValues(made, given).iou)
  assert.deepEqual(ious, [0.25, 1, 0.25])
  assert.deepEqual(maskValues(made, small), maskValues({ ...made }, small))
})

const rising = (how: number, random: number) => ({ total: 0.2 + 0.6 * how + 0.1 * random })
const point = (x: number, y: number): Change['shown'] => [
  { kind: 'points', by: 'policy', size: [side, side], points: [{ x, y, positive: true }] },
]

const tricks: Record<string, Parameters<typeof samplesAt>[1]> = {
  'whole-image': (how, _, random) => ({ ...rising(how, random), ...(random < how && { made: square(0, side) }) }),
  'mask-grows': (how, record, random) => ({
    ...rising(how, random),
    made: square(record % 8, 4 + Math.round(4 * how)),
  }),
  'mask-shrinks': (how, record, random) => ({
    ...rising(how, random),
    made: square(record % 8, 4 - Math.round(2 * how)),
  }),
  'empty-mask': (how, _, random) => (random < how ? { made: square(0, 0) } : {}),
  'no-mask': (how, _, random) => (random < how ? { made: null } : {}),
  'same-answer': (how, record, random) => ({
    shown: random < how ? point(8, 8) : point(record % 16, (record * 7) % 16),
  }),
  'no-target': (how, record, random) => {
    const points = random < how ? [] : [{ x: record % 16, y: (record * 7) % 16, positive: true }]
    return { shown: [{ kind: 'points', by: 'policy', size: [side, side], points }] }
  },
  'length-limit': (how, _, random) => ({ truncated: random < how }),
  'repeated-word': (how, record, random) => ({
    text: random < how ? `red ${record} red red red red red` : `the ${record}`,
  }),
}

const percent = (value: number) => `${Math.round(100 * value)} %`

/** The rules as rows of the table in docs/watch.md. */
function alarmTable(): string[] {
  return Object.entries(alarmRules).map(([kind, { item, side, limit, change }]) => {
    const { title, unit } = itemKinds[item]
    const [bound, value] = [side === 'above' ? 'from' : 'up to', unit === 'share' ? percent(limit) : limit]
    return `| \`${kind}\` | ${title} | ${bound} ${value} | ${unit === 'share' ? `+${percent(change)}` : `factor ${change}`} |`
  })
}

test('docs/watch.md has the rows of the rules, and every rule has a trick here', () => {
  const page = readFileSync(new URL('../../../docs/watch.md', import.meta.url), 'utf8')
  const rows = page.split('\n').filter((line) => /^\| `[a-z-]+` \| .* \| (from|up to) /.test(line))
  assert.deepEqual(rows, alarmTable())
  assert.deepEqual(Object.keys(tricks), Object.keys(alarmRules))
})

for (const [kind, change] of Object.entries(tricks)) {
  test(`${kind} is raised before step 30, once`, () => {
    const raised = alarmsAlong(change).filter(([, name]) => name === kind)
    assert.equal(raised.length, 1, JSON.stringify(alarmsAlong(change)))
    assert.ok(raised[0]![0] < 30 && raised[0]![0] >= 10)
  })
}

test('masks that grow to fit their records, other words and shorter answers raise nothing', () => {
  const learned = alarmsAlong((how, record, random) => ({
    ...rising(how, random),
    made: square(record % 8, 1 + Math.round(3 * how)),
    text: random < how ? `a new word ${record}` : `old ${record}`,
  }))
  assert.deepEqual(learned, [])
})

test('masks that grow beyond their records while the IoU rises raise nothing', () => {
  const overshot = alarmsAlong((how, record, random) => ({
    ...rising(how, random),
    made: square(record % 8, 1 + Math.round(4 * how)),
  }))
  assert.deepEqual(overshot, [])
})

test('masks that fit their records worse without more reward raise no alarm about a trick', () => {
  assert.deepEqual(
    alarmsAlong((how, record) => ({ made: square(record % 8, 4 + Math.round(2 * how)) })),
    [],
  )
})

test('the last window has five steps: what two of them have is a third of it', () => {
  const cut = (step: number) => (_how: number, record: number) => ({ truncated: step >= 10 && step < 12 && record % 100 < 5 }) // biome-ignore format: one line
  const watch = new AlarmWatch()
  const raised = Array.from({ length: 16 }, (_, i) => watch.afterStep(samplesAt(i + 1, cut(i + 1)).map(traitsOf)))
  assert.deepEqual(raised.flat().map(({ kind, step }) => [kind, step]), [['length-limit', 11]]) // biome-ignore format: one line
})

test('an alarm names what changed, the records and what to do, and points at samples of theirs', () => {
  const watch = new AlarmWatch()
  const all = Array.from({ length: steps }, (_, i) =>
    watch.afterStep(samplesAt(i + 1, tricks['whole-image']!).map(traitsOf)),
  )
  const [alarm] = all.flat()
  assert.match(
    alarmText(alarm!),
    /^a: masks that cover the whole image: \d+ % to \d+ %, reward 0\.\d+ to 0\.\d+; records record \d+, .* more\. Suggestion: /,
  )
  assert.equal(alarm!.samples.length, 4)
  for (const { id, step } of alarm!.samples) {
    assert.ok(alarm!.text.includes(id))
    assert.ok(step > alarm!.step - 5)
  }
})

const round = (step: number, mean: number, records = 64): EvalEvent => {
  const interval = { mean, low: mean - 0.05, high: mean + 0.05 }
  return {
    t: 'eval',
    step,
    name: `step ${step}`,
    records,
    metrics: { 'mask/giou': interval, 'points/invalid': interval },
  }
}

function heldOut(before: EvalEvent, after: EvalEvent, change: Parameters<typeof samplesAt>[1]): string[] {
  const watch = new AlarmWatch()
  const first = watch.afterEvaluation(before)
  for (let step = 1; step <= 20; step++) watch.afterStep(samplesAt(step, change).map(traitsOf))
  return [...first, ...watch.afterEvaluation(after), ...watch.afterEvaluation(after)].map(({ text }) => text)
}

test('a held-out metric that falls while the reward rises is an alarm, once; fewer than 20 records or no rise is none', () => {
  const grows = (how: number, _: number, random: number) => rising(how, random)
  const falls = 'the reward rises while held-out metrics fall: mask/giou 0.600 to 0.400'
  assert.deepEqual(heldOut(round(0, 0.6), round(20, 0.4), grows), [falls])
  assert.deepEqual(heldOut(round(0, 0.6, 8), round(20, 0.4, 8), grows), [])
  assert.deepEqual(heldOut(round(0, 0.6), round(20, 0.55), grows), [])
  assert.deepEqual(
    heldOut(round(0, 0.6), round(20, 0.4), () => ({})),
    [],
  )
})

test('a resumed run raises what it would have raised, and nothing a second time', async () => {
  const change = (how: number, record: number, random: number) => ({
    ...tricks['empty-mask']!(how, record, random),
    truncated: random < how - 0.4,
  })
  const dir = join(mkdtempSync(join(tmpdir(), 'alarms-')), 'run')
  const writer = RunWriter.create(dir, { config: {}, environment: {} })
  const [whole, first, second] = [new AlarmWatch(), new AlarmWatch(), new AlarmWatch()]
  const [expected, found]: [string[], string[]] = [[], []]
  for (let step = 1; step <= steps; step++) {
    const samples = samplesAt(step, change)
    for (const { kind } of whole.afterStep(samples.map(traitsOf))) expected.push(`${step} ${kind}`)
    if (step === 14) second.restore(dir)
    for (const alarm of (step < 14 ? first : second).afterStep(samples.map(traitsOf))) {
      found.push(`${step} ${alarm.kind}`)
      writer.warning(step, `${alarmPrefix}${alarm.kind}`, alarm.text, 1, alarm.samples)
    }
    writer.samples(samples)
  }
  await writer.close()
  rmSync(dir, { recursive: true })
  assert.ok(
    expected.some((one) => Number.parseInt(one, 10) < 14) && expected.some((one) => Number.parseInt(one, 10) >= 14),
  )
  assert.deepEqual(found, expected)
})
