import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { messageOf, readText, requireBelow } from '../core/index.ts'

/** What a run folder holds, by name. */
export const runFiles = {
  config: 'config.json',
  environment: 'environment.json',
  events: 'events.jsonl',
  samples: 'samples.jsonl',
  evaluations: 'evaluations.jsonl',
  timing: 'timing.jsonl',
  images: 'images',
  tensorboard: 'tensorboard',
  wandb: 'wandb',
  mlflow: 'mlflow.json',
} as const

/** Settings and versions take a few kilobytes. */
const maxDescriptionBytes = 4 << 20
/** An image of a run folder is read whole to be shown. */
export const maxImageBytes = 64 << 20

export type Description = { value: unknown } | { problem: string; canChange: boolean }

/** The value of config.json or environment.json; else why there is none, and whether the same file may be readable later. */
export function readDescription(dir: string, name: string): Description {
  try {
    return { value: JSON.parse(readText(requireBelow(dir, name, maxDescriptionBytes))) }
  } catch (error) {
    const canChange = !(error instanceof SyntaxError)
    const isUsual = !canChange || !existsSync(join(dir, name))
    const problem = isUsual ? `${name} is missing or no JSON` : `${name} could not be read: ${messageOf(error)}`
    return { problem, canChange }
  }
}
