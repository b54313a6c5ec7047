// How far an MLflow server has followed a run, kept in the run folder, and what the run's log has beyond it.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { atomicWriteJson, log, messageOf, readTextFile } from '../../core/index.ts'
import type { Metrics } from '../events.ts'
import { readLines } from '../json-lines.ts'
import { toEvent, toTiming } from '../parse.ts'
import { runFiles } from '../run-files.ts'
import { meansOf, type TrackedRun } from './tracker.ts'

export interface Reached {
  /** Address of the interface, without secrets. */
  server: string
  run_id: string
  /** The last step of which, and of all before it, the server has every metric. */
  sent: number
}

const pathOf = ({ dir }: Pick<TrackedRun, 'dir'>) => join(dir, runFiles.mlflow)

/** Null for a new run, and if nothing usable was kept. Steps after the checkpoint are repeated and sent again. */
export function readReached(run: TrackedRun, server: string): Reached | null {
  const path = pathOf(run)
  const { resumedAt = -1 } = run
  if (resumedAt < 0 || !existsSync(path)) return null
  try {
    const { run_id, sent, ...kept } = JSON.parse(readTextFile(path)) as Record<string, unknown>
    if (kept.server !== server || typeof run_id !== 'string' || !Number.isInteger(sent)) return null
    return { server, run_id, sent: Math.min(sent as number, resumedAt) }
  } catch (error) {
    log.warn(`${path}: not used, the server gets the run as a new one: ${messageOf(error)}`)
    return null
  }
}

/** A full disk does not end the run: at worst a resumed run sends some steps twice. */
export function writeReached(run: TrackedRun, reached: Reached): void {
  const path = pathOf(run)
  try {
    atomicWriteJson(path, reached)
  } catch (error) {
    log.debug(`${path}: not written: ${messageOf(error)}`)
  }
}

/** Metrics of the log after step `after` up to `until`, as the tracker got them. */
export function* loggedMetrics(dir: string, after: number, until: number) {
  const inside = (step: number) => step > after && step <= until
  const timing = new Map<number, { time: number; metrics: Metrics }>()
  for (const { value } of readLines(join(dir, runFiles.timing))) {
    const line = value && toTiming(value)
    if (line?.t === 'step' && inside(line.step)) timing.set(line.step, { time: line.time, metrics: line.metrics ?? {} })
  }
  let time = Date.now()
  for (const { value } of readLines(join(dir, runFiles.events))) {
    const event = value && toEvent(value)
    if (!event || !inside(event.step)) continue
    const clock = timing.get(event.step)
    time = clock?.time ?? time
    if (event.t === 'step') yield { step: event.step, time, values: { ...event.metrics, ...clock?.metrics } }
    else if (event.t === 'eval') yield { step: event.step, time, values: meansOf(event.metrics) }
  }
}
