// Sample and score: the policy answers, the EMA copy answers back, rewards become advantages. Only plain data leaves.
import { shuffled, stream, streamId } from '../core/index.ts'
import { tidy } from '../tensor/index.ts'
import { advantagesOf, columnsOf, type Group, type Scored } from './group.ts'
import type { Batch, Run } from './run.ts'
import { gatherGroups, ownPieces } from './share.ts'
import { Stopped } from './stopped.ts'
import type { Draw, Item, Task } from './task.ts'

/** One record's samples of a task and the EMA copy's replies, on their way to be scored. */
type UnscoredGroup = Pick<Group, 'task' | 'item' | 'samples' | 'replies'> & { scores: Promise<readonly Scored[]> }

/**
 * Samples of all tasks, replies, scores, advantages. Pieces are sampled one after the other; their scoring overlaps. Every process
 * samples its own records and gets the groups of all: advantages see every group of their task.
 */
export async function sampleAndScore(run: Run, { pieces, draw }: Batch): Promise<Group[]> {
  const { world, tasks, config, roles } = run
  const own = ownPieces(run, pieces).filter((items) => items.length > 0)
  const sampled = await roles.whileWhole('ema', world, () =>
    own.flatMap((items) => run.inWork(items, () => sample(run, items, draw))),
  )
  const made = await scored(run, sampled).catch(nullWhenStopped)
  const groups = await gatherGroups(world, tasks, config.rl, pieces.flat(), made)
  return tasks.flatMap((task) =>
    withAdvantages(
      run,
      groups.filter((g) => g.task === task),
      draw,
    ),
  )
}

/** Nothing that leaves can be differentiated. Each role does its half of all tasks at a time: its weights are brought into place once. */
function sample(run: Run, items: readonly Item[], draw: Draw): UnscoredGroup[] {
  const { roles, tasks } = run
  const all = roles.forSampling(() => tasks.map((task) => tidy(() => task.sample(items, draw))))
  const answer = (task: Task, i: number): UnscoredGroup[] => {
    const replies = tidy(() => task.answer(items, all[i]!))
    const scores = run.score(task.name, replies)
    return items.map((item, b) => ({ task, item, samples: all[i]![b]!, replies: replies[b]!, scores: scores[b]! }))
  }
  return roles.asEma(() => roles.forSampling(() => tasks.flatMap(answer)))
}

function nullWhenStopped(error: unknown): null {
  if (error instanceof Stopped) return null
  throw error
}

/** Groups of all tasks, task by task, without advantages. */
async function scored(run: Run, sampled: readonly UnscoredGroup[]): Promise<Group[]> {
  const groups: Group[] = []
  for (const task of run.tasks) {
    const own = sampled.filter((s) => s.task === task)
    const rows = await Promise.all(own.map((s) => s.scores))
    own.forEach((s, i) => {
      const columns = columnsOf(task, s.samples, run.config.rl)
      const plain = { advantages: new Float64Array(0), hasSignal: false, old: null, reference: null }
      groups.push({ ...s, scores: rows[i]!, columns, ...plain })
    })
  }
  return groups
}

/** The same groups of one task with the advantages they have among each other. */
export function withAdvantages(run: Run, groups: readonly Group[], draw: Draw): Group[] {
  if (groups.length === 0) return []
  const { advantages, hasSignal } = advantagesOf(
    groups.flatMap((group) => rewardedRows(run, group, draw)),
    run.config.rl,
  )
  const K = groups[0]!.scores.length
  return groups.map((group, b) => {
    return { ...group, advantages: advantages.slice(b * K, (b + 1) * K), hasSignal: hasSignal[b] ?? false }
  })
}

function rewardedRows(run: Run, { task, item, scores }: Group, draw: Draw): readonly Scored[] {
  if (!run.config.shuffleRewards) return scores
  return shuffled(scores, stream(draw.seed, streamId.rows, draw.step, task.name, item.id))
}
