import { existsSync, readFileSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { type JsonObject, Mismatch } from '../core/index.ts'
import type { ReadSample, RunEvent, TaskName, TimingLine } from './events.ts'
import { readLines } from './json-lines.ts'
import { findTasks, toEvent, toSample, toTiming } from './parse.ts'
import { runFiles } from './run-files.ts'

/** A run folder. */
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
  samples(): Iterable<ReadSample>
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

function* readAll<T>(path: string, convert: (line: JsonObject) => T | undefined, problems: string[]): Generator<T> {
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

/** Facts of the run's start; a start that a resumed run added has the later values. */
export function startFacts(events: readonly RunEvent[]): Record<string, unknown> {
  return Object.assign({}, ...events.flatMap((event) => (event.t === 'start' ? [event.facts] : [])))
}

/** The tasks that the run's start names, and others that have a mean reward of their own. */
export function runTasks(run: Run): TaskName[] {
  const names = new Set(run.events.flatMap((event) => (event.t === 'step' ? Object.keys(event.metrics) : [])))
  return findTasks(startFacts(run.events), names, [])
}
