// Requests to the server. NaN and infinities come as strings, as in the run's files.
import type { SeriesPoints, SeriesQuery } from '../../tracking/index.ts'
import { numberOf } from '../markup/metrics.ts'
import type { RunSummary } from '../views.ts'

export type { SampleView, ShownView } from '../markup/view-types.ts'
export type { RunSummary, RunView, SamplesView } from '../views.ts'

export type Series = SeriesPoints & { name: string }

export async function ask<T>(path: string): Promise<T> {
  const answer = await fetch(path, { headers: { Accept: 'application/json' } })
  if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`)
  return (await answer.json()) as T
}

export const runPath = (id: string) => `/api/runs/${encodeURIComponent(id)}`

export type Range = Pick<SeriesQuery, 'from' | 'to'>

export async function readSeries(id: string, names: readonly string[], range: Range) {
  if (names.length === 0) return []
  const query = new URLSearchParams(names.map((name) => ['name', name]))
  if (range.from !== undefined) query.set('from', String(range.from))
  if (range.to !== undefined) query.set('to', String(range.to))
  const { series } = await ask<{ series: Series[] }>(`${runPath(id)}/series?${query}`)
  return series.map((one) => ({ ...one, values: one.values.map(numberOf) }))
}

export const imagePath = (id: string, name: string) => `${runPath(id)}/images/${encodeURIComponent(name)}`

interface Live {
  runs: RunSummary[]
  problems: string[]
}

/** Calls `update` with the state of all runs, at once and after every change; reconnects if the connection is lost. */
export function listen(update: (live: Live) => void, lost: (is: boolean) => void): () => void {
  const source = new EventSource('/api/live')
  source.addEventListener('runs', (event) => {
    lost(false)
    update(JSON.parse((event as MessageEvent<string>).data) as Live)
  })
  source.addEventListener('error', () => lost(true))
  return () => source.close()
}
