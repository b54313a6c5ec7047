import { existsSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { counted, type JsonObject, Mismatch, messageOf, requireBelow } from '../core/index.ts'
import type { ReadSample, RunEvent, TimingLine } from './events.ts'
import { type Line, readLines } from './json-lines.ts'
import { toEvent, toSample, toTiming } from './parse.ts'
import { readDescription, runFiles } from './run-files.ts'

/** A run folder. */
export interface Run {
  dir: string
  name: string
  config: unknown
  environment: unknown
  events: readonly RunEvent[]
  timing: readonly TimingLine[]
  /** Messages about what could not be read: torn lines, lines of unknown kind. Empty for a clean folder. */
  problems: string[]
  /** Read anew on each call and never kept whole; what cannot be read is added to `problems`. */
  samples(): Iterable<ReadSample>
}

/** A run folder as it is now: finished, running, or killed in the middle of a line. */
export function readRun(dir: string): Run {
  if (!existsSync(join(dir, runFiles.events))) {
    throw new Mismatch({ where: dir, expected: `a run folder with ${runFiles.events}`, got: 'none' })
  }
  requireBelow(dir, runFiles.events)
  const problems: string[] = []
  return {
    dir,
    name: basename(resolve(dir)),
    config: describe(dir, runFiles.config, problems),
    environment: describe(dir, runFiles.environment, problems),
    events: [...readAll(dir, runFiles.events, toEvent, problems)],
    timing: [...readAll(dir, runFiles.timing, toTiming, problems)],
    problems,
    samples: () => readAll(dir, runFiles.samples, toSample, problems),
  }
}

function describe(dir: string, name: string, problems: string[]): unknown {
  const read = readDescription(dir, name)
  if ('value' in read) return read.value
  note(problems, read.problem)
  return {}
}

function note(problems: string[], text: string): void {
  if (!problems.includes(text)) problems.push(text)
}

type Convert<T> = (line: JsonObject) => T | undefined

function* readAll<T>(dir: string, name: string, convert: Convert<T>, problems: string[]): Generator<T> {
  let bad = 0
  let torn = 0
  for (const line of linesBelow(dir, name, problems)) {
    const value = line.value && convert(line.value)
    if (value !== undefined) yield value
    else if (line.whole) bad++
    else torn++
  }
  if (torn > 0) note(problems, `${name}: the last line is torn`)
  if (bad > 0) note(problems, `${name}: ${counted(bad, 'line')} could not be read`)
}

/** The lines of a log as far as it can be read. */
function* linesBelow(dir: string, name: string, problems: string[]): Generator<Line> {
  if (!existsSync(join(dir, name))) return
  try {
    yield* readLines(requireBelow(dir, name))
  } catch (error) {
    note(problems, `${name} could not be read: ${messageOf(error)}`)
  }
}

/** Facts of the run's start; a start that a resumed run added has the later values. */
export function startFacts(events: readonly RunEvent[]): Record<string, unknown> {
  return Object.assign({}, ...events.flatMap((event) => (event.t === 'start' ? [event.facts] : [])))
}
