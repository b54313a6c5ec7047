// What decides the numbers of a run, by name: settings, weights, device, schedule. A run goes on only where all of it is the same.
import { createHash } from 'node:crypto'
import { closeSync, openSync, readSync, statSync } from 'node:fs'
import { basename } from 'node:path'
import { openWeights } from '../checkpoint/index.ts'
import { hashFile } from '../core/index.ts'
import { settingsOfTask } from '../tasks/index.ts'
import { threads } from '../tensor/index.ts'
import { defaultDropout, type RunConfig } from './config.ts'
import { deviceOf } from './device.ts'
import { flattened, type Settings } from './flat-settings.ts'

/** May change from one start to the next: where things are written and how often, and paths (the files themselves are compared). */
const free = new Set([
  'output',
  'saveSteps',
  'saveTotalLimit',
  'saveTimeout',
  'logSteps',
  'samplesMiB',
  'tensorboard',
  'reportTo',
  'reportTimeout',
  'maxSteps',
  'epochs',
  'evalSteps',
  'model',
  'device',
  'dtype',
  'threads',
  'featureCache',
  'splitMoments',
  'distTimeout',
  'rewards.judge.baseUrl',
  'rewards.judge.apiKeyEnv',
])

/** Settings that decide the numbers, as they are written. */
export function writtenSettings(config: RunConfig): Settings {
  const kept = Object.entries(flattened(settingsOfTask(config))).filter(([path]) => !free.has(path))
  return { ...Object.fromEntries(kept), 'lora.dropout': config.lora.dropout ?? defaultDropout }
}

/** `more`: what a kind of run adds, such as the weight of a loss. */
export function decidingSettings(config: RunConfig, total: number, more: Settings = {}, processes = 1): Settings {
  const { device, dtype } = deviceOf(config)
  return {
    ...writtenSettings(config),
    ...more,
    ...Object.fromEntries(weightHashes(config.model)),
    'device (resolved)': device,
    'dtype (resolved)': dtype,
    processes,
    'threads (resolved)': threads(),
    // the length of the run decides every learning rate, unless none changes
    'steps of the schedule': config.optim.lrSchedulerType.startsWith('constant') ? null : total,
  }
}

const whole = 64 << 20 // files up to this size are hashed whole
const [every, piece] = [1 << 20, 4 << 10] // larger ones: a piece of each megabyte

/** `weights model.safetensors` -> hash. Cheap enough for every start: a tensor of a megabyte that differs is seen. */
export function weightHashes(dir: string): [string, string][] {
  return openWeights(dir).files.map((path) => [`weights ${basename(path)}`, hashWeights(path)])
}

function hashWeights(path: string): string {
  const { size } = statSync(path)
  if (size <= whole) return `${size} bytes, ${hashFile(path).slice(0, 16)}`
  const hash = createHash('sha256')
  const buffer = Buffer.allocUnsafe(piece)
  const fd = openSync(path, 'r')
  try {
    for (let at = 0; at < size; at += every) hash.update(buffer.subarray(0, readSync(fd, buffer, 0, piece, at)))
  } finally {
    closeSync(fd)
  }
  return `${size} bytes, ${hash.digest('hex').slice(0, 16)}`
}

/** These follow from the number of processes, which may change: sums are then rounded in another order. */
const ofProcesses = new Set(['processes', 'threads (resolved)'])

/** The settings that differ, in words: `rl.beta: 0.04, now 0.1`. A setting that one of the two does not know is left out. */
export function differences(before: Settings, now: Settings): string[] {
  const moved = (before.processes ?? 1) !== (now.processes ?? 1)
  const show = (value: unknown) => JSON.stringify(value) ?? 'nothing'
  return Object.keys(before)
    .filter((key) => !(moved && ofProcesses.has(key)))
    .filter((key) => key in now && show(before[key]) !== show(now[key]))
    .map((key) => `${key}: ${show(before[key])}, now ${show(now[key])}`)
}
