import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { noticeTables, settingTable } from '../markup/tables.ts'
import type { RunSummary, RunView } from './api.ts'
import { reachByKeyboard, Shared } from './markup.tsx'

/** A section that scrolls if it is wider than the screen, also by keyboard. */
function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <section class="card scroll" aria-label={label} ref={reachByKeyboard}>
      {children}
    </section>
  )
}

export function Notices({ runs, problems }: { runs: readonly RunView[]; problems: readonly string[] }) {
  return (
    <section aria-label="Warnings">
      {problems.map((text) => (
        <p class="problem" key={text}>
          {text}
        </p>
      ))}
      {runs.map((run) => (
        <Scroll key={run.id} label={run.name}>
          <h3>{run.name}</h3>
          <Shared of={noticeTables(run)} />
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
      {groups.map(([title, of]) => (
        <Scroll key={title} label={`${title} of the chosen runs`}>
          <Shared
            of={settingTable(
              title,
              runs.map((run) => ({ name: run.name, rows: of(run) })),
              all,
            )}
          />
        </Scroll>
      ))}
    </section>
  )
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
