import { loadExport, Mismatch } from '../core/index.ts'
import type { Reward } from './reward.ts'

function isRange(value: unknown): boolean {
  return Array.isArray(value) && value.length === 2 && value.every(Number.isFinite) && value[0] < value[1]
}

/** What is missing for an object to be a Reward; undefined when nothing is. */
function missing(value: Record<string, unknown>): string | undefined {
  if (typeof value.name !== 'string' || value.name === '') return 'name: a string'
  if (!isRange(value.range)) return 'range: [low, high]'
  if (typeof value.doc !== 'string') return 'doc: a string'
  if ((typeof value.score === 'function') === (typeof value.scoreBatch === 'function'))
    return 'either score or scoreBatch, a function'
  if (value.nullMeans !== undefined && value.nullMeans !== 'row' && value.nullMeans !== 'group')
    return "nullMeans: 'row' or 'group'"
  return undefined
}

/** A user's reward: a module with `export const reward` (or a default export). */
export async function loadReward(path: string): Promise<Reward> {
  const hint = 'export const reward = { name, range, doc, score } satisfies Reward'
  const reward = await loadExport(path, 'reward', hint)
  const lacks = missing(reward)
  if (lacks) throw new Mismatch({ where: path, field: 'reward', expected: lacks, got: Object.keys(reward), hint })
  return reward as unknown as Reward
}
