// Tasks: what a run can train a model to do. A kind is one folder here and one line in `taskKinds`.
// May import rl, models, rewards, data, tracking and below.
// Start reading at kind.ts, then cycle/index.ts.
import { loadExport, Mismatch } from '../core/index.ts'
import { cycleRewardSettings, cycleSettings } from './cycle/config.ts'
import { cycle } from './cycle/index.ts'
import type { TaskKind } from './kind.ts'
import { points, pointsRewardSettings, pointsSettings } from './points/points.ts'
import { reason, reasonSettings } from './reason/reason.ts'
import { segment, segmentSettings } from './segment/segment.ts'

export * from './context.ts'
export { type Cycle, type MaskSupervision, requireGrounded, supervisesMasks } from './cycle/config.ts'
export { diceLoss } from './cycle/mask-loss.ts'
export { ownCaptions } from './cycle/own-captions.ts'
export { captionOf, describeAll, segmentAll } from './cycle/prompts.ts'
export { resolveRewards } from './cycle/rewards.ts'
export type { CycleReply, CycleSample } from './cycle/sample.ts'
export { readRows, type SupervisedRecord, segmentRow, supervisedLoss } from './cycle/supervised.ts'
export * from './define-task.ts'
export type * from './kind.ts'
export * from './points/index.ts'
export { recordRatios } from './summary.ts'

/** Every kind that comes with the package. */
export const taskKinds = { cycle, points, reason, segment } as const

/** What the kinds add to the settings of a run, and to those of its rewards. */
export const taskSettings = { ...cycleSettings, ...pointsSettings, ...reasonSettings, ...segmentSettings } as const
export const taskRewardSettings = { ...cycleRewardSettings, ...pointsRewardSettings } as const

const settingsOf: Record<keyof typeof taskKinds, { run: object; rewards: object }> = {
  cycle: { run: cycleSettings, rewards: cycleRewardSettings },
  points: { run: pointsSettings, rewards: pointsRewardSettings },
  reason: { run: reasonSettings, rewards: {} },
  segment: { run: segmentSettings, rewards: {} },
}

/** Settings of a run without those that only other kinds than its own read. A user's module may read any. */
export function settingsOfTask<C extends { task: string; rewards: object }>(config: C): Partial<C> {
  if (!builtInKind(config.task)) return config
  const others = Object.entries(settingsOf).flatMap(([name, its]) => (name === config.task ? [] : [its]))
  const without = <T extends object>(values: T, part: 'run' | 'rewards') => {
    const left = new Set(others.flatMap((other) => Object.keys(other[part])))
    return Object.fromEntries(Object.entries(values).filter(([name]) => !left.has(name))) as T
  }
  return { ...without(config, 'run'), rewards: without(config.rewards, 'rewards') }
}

/** The kind of a run's settings; all kinds for a user's module, which may read the settings of any. */
function kindsFor(task: string): readonly TaskKind<never>[] {
  const kind = builtInKind(task)
  return kind ? [kind] : Object.values(taskKinds)
}

/** Settings of the kinds with their presets applied, and whether a task has its own KL term. */
export function resolveTask(config: { task: string }, input: Readonly<Record<string, unknown>>) {
  const kinds = kindsFor(config.task)
  const settings: object = Object.assign({}, ...kinds.map((kind) => kind.resolve?.(config as never, input)))
  return { settings, hasOwnKl: kinds.some((kind) => kind.hasOwnKl?.(config as never)) }
}

/** Why the kind of a run does not use a setting; null: it does, or it is a user's module. */
export function whyUnused(task: string, path: string): string | null {
  const kind = builtInKind(task)
  if (!kind) return null
  const isIn = (group: string) => path === group || path.startsWith(`${group}.`)
  const other = Object.entries(settingsOf).find(([name, { run, rewards }]) => {
    const groups = [...Object.keys(run), ...Object.keys(rewards).map((key) => `rewards.${key}`)]
    return name !== task && groups.some(isIn)
  })
  if (other) return `it belongs to task ${other[0]}`
  return Object.entries(kind.unused ?? {}).find(([group]) => isIn(group))?.[1] ?? null
}

/** Settings of a run without those that its kind does not use. */
export function usedSettings<C extends { task: string }>(config: C): Partial<C> {
  const used = (value: unknown, path: string): unknown => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
    const entries = Object.entries(value).map(([key, inner]) => ({ key, inner, at: path + key }))
    const kept = entries.filter(({ at }) => whyUnused(config.task, at) === null)
    return Object.fromEntries(kept.map(({ key, inner, at }) => [key, used(inner, `${at}.`)]))
  }
  return used(config, '') as Partial<C>
}

/** A kind by its name, or null for the path of a user's module. */
export function builtInKind(name: string): TaskKind<never> | null {
  return Object.hasOwn(taskKinds, name) ? taskKinds[name as keyof typeof taskKinds] : null
}

/** A kind by its name, or by the path of a module that exports `task`. */
export async function openKind(name: string): Promise<TaskKind<never>> {
  const known = builtInKind(name)
  if (known) return known
  if (!/[./\\]/.test(name)) {
    const expected = `${Object.keys(taskKinds).join(', ')}, or the path of a module`
    throw new Mismatch({ where: 'settings', field: 'task', expected, got: name })
  }
  const hint = 'export const task = { name, doc, check, rewards, build, evaluator } satisfies TaskKind'
  const kind = await loadExport(name, 'task', hint)
  const lacks = ['check', 'rewards', 'build', 'evaluator'].find((key) => typeof kind[key] !== 'function')
  if (lacks)
    throw new Mismatch({ where: name, field: 'task', expected: `${lacks}: a function`, got: Object.keys(kind), hint })
  return kind as unknown as TaskKind<never>
}
