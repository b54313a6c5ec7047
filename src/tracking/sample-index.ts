import { readSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { fileBelow, type JsonObject, tryJsonObject, withOpen } from '../core/index.ts'
import type { ReadSample, Sample, SampleRef } from './events.ts'
import { float32, float64, type Growing, uint16, uint32 } from './growable-array.ts'
import type { LineSink } from './line-follower.ts'
import { toSample } from './parse.ts'

const maxParts = 64
const maxTasks = 1024

/** What the index keeps of a line; the rest is read when it is shown. */
export interface SampleEntry extends Pick<Sample, 'step' | 'id' | 'k' | 'advantage' | 'rewards'> {
  task: string
  /** NaN where it could not be scored. */
  total: number
  /** Cut at the length limit. */
  truncated: boolean
}

function toEntry(line: JsonObject): SampleEntry | undefined {
  const sample = toSample(line)
  if (!sample) return undefined
  const { ['__proto__']: _, ...rewards } = sample.rewards
  return {
    ...sample,
    task: sample.loop,
    total: sample.total ?? Number.NaN,
    truncated: sample.truncated === true,
    rewards,
  }
}

const headEnd = Buffer.from(',"k":')
const tailStart = Buffer.from(',"rewards":{')
const comma = 44
const headForm = /^\{"step":(\d+),"loop":"([^"\\\x80-\xff]*)","id":"([^"\\\x80-\xff]*)","k":(\d+)$/
const tailForm = /^,"rewards":(\{[^{}\\\x80-\xff]*\}),"total":(null|[-+.\deE]+),"advantage":([-+.\deE]+)(?:,[^{}]*)?\}$/

/** The line as the writer writes it, by its two ends; undefined where it has another form. */
function readEnds(bytes: Buffer): SampleEntry | undefined {
  const from = bytes.indexOf(headEnd)
  const to = bytes.lastIndexOf(tailStart)
  if (from < 0 || to < from || bytes[bytes.length - 1] !== 125 /* } */) return undefined
  const end = bytes.indexOf(comma, from + headEnd.length)
  const head = headForm.exec(bytes.toString('latin1', 0, end))
  const tail = head && tailForm.exec(bytes.toString('latin1', to))
  if (!head || !tail) return undefined
  const rewards = tryJsonObject(tail[1]!) as Record<string, number | null> | undefined
  if (!rewards) return undefined
  for (const name in rewards) {
    const value = rewards[name]
    if (typeof value !== 'number' && value !== null) return undefined
  }
  const total = tail[2] === 'null' ? Number.NaN : Number(tail[2])
  return {
    step: Number(head[1]),
    task: head[2]!,
    id: head[3]!,
    k: Number(head[4]),
    total,
    advantage: Number(tail[3]),
    truncated: tail[0].includes('"truncated":true'),
    rewards,
  }
}

/**
 * Masks and captions are most of a line, so only its ends are read where they have the writer's form. Quotes inside
 * strings are escaped, so neither mark can occur in a text, and a nested one is followed by two braces. Every other line
 * is read whole.
 */
export function readEntry(bytes: Buffer): SampleEntry | undefined {
  const ends = readEnds(bytes)
  if (ends) return ends
  const whole = tryJsonObject(bytes.toString('utf8'))
  return whole && toEntry(whole)
}

/** Texts as small numbers. */
class Names {
  readonly list: string[] = []
  readonly #numbers = new Map<string, number>()

  number(text: string): number {
    const known = this.#numbers.get(text)
    if (known !== undefined) return known
    this.#numbers.set(text, this.list.length)
    return this.list.push(text) - 1
  }

  find(text: string): number | undefined {
    return this.#numbers.get(text)
  }
}

/** The samples of a run by number: the place of each in its file and the fields to search. */
export class SampleIndex implements LineSink {
  readonly path: string
  readonly tasks = new Names()
  readonly records = new Names()
  readonly step = float64()
  readonly task = uint16()
  readonly record = uint32()
  readonly k = uint16()
  readonly total = float64()
  readonly advantage = float64()
  readonly truncated = uint16()
  readonly #starts = float64()
  readonly #lengths = uint32()
  readonly #parts = new Map<string, Growing<Float32Array>>()
  /** Lines that are not samples. */
  bad = 0

  constructor(path: string) {
    this.path = path
  }

  get count(): number {
    return this.step.length
  }

  /** How many samples have a score. */
  get numScored(): number {
    return this.total.view().reduce((n, total) => n + (Number.isNaN(total) ? 0 : 1), 0)
  }

  get numTruncated(): number {
    return this.truncated.view().reduce((a, b) => a + b, 0)
  }

  get parts(): string[] {
    return [...this.#parts.keys()]
  }

  /** One part of the reward of a sample; NaN where it has none. */
  part(name: string, row: number): number {
    const column = this.#parts.get(name)
    return column && row < column.length ? column.at(row) : Number.NaN
  }

  line(bytes: Buffer, start: number, end: number): void {
    const entry = readEntry(bytes)
    if (!entry || (this.tasks.list.length >= maxTasks && this.tasks.find(entry.task) === undefined)) {
      this.bad++
      return
    }
    const row = this.count
    this.step.push(entry.step)
    this.task.push(this.tasks.number(entry.task))
    this.record.push(this.records.number(entry.id))
    this.k.push(entry.k)
    this.total.push(entry.total)
    this.advantage.push(entry.advantage)
    this.truncated.push(entry.truncated ? 1 : 0)
    this.#starts.push(start)
    this.#lengths.push(end - 1 - start)
    for (const name in entry.rewards) this.#setPart(name, row, entry.rewards[name]!)
  }

  /** Samples before the first that has the part, and those without it, get NaN. */
  #setPart(name: string, row: number, value: number | null): void {
    let column = this.#parts.get(name)
    if (!column) {
      if (this.#parts.size >= maxParts) return
      column = float32()
      this.#parts.set(name, column)
    }
    while (column.length < row) column.push(Number.NaN)
    column.push(value ?? Number.NaN)
  }

  cut(offset: number): void {
    const kept = this.#starts.countBelow(offset)
    const places = [this.step, this.task, this.record, this.k, this.#starts, this.#lengths]
    const scores = [this.total, this.advantage, this.truncated, ...this.#parts.values()]
    for (const column of [...places, ...scores]) column.cut(kept)
    if (offset === 0) this.bad = 0
  }

  /** The row of a sample, or none. */
  rowsOf({ step, loop, id, k }: SampleRef): number[] {
    const [task, record] = [this.tasks.find(loop), this.records.find(id)]
    for (let row = this.count - 1; row >= 0; row--)
      if (
        this.record.at(row) === record &&
        this.step.at(row) === step &&
        this.task.at(row) === task &&
        this.k.at(row) === k
      )
        return [row]
    return []
  }

  /** The samples of these rows as they are in the file now; rows that cannot be read are left out. */
  read(rows: readonly number[]): ReadSample[] {
    const path = rows.length > 0 ? fileBelow(dirname(this.path), basename(this.path)) : null
    if (path === null) return []
    const sampleAt = (fd: number, row: number): ReadSample | undefined => {
      const bytes = Buffer.alloc(this.#lengths.at(row))
      readSync(fd, bytes, 0, bytes.length, this.#starts.at(row))
      const line = tryJsonObject(bytes.toString('utf8'))
      return line && toSample(line)
    }
    return withOpen(path, (fd) => rows.flatMap((row) => sampleAt(fd, row) ?? []))
  }
}
