import assert from 'node:assert/strict'
import test from 'node:test'
import type { Answer } from '../rewards/index.ts'
import { Stopped } from '../rl/index.ts'
import { type RunInput, resolveRun } from './config.ts'
import type { Host } from './host.ts'
import { runOf } from './run-parts.ts'

type Scores = Awaited<ReturnType<Host['score']>>

const answer = { id: 'a', record: { category: ['cat'], image: { width: 1 } } } as unknown as Answer
const row = (total: number) => ({ total, parts: {}, counted: [], dropped: [] })

function scoring(answers: (task: string, groups: readonly (readonly Answer[])[]) => Scores, input: RunInput = {}) {
  const seen = { step: 7, metrics: {} as Record<string, number> }
  const host: Pick<Host, 'score'> = { score: async (task, groups) => answers(task, groups) }
  const run = runOf(resolveRun(input), [], {} as never, {} as never, host, seen)
  return { seen, score: () => run.score('loop1', [[{ answer }], [{ answer }]]) }
}

test('figures of the scoring reach the step; each group gets its own scores', async () => {
  const { score, seen } = scoring(() => ({ rows: [[row(0.25)], [row(0.75)]], metrics: { 'judge/calls': 3 } }))
  const rows = await Promise.all(score())
  assert.deepEqual(
    rows.map(([first]) => first!.total),
    [0.25, 0.75],
  )
  assert.deepEqual(seen.metrics, { 'judge/calls': 3 })
})

test('rewards are told the step, and are given the picture only where one of the user’s own may look at it', async () => {
  const sent: Answer[] = []
  const collect = (input?: RunInput) =>
    Promise.all(
      scoring((_, groups) => {
        sent.push(...groups.flat())
        return { rows: [[row(0)], [row(0)]], metrics: {} }
      }, input).score(),
    )
  await collect()
  assert.deepEqual(sent, new Array(2).fill({ id: 'a', step: 7, record: { category: ['cat'] } }))
  sent.length = 0
  await collect({ rewards: { modules: [{ path: './own.ts' }] } })
  assert.deepEqual(sent, new Array(2).fill({ ...answer, step: 7 }))
})

test('scores that were given up stop the step', async () => {
  for (const group of scoring(() => null).score()) await assert.rejects(group, Stopped)
})
