import { existsSync, readFileSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { Mismatch } from '../core/index.ts'
import type { Interval, MaskRle, RunEvent, Sample, TimingLine } from './events.ts'
import { decodeNumber, readLines } from './json-lines.ts'
import { runFiles } from './run-writer.ts'

type Json = Record<string, unknown>

export interface Run {
  dir: string
  name: string
  config: unknown
  environment: unknown
  events: readonly RunEvent[]
  timing: readonly TimingLine[]
  /** What could not be read, in words: torn lines, lines of unknown kind. Empty for a clean folder. */
  problems: string[]
  /** Read anew on each call and never held whole; what cannot be read is added to `problems`. */
  samples(): Iterable<Sample>
}

/** A run folder as it is now: finished, running, or killed in the middle of a line. */
export function readRun(dir: string): Run {
  if (!existsSync(join(dir, runFiles.events))) {
    throw new Mismatch({ where: dir, expected: `a run folder with ${runFiles.events}`, got: 'none' })
  }
  const problems: string[] = []
  return {
    dir,
    name: basename(resolve(dir)),
    config: readJson(join(dir, runFiles.config), problems),
    environment: readJson(join(dir, runFiles.environment), problems),
    events: [...readAll(join(dir, runFiles.events), toEvent, problems)],
    timing: [...readAll(join(dir, runFiles.timing), toTiming, problems)],
    problems,
    samples: () => readAll(join(dir, runFiles.samples), toSample, problems),
  }
}

function readJson(path: string, problems: string[]): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8'))
  } catch {
    note(problems, `${basename(path)} is missing or no JSON`)
    return {}
  }
}

function note(problems: string[], text: string): void {
  if (!problems.includes(text)) problems.push(text)
}

function* readAll<T>(path: string, convert: (line: Json) => T | undefined, problems: string[]): Generator<T> {
  let bad = 0
  let torn = 0
  for (const line of readLines(path)) {
    const value = line.value && convert(line.value)
    if (value !== undefined) yield value
    else if (line.whole) bad++
    else torn++
  }
  if (torn > 0) note(problems, `${basename(path)}: the last line is torn`)
  if (bad > 0) note(problems, `${basename(path)}: ${bad} ${bad === 1 ? 'line' : 'lines'} could not be read`)
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '')
const optionalText = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)

/** The entries of an object that `convert` can read. */
function record<T>(value: unknown, convert: (v: unknown) => T | undefined): Record<string, T> {
  const out: [string, T][] = []
  for (const [key, raw] of Object.entries(isObject(value) ? value : {})) {
    const converted = convert(raw)
    if (converted !== undefined) out.push([key, converted])
  }
  return Object.fromEntries(out)
}

function toInterval(value: unknown): Interval | undefined {
  if (!isObject(value)) return undefined
  const [mean, low, high] = [value.mean, value.low, value.high].map(decodeNumber)
  return mean === undefined ? undefined : { mean, low: low ?? Number.NaN, high: high ?? Number.NaN }
}

function toEvent(line: Json): RunEvent | undefined {
  const { t, step } = line
  if (typeof step !== 'number') return undefined
  if (t === 'step') return { t, step, metrics: record(line.metrics, decodeNumber) }
  if (t === 'eval') {
    const metrics = record(line.metrics, toInterval)
    return { t, step, name: text(line.name), records: decodeNumber(line.records) ?? 0, metrics }
  }
  if (t === 'warning') {
    return { t, step, kind: text(line.kind), text: text(line.text), count: decodeNumber(line.count) ?? 1 }
  }
  if (t === 'start') return { t, step, facts: isObject(line.facts) ? line.facts : {} }
  if (t === 'checkpoint') return { t, step, name: text(line.name) }
  return t === 'stop' ? { t, step, reason: text(line.reason) } : undefined
}

function toTiming(line: Json): TimingLine | undefined {
  const { t, step, time } = line
  if (typeof step !== 'number' || typeof time !== 'number') return undefined
  if (t !== 'start' && t !== 'resume' && t !== 'step' && t !== 'stop') return undefined
  return { t, step, time, metrics: record(line.metrics, decodeNumber) }
}

function toMask(value: unknown): MaskRle | null {
  if (!isObject(value) || typeof value.counts !== 'string' || !Array.isArray(value.size)) return null
  const [height, width] = value.size as unknown[]
  if (!Number.isSafeInteger(height) || !Number.isSafeInteger(width)) return null
  return { size: [height as number, width as number], counts: value.counts }
}

function toSample(line: Json): Sample | undefined {
  const { step, loop, id, k } = line
  if (typeof step !== 'number' || typeof loop !== 'string' || typeof k !== 'number') return undefined
  return {
    step,
    loop,
    id: String(id),
    k,
    text: text(line.text),
    answer: optionalText(line.answer),
    reference: optionalText(line.reference),
    given: toMask(line.given),
    made: toMask(line.made),
    rewards: record(line.rewards, (v) => (v === null ? null : decodeNumber(v))),
    total: decodeNumber(line.total) ?? null,
    advantage: decodeNumber(line.advantage) ?? Number.NaN,
    logp: decodeNumber(line.logp) ?? Number.NaN,
    length: decodeNumber(line.length) ?? Number.NaN,
    truncated: line.truncated === true,
    image: optionalText(line.image),
  }
}
