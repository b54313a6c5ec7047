// Requests to the server. NaN and infinities come as strings, as in the run's files.
import type { SeriesPoints, SeriesQuery } from '../../tracking/index.ts'
import { numberOf } from '../markup/metrics.ts'
import type { RunSummary, RunView, SamplesView } from '../markup/view-types.ts'

export type { EvalView, NoticeView, RunSummary, RunView, SampleView, ShownView } from '../markup/view-types.ts'

export type Series = SeriesPoints & { name: string }

export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  const answer = await fetch(path, { signal, headers: { Accept: 'application/json' } })
  if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`)
  return (await answer.json()) as T
}

export const runPath = (id: string) => `/api/runs/${encodeURIComponent(id)}`

export function readRun(id: string, signal?: AbortSignal): Promise<RunView> {
  return ask<RunView>(runPath(id), signal)
}

export type Range = Pick<SeriesQuery, 'from' | 'to'>

export async function readSeries(id: string, names: readonly string[], range: Range, signal?: AbortSignal) {
  if (names.length === 0) return []
  const query = new URLSearchParams(names.map((name) => ['name', name]))
  if (range.from !== undefined) query.set('from', String(range.from))
  if (range.to !== undefined) query.set('to', String(range.to))
  const { series } = await ask<{ series: Series[] }>(`${runPath(id)}/series?${query}`, signal)
  return series.map((one) => ({ ...one, values: one.values.map(numberOf) }))
}

export function readSamples(id: string, query: URLSearchParams, signal?: AbortSignal): Promise<SamplesView> {
  return ask<SamplesView>(`${runPath(id)}/samples?${query}`, signal)
}

export const imagePath = (id: string, name: string) => `${runPath(id)}/images/${encodeURIComponent(name)}`

/** Calls `update` with the state of all runs, at once and after every change; reconnects if the connection is lost. */
export function listen(
  update: (runs: RunSummary[], problems: string[]) => void,
  lost: (is: boolean) => void,
): () => void {
  const source = new EventSource('/api/live')
  source.addEventListener('runs', (event) => {
    const { runs, problems } = JSON.parse((event as MessageEvent<string>).data) as {
      runs: RunSummary[]
      problems: string[]
    }
    lost(false)
    update(runs, problems)
  })
  source.addEventListener('error', () => lost(true))
  return () => source.close()
}
