import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { hostOf, makeToy, scratch, toyRun } from '../../tests/support/runs.ts'
import type { Group } from '../rl/index.ts'
import { doctor } from './doctor.ts'
import { dryRun } from './dry-run.ts'
import { flatRewards, verdictOf } from './verdict.ts'

/** A group of two samples; `drawn`: masks of the samples. */
function group(id: string, name: string, hasSignal: boolean, drawn: readonly (object | null)[] = []): Group {
  const shown = (_item: object, _sample: object, reply: { mask?: object | null } | undefined) => [
    { kind: 'mask', by: 'record', value: {} },
    ...(reply && 'mask' in reply ? [{ kind: 'mask', by: 'ema', value: reply.mask }] : []),
  ]
  const replies = [0, 1].map((k) => (drawn.length > 0 ? { mask: drawn[k] ?? null } : {}))
  return { task: { name, shown }, item: { id }, samples: [{}, {}], replies, hasSignal } as unknown as Group
}

const norms = { lora: 0.5, mlp1: 1e-9 }

test('rewards that differ, masks that are drawn and gradients above 0 can learn', () => {
  const groups = [group('a', 'loop1', false, [{}, null]), group('b', 'loop1', true, [{}, {}])]
  const { canLearn, text } = verdictOf(groups, norms)
  assert.equal(canLearn, true)
  assert.equal(text, 'verdict: can learn: in the first 2 records rewards differ within groups, 3 of 4 answers drew a mask, gradients are above 0') // biome-ignore format: one line
})

test("one task without spread cannot learn, in the words of the run's warning", () => {
  const groups = [group('a', 'loop1', true), group('a', 'loop2', false)]
  const { canLearn, text } = verdictOf(groups, norms)
  assert.equal(canLearn, false)
  assert.ok(text.endsWith(flatRewards(['loop2'], 'the first record')), text)
  assert.match(text, /rewards of every group were equal: advantages are 0 and nothing is learned/)
})

test('no mask in any answer, or a group of weights without gradient, cannot learn', () => {
  const none = verdictOf([group('a', 'loop1', true, [null, null])], norms)
  assert.deepEqual([none.canLearn, /none of 2 answers drew a mask/.test(none.text)], [false, true])
  const dead = verdictOf([group('a', 'loop1', true, [{}, {}])], { ...norms, head: 0 })
  assert.deepEqual([dead.canLearn, /the gradient of head is exactly 0/.test(dead.text)], [false, true])
})

test('dry run and doctor sample records until rewards differ, and say that equal rewards teach nothing', async (t) => {
  const folder = scratch('verdict')
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  makeToy(join(folder, 'toy'))
  const config = toyRun(join(folder, 'toy'), join(folder, 'run'), { dataPath: 'scenes:6', evalRecords: 0 })
  const { verdict } = await dryRun(
    config,
    hostOf(() => 0.5),
  )
  const findings = await doctor(
    { ...config, frozenWeights: 'nf4', checkpointing: true },
    hostOf(() => 0.5),
  )
  const last = findings.at(-1)!
  assert.match(
    findings.find(({ name }) => name === 'device')!.detail,
    /^cpu \(\d+ threads\), float32, frozen matrices in nf4$/,
  )
  for (const { canLearn, text } of [verdict, { canLearn: last.pass, text: last.detail }]) {
    assert.ok(!canLearn)
    assert.match(text, /^verdict: cannot learn like this: loop1 and loop2: in the first 6 records the rewards of every/)
  }
  let asked = 0
  const later = await dryRun(
    config,
    hostOf((_, k) => (asked++ < 8 ? 0 : k / 4)),
  )
  assert.equal(/every group were equal/.test(later.verdict.text), false, later.verdict.text)
})
