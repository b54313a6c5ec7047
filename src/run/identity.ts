// What decides the numbers of a run, by name: settings, files of the model, device, schedule. A run is resumed only if all of it is the same.
import { createHash } from 'node:crypto'
import { closeSync, existsSync, openSync, readFileSync, readSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { hashFile, isObject, sha256 } from '../core/index.ts'
import { weightFiles } from '../models/index.ts'
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
  'distributed.backend',
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
    ...modelFileHashes(config.model),
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
  return weightFiles(dir).map((path) => [`weights ${basename(path)}`, hashWeights(path)])
}

/** Files beside the weights that decide what the model computes and reads. */
const modelFiles = [
  'config.json',
  'generation_config.json',
  'preprocessor_config.json',
  'tokenizer.json',
  'tokenizer.model',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'merges.txt',
  'chat_template.jinja',
  'chat_template.json',
]

/** Written by tools that save a model again; no number depends on them. */
const unread = new Set(['_name_or_path', '_commit_hash', 'transformers_version'])

/** `model file config.json` -> hash, or `none`. A JSON file counts by its values, not by its spaces or the order of its keys. */
export function modelFileHashes(dir: string, names: readonly string[] = modelFiles): Record<string, string> {
  return Object.fromEntries(names.map((name) => [`model file ${name}`, hashModelFile(join(dir, name))]))
}

/** Runs of 0.1.0 have no such hashes. */
export const knowsModelFiles = (settings: Settings): boolean => `model file ${modelFiles[0]}` in settings

function hashModelFile(path: string): string {
  if (!existsSync(path)) return 'none'
  const text = readFileSync(path)
  return sha256(path.endsWith('.json') ? canonical(text) : text).slice(0, 16)
}

function canonical(bytes: Buffer): string | Buffer {
  const sorted = (key: string, value: unknown) => {
    if (!isObject(value)) return value
    const kept = key === '' ? Object.entries(value).filter(([name]) => !unread.has(name)) : Object.entries(value)
    return Object.fromEntries(kept.sort(([a], [b]) => (a < b ? -1 : 1)))
  }
  try {
    return JSON.stringify(JSON.parse(bytes.toString('utf8')), sorted)
  } catch {
    return bytes // whoever reads it reports what is wrong
  }
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

/** The settings that differ, as text: `rl.beta: 0.04, now 0.1`. A setting that one of the two does not know is left out. */
export function differences(before: Settings, now: Settings): string[] {
  const moved = (before.processes ?? 1) !== (now.processes ?? 1)
  const show = (value: unknown) => JSON.stringify(value) ?? 'nothing'
  return Object.keys(before)
    .filter((key) => !(moved && ofProcesses.has(key)))
    .filter((key) => key in now && show(before[key]) !== show(now[key]))
    .map((key) => `${key}: ${show(before[key])}, now ${show(now[key])}`)
}
