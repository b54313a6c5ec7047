// State that several views share: the chosen runs, and answers of the server.
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, type Range, type RunSummary, type RunView, readSeries, runPath, type Series } from './api.ts'

/**
 * Reads again whenever `key` changes, one request at a time: during a request, only the newest key is remembered.
 * After a failed request the last answer stays.
 */
export function useAnswer<T>(key: string, read: () => Promise<T>, first: T): [T, string] {
  const [answer, setAnswer] = useState(first)
  const [failure, setFailure] = useState('')
  const busy = useRef(false)
  const wanted = useRef('')
  const reader = useRef(read)
  reader.current = read
  const alive = useRef(true)
  useEffect(() => {
    alive.current = true
    return () => {
      alive.current = false
    }
  }, [])
  useEffect(() => {
    wanted.current = key
    const run = async () => {
      if (busy.current) return
      busy.current = true
      for (let done = ''; done !== wanted.current && alive.current; ) {
        done = wanted.current
        try {
          const found = await reader.current()
          if (alive.current) setAnswer(found)
          setFailure('')
        } catch (error) {
          setFailure(error instanceof Error ? error.message : String(error))
        }
      }
      busy.current = false
    }
    void run()
  }, [key])
  return [answer, failure]
}

/** The whole view of each chosen run, kept up to date. */
export function useRuns(chosen: readonly RunSummary[]): RunView[] {
  const known = useRef(new Map<string, RunView>())
  const key = chosen.map((run) => `${run.id} ${run.version}`).join()
  const [views] = useAnswer<RunView[]>(key, async () => {
    const stale = chosen.filter((run) => known.current.get(run.id)?.version !== run.version)
    const read = await Promise.all(stale.map((run) => ask<RunView>(runPath(run.id))))
    for (const view of read) known.current.set(view.id, view)
    return chosen.flatMap((run) => known.current.get(run.id) ?? [])
  }, [])
  // Samples change without the rest; what is known of them comes with the summary.
  return views.map((view) => ({ ...view, ...chosen.find((run) => run.id === view.id && run.version === view.version) }))
}

export type SeriesByRun = ReadonlyMap<string, ReadonlyMap<string, Series>>

export function useSeries(
  runs: readonly RunView[],
  namesOf: (run: RunView) => readonly string[],
  range: Range,
): SeriesByRun {
  const wanted = runs.map((run) => [run, namesOf(run)] as const)
  const key = JSON.stringify([wanted.map(([run, names]) => [run.id, run.version, names]), range])
  const [series] = useAnswer<SeriesByRun>(
    key,
    async () => {
      const read = wanted.map(async ([run, names]) => {
        const list = await readSeries(run.id, names, range)
        return [run.id, new Map(list.map((one) => [one.name, one]))] as const
      })
      return new Map(await Promise.all(read))
    },
    new Map(),
  )
  return series
}

/** The part of the address after #: views are links. */
export function useTab(tabs: readonly string[]): string {
  const read = () => decodeURIComponent(location.hash.slice(1)) || tabs[0]!
  const [tab, setTab] = useState(read)
  useEffect(() => {
    const update = () => setTab(read())
    addEventListener('hashchange', update)
    return () => removeEventListener('hashchange', update)
  })
  return tabs.includes(tab) ? tab : tabs[0]!
}
