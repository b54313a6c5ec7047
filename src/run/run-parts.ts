// What a step is given of a run: settings, weights in their roles, and the way to its scores.
import { alone, type World } from '../distributed/index.ts'
import { type Answer, hasOwnRewards, type JudgeState } from '../rewards/index.ts'
import { initialEntropyState, RecordCosts, type Run, type Scored, Stopped, type Task } from '../rl/index.ts'
import type { RunConfig } from './config.ts'
import type { Encoder } from './features.ts'
import type { Host } from './host.ts'
import type { Learner } from './learner.ts'

/** Of the scoring itself: which step asks, and what the judge of this process has counted. */
export interface Scoring {
  step: number
  judge: JudgeState | null
  /** Tasks with a judge's term. */
  judged?: ReadonlySet<string>
}

/** An answer as it is sent to be scored; its picture goes along when a reward of the user's own may look at it. */
function sentAnswer({ answer }: { answer: Answer }, step: number, pictures: boolean): Answer {
  const { record } = answer
  if (!record || pictures) return { ...answer, step }
  const { image: _, ...plain } = record
  return { ...answer, step, record: plain }
}

/** Metrics of each reply beside its scores: scores reach every process, replies do not. */
function withMetrics(rows: readonly Scored[], replies: readonly object[]): readonly Scored[] {
  return rows.map((row, k) => {
    const { metrics } = replies[k] as { metrics?: Readonly<Record<string, number>> }
    return metrics ? { ...row, metrics: { ...row.metrics, ...metrics } } : row
  })
}

/** The parts a step needs. */
export function runOf(
  config: RunConfig,
  tasks: readonly Task[],
  learner: Learner,
  encoder: Encoder,
  host: Pick<Host, 'score'>,
  scoring: Scoring = { step: 0, judge: null },
  world: World = alone,
): Run {
  const pictures = hasOwnRewards(config.rewards)
  return {
    config: {
      rl: config.rl,
      maxGradNorm: config.optim.maxGradNorm,
      learningRate: config.optim.learningRate,
      shuffleRewards: config.shuffleRewards,
      adaptiveLoops: config.adaptiveLoops,
      fixedOrder: config.fixedOrder,
    },
    tasks,
    judged: scoring.judged ?? new Set(),
    roles: learner,
    world,
    costs: new RecordCosts(),
    inWork: (items, fn) => encoder.inWork(items, fn),
    balance: Object.fromEntries(tasks.map((t) => [t.name, 1])),
    entropy: initialEntropyState(config.rl),
    score: (task, replies) => {
      const all = host.score(
        task,
        replies.map((group) => group.map((reply) => sentAnswer(reply as { answer: Answer }, scoring.step, pictures))),
      )
      // an error is met where a group is awaited; another task's error may come first and leave this one unmet
      const one = replies.map(async (_, i) => {
        const scores = await all
        if (!scores) throw new Stopped()
        scoring.judge = scores.judge ?? scoring.judge
        return withMetrics(scores.rows[i]!, replies[i]!)
      })
      for (const promise of [all, ...one]) promise.catch(() => undefined)
      return one
    },
  }
}
