import { useState } from 'preact/hooks'
import type { RunSummary, RunView } from './api.ts'
import { Scroll } from './scroll.tsx'

export interface NoticesProps {
  runs: readonly RunView[]
  problems: readonly string[]
}

export function Notices({ runs, problems }: NoticesProps) {
  return (
    <section aria-label="Notices">
      {problems.map((text) => (
        <p class="problem" key={text}>
          {text}
        </p>
      ))}
      {runs.map((run) => (
        <Scroll key={run.id} label={run.name}>
          <h3>{run.name}</h3>
          {run.problemTexts.map((text) => (
            <p class="problem" key={text}>
              {text}
            </p>
          ))}
          {run.noticeKinds.length === 0 && run.problemTexts.length === 0 && <p>No notices.</p>}
          {run.noticeKinds.length > 0 && (
            <table>
              <thead>
                <tr>
                  <th scope="col">kind</th>
                  <th scope="col">count</th>
                  <th scope="col">steps</th>
                </tr>
              </thead>
              <tbody>
                {run.noticeKinds.map((n) => (
                  <tr key={n.kind}>
                    <td>{n.kind}</td>
                    <td class="number">{n.count}</td>
                    <td class="number">{n.first === n.last ? n.first : `${n.first} to ${n.last}`}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          {run.noticeList.length > 0 && (
            <details open={run.noticeList.length <= 20}>
              <summary>the newest {run.noticeList.length}</summary>
              <table>
                <thead>
                  <tr>
                    <th scope="col">step</th>
                    <th scope="col">kind</th>
                    <th scope="col">what</th>
                  </tr>
                </thead>
                <tbody>
                  {run.noticeList.map((n, i) => (
                    <tr key={i}>
                      <td class="number">{n.step}</td>
                      <td>
                        {n.kind}
                        {n.count > 1 ? ` (${n.count})` : ''}
                      </td>
                      <td>{n.text}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </details>
          )}
        </Scroll>
      ))}
    </section>
  )
}

/** Settings side by side; at first those alone in which the runs differ. */
export function Settings({ runs }: { runs: readonly RunView[] }) {
  const [all, setAll] = useState(false)
  const groups = [
    ['settings', (run: RunView) => run.config],
    ['environment', (run: RunView) => run.environment],
    ['facts of the start', (run: RunView) => run.facts],
  ] as const
  return (
    <section aria-label="Settings">
      {runs.length > 1 && (
        <label class="controls">
          <input type="checkbox" checked={all} onChange={(e) => setAll(e.currentTarget.checked)} /> also what is equal
          in all {runs.length} runs
        </label>
      )}
      {groups.map(([title, of]) => {
        const tables = runs.map((run) => new Map(of(run)))
        const keys = [...new Set(tables.flatMap((table) => [...table.keys()]))]
        const shown = keys.filter(
          (key) => all || runs.length < 2 || new Set(tables.map((table) => table.get(key))).size > 1,
        )
        return (
          <Scroll key={title} label={`${title} of the chosen runs`}>
            <h3>
              {title}: {runs.length > 1 ? `${differing(tables, keys)} of ${keys.length} differ` : keys.length}
            </h3>
            <table class="settings">
              <thead>
                <tr>
                  <th scope="col">name</th>
                  {runs.map((run) => (
                    <th scope="col" key={run.id}>
                      {run.name}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {shown.map((key) => (
                  <tr key={key}>
                    <th scope="row">{key}</th>
                    {tables.map((table, i) => (
                      <td key={runs[i]!.id}>{table.get(key) ?? <i>absent</i>}</td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )
      })}
    </section>
  )
}

function differing(tables: readonly ReadonlyMap<string, string>[], keys: readonly string[]): number {
  return keys.filter((key) => new Set(tables.map((table) => table.get(key))).size > 1).length
}

/** Settings in which the runs differ: what they may be called by. */
export function labelsFor(runs: readonly RunView[]): string[] {
  const tables = runs.map((run) => new Map(run.config))
  const keys = new Set(tables.flatMap((table) => [...table.keys()]))
  return [...keys].filter((key) => new Set(tables.map((table) => table.get(key))).size > 1)
}

const stateWords: Record<RunSummary['state'], string> = { running: 'running', ended: 'ended', quiet: 'no sign of life' }

export function stateText(run: RunSummary): string {
  return run.state === 'ended' ? run.reason || 'ended' : stateWords[run.state]
}
