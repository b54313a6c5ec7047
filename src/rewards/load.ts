import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Mismatch, messageOf } from '../core/index.ts'
import type { Reward } from './reward.ts'

/** Node runs TypeScript by itself from 22.18; before that tsx does it, when it is installed. */
async function importModule(path: string): Promise<Record<string, unknown>> {
  const url = pathToFileURL(path).href
  try {
    return await import(url)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_UNKNOWN_FILE_EXTENSION') throw error
    const { tsImport } = await import('tsx/esm/api').catch(() => {
      throw new Error(
        'this Node cannot run TypeScript: install tsx, use Node 22.18 or newer, or compile the module to .mjs',
      )
    })
    return await tsImport(url, import.meta.url)
  }
}

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
  const full = resolve(path)
  if (!existsSync(full))
    throw new Mismatch({ where: path, field: 'reward module', expected: 'a file', got: 'nothing there' })
  let module: Record<string, unknown>
  try {
    module = await importModule(full)
  } catch (error) {
    throw new Mismatch(
      { where: path, field: 'reward module', expected: 'a module that loads', got: messageOf(error) },
      { cause: error },
    )
  }
  const reward = module.reward ?? module.default
  const hint = 'export const reward = { name, range, doc, score } satisfies Reward'
  if (typeof reward !== 'object' || reward === null) {
    throw new Mismatch({ where: path, field: 'export', expected: '`reward`', got: Object.keys(module), hint })
  }
  const lacks = missing(reward as Record<string, unknown>)
  if (lacks) throw new Mismatch({ where: path, field: 'reward', expected: lacks, got: Object.keys(reward), hint })
  return reward as Reward
}
