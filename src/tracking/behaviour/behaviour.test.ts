import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import type { EvalEvent, Sample } from '../events.ts'
import { followWhole } from '../follow.ts'
import { RunWriter } from '../run-writer.ts'
import { AlarmWatch } from './alarm-watch.ts'
import { heldOutFalls, rises } from './alarms.ts'
import { behaviourOf, windowSamples } from './behaviour.ts'
import { type Traits, traitsOf } from './traits.ts'

const root = mkdtempSync(join(tmpdir(), 'behaviour-'))
after(() => rmSync(root, { recursive: true, force: true }))

const sample = (step: number, id: string, total: number): Sample => ({
  ...{ step, loop: 'a', id, k: 0, text: id, given: null, made: null },
  ...{ rewards: {}, total, advantage: 0, logp: 0, length: 5 },
})

async function written(name: string, fill: (writer: RunWriter) => void): Promise<string> {
  const dir = join(root, name)
  const writer = RunWriter.create(dir, { config: {}, environment: {} })
  fill(writer)
  await writer.close()
  return dir
}

const runOf = (steps: number, totals: Readonly<Record<string, (step: number) => number>>) =>
  written(`${steps} steps`, (writer) => {
    for (let step = 1; step <= steps; step++)
      writer.samples(Object.entries(totals).map(([id, of]) => sample(step, id, of(step))))
  })

/** Groups of one answer with these rewards. */
const window = (rewards: readonly number[]): Traits[] =>
  rewards.map((reward, i) => ({
    ...{ step: 1, loop: 'a', id: `r${i}`, k: 0, values: { reward } },
    ...{ answer: '', place: null, words: [], judge: null, others: null },
  }))

test('a mean rises if it is higher by more than two standard errors of the difference', () => {
  // 0, 2, 0, 2: variance 4/3 of a value, 1/3 of the mean; of a difference of two such means 2/3
  const [spread, limit] = [[0, 2, 0, 2], 2 * Math.sqrt(2 / 3)]
  const after = (by: number) => rises('reward', window(spread), window(spread.map((value) => value + by)))
  assert.deepEqual([after(0.99 * limit), after(1.01 * limit), after(-1.01 * limit)], [false, true, false])
})

function round(step: number, mean: number, name = 'mask/giou'): EvalEvent {
  const interval = { mean, low: mean - 0.05, high: mean + 0.05 }
  return { t: 'eval', step, name: `step ${step}`, records: 64, metrics: { [name]: interval } }
}

test('a held-out metric falls against the first evaluation, however slowly', () => {
  const rounds = [round(0, 0.6), round(5, 0.54), round(10, 0.48)]
  assert.equal(heldOutFalls(rounds.slice(0, 2), true), null)
  assert.match(heldOutFalls(rounds, true)!.text, /mask\/giou 0\.600 to 0\.480$/)
})

test('metrics of which more is better can fall, others cannot', () => {
  const falls = (name: string) => heldOutFalls([round(0, 0.6, name), round(5, 0.4, name)], true) !== null
  const better = ['meteor', 'giou', 'points/iou_gain', 'seg_rate', 'none_right', 'format', 'points/improved']
  assert.deepEqual(better.filter((name) => !falls(name)), []) // biome-ignore format: one line
  assert.deepEqual(['length', 'points/invalid', 'points/wrong', 'iou_left'].filter(falls), [])
})

test('a resumed run compares with the evaluation before it stopped', async () => {
  const dir = await written('stopped', (writer) => writer.eval(0, 'step 0', 64, round(0, 0.6).metrics))
  const watch = new AlarmWatch()
  watch.restore(dir)
  for (let step = 1; step <= 20; step++)
    watch.afterStep(['r', 's', 't', 'u'].map((id, i) => traitsOf(sample(step, id, step + 0.1 * i))))
  assert.deepEqual(watch.afterEvaluation(round(20, 0.4)).map(({ kind }) => kind), ['held-out-falls']) // biome-ignore format: one line
})

test('the windows of a run are its first five steps and its last five, none of them twice', async () => {
  for (const [steps, expected] of [
    [3, [1, 2, 3]],
    [7, [1, 2, 3, 4, 5, 6, 7]],
    [12, [1, 2, 3, 4, 5, 8, 9, 10, 11, 12]],
  ] as const) {
    const { samples } = followWhole(await runOf(steps, { r: () => 0 }))
    assert.deepEqual(windowSamples(samples).map(({ step }) => step), expected) // biome-ignore format: one line
  }
})

test('of few steps the first half is compared with the last, and records are named from the side it moved to', async () => {
  const totals = { high: () => 0.9, falling: (step: number) => 0.8 - 0.1 * step, low: () => 0.1 }
  const [task] = behaviourOf(followWhole(await runOf(4, totals))).tasks
  assert.deepEqual([task!.before, task!.after, task!.answers], [[1, 2], [3, 4], [6, 6]]) // biome-ignore format: one line
  const reward = task!.items.find(({ name }) => name === 'reward')!
  assert.deepEqual(reward.records, ['low', 'falling', 'high'])
  const near = (got: number, want: number) => assert.ok(Math.abs(got - want) <= 8 * Number.EPSILON, `${got}, ${want}`)
  near(reward.before, (2 * 0.9 + 0.7 + 0.6 + 2 * 0.1) / 6)
  near(reward.after, (2 * 0.9 + 0.5 + 0.4 + 2 * 0.1) / 6)
})
