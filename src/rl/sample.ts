// Sample and score: the policy answers, the EMA copy answers back, rewards become advantages. Only plain data leaves.
import { shuffled, stream, streamId } from '../core/index.ts'
import { tidy } from '../tensor/index.ts'
import { advantagesOf, type Group, newGroup, type Scored } from './group.ts'
import type { Batch, Run } from './run.ts'
import { gatherGroups, ownPieces } from './share.ts'
import { Stopped } from './stopped.ts'
import type { Draw, Item, Task } from './task.ts'

/** A group on its way to be scored: it gets its scores and advantages once they are there. */
interface UnscoredGroup {
  group: Group
  scores: Promise<readonly Scored[]>
}

/** Groups of a batch, task by task. Those of a task have scores and advantages after `ready` of it. */
export interface SampledGroups {
  groups: Group[]
  ready(task: Task): Promise<void>
}

/** Samples of all tasks, replies, scores, advantages. */
export async function sampleAndScore(run: Run, batch: Batch): Promise<Group[]> {
  const { groups, ready } = await sampleGroups(run, batch)
  for (const task of run.tasks) await ready(task)
  return groups
}

/**
 * Pieces are sampled one after the other; their scoring overlaps, and what is learned first need not wait for the scores of the rest.
 * Every process samples its own records and gets the groups of all: advantages see every group of their task.
 */
export async function sampleGroups(run: Run, { pieces, draw }: Batch): Promise<SampledGroups> {
  const { world, tasks, config, roles } = run
  const own = ownPieces(run, pieces).filter((items) => items.length > 0)
  const sampled = await roles.whileWhole('ema', world, () =>
    own.flatMap((items) => run.inWork(items, () => sample(run, items, draw))),
  )
  const made = tasks.flatMap((task) => sampled.filter(({ group }) => group.task === task))
  if (world.size > 1) {
    const scored = await Promise.all(tasks.map((task) => score(made, task))).then(() => made, nullWhenStopped)
    const groups = await gatherGroups(world, tasks, config.rl, pieces.flat(), scored?.map((one) => one.group) ?? null)
    for (const task of tasks) giveAdvantages(run, groups, task, draw)
    return { groups, ready: async () => undefined }
  }
  const groups = made.map((one) => one.group)
  const ready = async (task: Task) => {
    if (await score(made, task)) giveAdvantages(run, groups, task, draw)
  }
  return { groups, ready }
}

/** Tasks that a judge scores come first, one by one: it answers while the others are sampled. */
function sample(run: Run, items: readonly Item[], draw: Draw): UnscoredGroup[] {
  const judged = run.tasks.filter(({ name }) => run.judged.has(name))
  if (judged.length === 0) return sampleTasks(run, run.tasks, items, draw)
  const others = run.tasks.filter((task) => !judged.includes(task))
  const turns = [...judged.map((task) => [task]), others]
  return run.roles.whileSampling(() => turns.flatMap((some) => sampleTasks(run, some, items, draw)))
}

/** Nothing that leaves can be differentiated. Each role does its half of the tasks at a time: its weights are brought into place once. */
function sampleTasks(run: Run, tasks: readonly Task[], items: readonly Item[], draw: Draw): UnscoredGroup[] {
  const { roles } = run
  const all = roles.forSampling(() => tasks.map((task) => tidy(() => task.sample(items, draw))))
  const answer = (task: Task, i: number): UnscoredGroup[] => {
    const replies = tidy(() => task.answer(items, all[i]!))
    const scores = run.score(task.name, replies)
    return items.map((item, b) => {
      const group = newGroup({ task, item, samples: all[i]![b]!, replies: replies[b]! }, run.config.rl)
      return { group, scores: scores[b]! }
    })
  }
  return roles.asEma(() => roles.forSampling(() => tasks.flatMap(answer)))
}

function nullWhenStopped(error: unknown): null {
  if (error instanceof Stopped) return null
  throw error
}

/** Gives the groups of a task their scores; false if they had them. */
async function score(sampled: readonly UnscoredGroup[], task: Task): Promise<boolean> {
  const own = sampled.filter(({ group }) => group.task === task && group.scores.length === 0)
  const rows = await Promise.all(own.map((one) => one.scores))
  for (const [i, { group }] of own.entries()) group.scores = rows[i]!
  return own.length > 0
}

function giveAdvantages(run: Run, groups: readonly Group[], task: Task, draw: Draw): void {
  const own = groups.filter((group) => group.task === task)
  for (const [b, { advantages, hasSignal }] of withAdvantages(run, own, draw).entries())
    Object.assign(own[b]!, { advantages, hasSignal })
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
