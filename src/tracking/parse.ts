// Lines of a run folder as the types of events.ts; undefined where a line is none. Files may be damaged or foreign.
import { isObject, type JsonObject } from '../core/index.ts'
import type {
  Author,
  Interval,
  MaskRle,
  ReadSample,
  RunEvent,
  Sample,
  SampleRef,
  Shown,
  ShownPoint,
  TaskName,
  TimingLine,
} from './events.ts'
import { decodeNumber } from './json-lines.ts'

const text = (value: unknown): string => (typeof value === 'string' ? value : '')
const optionalText = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)

/** Special tokens of the models, except [SEG], which asks for a mask. */
const specialTokens = /<\|[\w-]+\|>|<\/?(?:s|img|quad|ref|box|p|vp)>|<IMG_CONTEXT>/g

/** A text as people read it. */
const shownText = (value: unknown): string => text(value).replace(specialTokens, '').trim()

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

function toRef(value: unknown): SampleRef | undefined {
  if (!isObject(value)) return undefined
  const { step, loop, id, k } = value
  return typeof step === 'number' && typeof loop === 'string' && typeof k === 'number'
    ? { step, loop, id: String(id), k }
    : undefined
}

export function toEvent(line: JsonObject): RunEvent | undefined {
  const { t, step } = line
  if (typeof step !== 'number') return undefined
  if (t === 'step') return { t, step, metrics: record(line.metrics, decodeNumber) }
  if (t === 'eval') {
    const metrics = record(line.metrics, toInterval)
    return { t, step, name: text(line.name), records: decodeNumber(line.records) ?? 0, metrics }
  }
  if (t === 'warning') {
    const samples = Array.isArray(line.samples) ? { samples: line.samples.flatMap((ref) => toRef(ref) ?? []) } : {}
    return { t, step, kind: text(line.kind), text: text(line.text), count: decodeNumber(line.count) ?? 1, ...samples }
  }
  if (t === 'start') return { t, step, facts: isObject(line.facts) ? line.facts : {} }
  if (t === 'checkpoint') return { t, step, name: text(line.name) }
  return t === 'stop' ? { t, step, reason: text(line.reason) } : undefined
}

export function toTiming(line: JsonObject): TimingLine | undefined {
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

const authors: readonly string[] = ['record', 'policy', 'ema', 'judge'] satisfies Author[]

function toPoint(value: unknown): ShownPoint | undefined {
  if (!isObject(value) || typeof value.x !== 'number' || typeof value.y !== 'number') return undefined
  return { x: value.x, y: value.y, positive: value.positive !== false }
}

function toShown(value: unknown): Shown | undefined {
  if (!isObject(value) || !authors.includes(value.by as string)) return undefined
  const common = { by: value.by as Author, ...(typeof value.name === 'string' ? { name: value.name } : {}) }
  // Tasks describe what they show as {kind, by, value}; such lines are read as well.
  if (value.kind === 'text') return { kind: 'text', ...common, text: shownText(value.text ?? value.value) }
  if (value.kind === 'mask') return { kind: 'mask', ...common, mask: toMask(value.mask ?? value.value) }
  const { size: rawSize, points } = isObject(value.value) ? value.value : value
  const size = toMask({ counts: '', size: rawSize })?.size
  if (value.kind !== 'points' || !size || !Array.isArray(points)) return undefined
  return { kind: 'points', ...common, size, points: points.flatMap((p) => toPoint(p) ?? []) }
}

/** The older form names things; without `madeBy`, the policy drew the mask if the second model answered with text. */
function shownOfOlder(sample: Sample): Shown[] {
  const { reference, given, text: written, made, madeBy, answer, length } = sample
  const shown: Shown[] = []
  if (reference !== undefined) shown.push({ kind: 'text', by: 'record', text: shownText(reference) })
  if (given) shown.push({ kind: 'mask', by: 'record', mask: given })
  // a task that samples masks alone has no tokens, hence no text
  if (written !== undefined && length !== 0) shown.push({ kind: 'text', by: 'policy', text: shownText(written) })
  if (made !== undefined)
    shown.push({ kind: 'mask', by: madeBy ?? (answer === undefined ? 'ema' : 'policy'), mask: made })
  if (answer !== undefined) shown.push({ kind: 'text', by: 'ema', text: shownText(answer) })
  return shown
}

/** What a sample shows, whichever form it has. */
export function shownOf(sample: Sample): readonly Shown[] {
  return sample.shown?.flatMap((item) => toShown(item) ?? []) ?? shownOfOlder(sample)
}

const olderFields = ['text', 'answer', 'reference', 'given', 'made'] as const

export function toSample(line: JsonObject): ReadSample | undefined {
  const ref = toRef(line)
  if (!ref) return undefined
  const sample: Sample = {
    ...ref,
    rewards: record(line.rewards, (v) => (v === null ? null : decodeNumber(v))),
    total: decodeNumber(line.total) ?? null,
    advantage: decodeNumber(line.advantage) ?? Number.NaN,
    logp: decodeNumber(line.logp) ?? Number.NaN,
    length: decodeNumber(line.length) ?? Number.NaN,
    truncated: line.truncated === true,
    image: optionalText(line.image),
  }
  if (Array.isArray(line.shown)) return { ...sample, shown: line.shown.flatMap((item) => toShown(item) ?? []) }
  for (const field of olderFields) {
    if (!(field in line)) continue
    if (field === 'given' || field === 'made') sample[field] = toMask(line[field])
    else sample[field] = optionalText(line[field])
  }
  if (line.madeBy === 'ema' || line.madeBy === 'policy') sample.madeBy = line.madeBy
  return { ...sample, shown: shownOfOlder(sample) }
}

/** The tasks that a `start` event lists as {name, title}; none in older runs. */
function tasksOf(facts: Readonly<Record<string, unknown>>): TaskName[] {
  if (!Array.isArray(facts.tasks)) return []
  return facts.tasks.flatMap((task) => {
    if (typeof task === 'string') return [{ name: task, title: task }]
    if (!isObject(task) || typeof task.name !== 'string') return []
    return [{ name: task.name, title: text(task.title) || task.name }]
  })
}

/** Tasks named by the run's start, then everything that has samples or its own mean reward. */
export function findTasks(
  facts: Readonly<Record<string, unknown>>,
  metrics: Iterable<string>,
  sampled: readonly string[],
): TaskName[] {
  const tasks = tasksOf(facts)
  const known = new Set(tasks.map(({ name }) => name))
  const rewarded = Array.from(metrics, (name) => /^(.+)\/reward(?:_mean)?$/.exec(name)?.[1])
  for (const name of [...sampled, ...rewarded].sort()) {
    if (name === undefined || known.has(name)) continue
    known.add(name)
    tasks.push({ name, title: name })
  }
  return tasks
}
