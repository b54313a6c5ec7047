import assert from 'node:assert/strict'
import test from 'node:test'
import { type Answer, JudgeStats } from '../rewards/index.ts'
import { Stopped } from '../rl/index.ts'
import { type RunInput, resolveRun } from './config.ts'
import type { Host } from './host.ts'
import { runOf, type Scoring } from './run-parts.ts'

type Scores = Awaited<ReturnType<Host['score']>>

const answer = { id: 'a', record: { category: ['cat'], image: { width: 1 } } } as unknown as Answer
const row = (total: number) => ({ total, parts: {}, counted: [], dropped: [] })

function scoring(answers: (task: string, groups: readonly (readonly Answer[])[]) => Scores, input: RunInput = {}) {
  const seen: Scoring = { step: 7, judge: null }
  const host: Pick<Host, 'score'> = { score: async (task, groups) => answers(task, groups) }
  const run = runOf(resolveRun(input), [], {} as never, {} as never, host, seen)
  return { seen, score: () => run.score('loop1', [[{ answer }], [{ answer }]]) }
}

test('what the judge counted reaches the step; each group gets its own scores', async () => {
  const judge = new JudgeStats().state({ costPerMillionIn: 1, costPerMillionOut: 1 }, 3)
  const { score, seen } = scoring(() => ({ rows: [[row(0.25)], [row(0.75)]], judge }))
  const rows = await Promise.all(score())
  assert.deepEqual(
    rows.map(([first]) => first!.total),
    [0.25, 0.75],
  )
  assert.equal(seen.judge, judge)
})

test('rewards get the step, and the picture only if a custom reward may read it', async () => {
  const sent: Answer[] = []
  const collect = (input?: RunInput) =>
    Promise.all(
      scoring((_, groups) => {
        sent.push(...groups.flat())
        return { rows: [[row(0)], [row(0)]] }
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
