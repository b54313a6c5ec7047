// Can this model learn from these records? Answered from a few sampled groups, in the words of the run's own warning.
import type { Example } from '../data/index.ts'
import { type Group, type Run, sampleAndScore } from '../rl/index.ts'
import type { WorkItem } from '../tasks/index.ts'
import type { Encoder } from './features.ts'

export interface Verdict {
  canLearn: boolean
  text: string
}

/** Rewards without spread, as a warning or a verdict. */
export function flatRewards(tasks: readonly string[], within: string): string {
  return `${tasks.join(' and ')}: in ${within} the rewards of every group were equal: advantages are 0 and nothing is learned; see docs/troubleshooting.md`
}

/** Records that are sampled at most until each task has had a group with spread. */
export const maxRecords = 8

/** Tasks none of whose groups has rewards that differ. */
export const lacksSpread = (groups: readonly Group[]) => {
  const names = new Set(groups.map(({ task }) => task.name))
  return [...names].filter((name) => !groups.some((group) => group.task.name === name && group.hasSignal))
}

/** Groups of further records after those of the first one, while a task has none with spread. */
export async function sampleUntilSpread(
  run: Run,
  encoder: Encoder,
  seed: number,
  next: () => Promise<Example | null>,
  first: readonly Group[] = [],
): Promise<Group[]> {
  const groups = [...first]
  for (let at = first.length > 0 ? 1 : 0; at < maxRecords; at++) {
    if (groups.length > 0 && lacksSpread(groups).length === 0) break
    const example = await next()
    if (example === null) break
    const items = encoder.items([example]) as WorkItem[]
    try {
      groups.push(...(await sampleAndScore(run, { draw: { seed, step: at }, pieces: [items] })))
    } finally {
      encoder.release(items)
    }
  }
  return groups
}

/** Answers with a mask, and all answers; null if no task draws one. */
function countDrawn(groups: readonly Group[]): { drawn: number; all: number } | null {
  const masks = groups.flatMap(({ task, item, samples, replies }) =>
    samples.flatMap((sample, k) =>
      task
        .shown(item, sample, replies[k])
        .filter(({ kind, by }) => kind === 'mask' && by !== 'record')
        .slice(0, 1),
    ),
  )
  return masks.length === 0 ? null : { drawn: masks.filter(({ value }) => value !== null).length, all: masks.length }
}

/** `norms`: gradient of each group of weights in a step with spread; empty: there was no such step. */
export function verdictOf(groups: readonly Group[], norms: Readonly<Record<string, number>>): Verdict {
  const numRecords = new Set(groups.map(({ item }) => item.id)).size
  const within = numRecords === 1 ? 'the first record' : `the first ${numRecords} records`
  const flat = lacksSpread(groups)
  const drawn = countDrawn(groups)
  const dead = Object.entries(norms).flatMap(([group, norm]) => (norm > 0 ? [] : [group]))
  const reasons = [
    ...(flat.length > 0 ? [flatRewards(flat, within)] : []),
    ...(drawn?.drawn === 0
      ? [`none of ${drawn.all} answers drew a mask: the model writes no [SEG] or no valid answer`]
      : []),
    ...(flat.length === 0 && dead.length > 0 ? [`the gradient of ${dead.join(', ')} is exactly 0`] : []),
  ]
  if (reasons.length > 0) return { canLearn: false, text: `verdict: cannot learn like this: ${reasons.join('; ')}` }
  const reached = Object.keys(norms).length > 0 ? ', gradients are above 0' : ''
  const seg = drawn ? `, ${drawn.drawn} of ${drawn.all} answers drew a mask` : ''
  return { canLearn: true, text: `verdict: can learn: in ${within} rewards differ within groups${seg}${reached}` }
}
