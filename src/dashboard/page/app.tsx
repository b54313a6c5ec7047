import { render } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import './page.css'
import { evaluations } from '../markup/evaluations.ts'
import { counted } from '../markup/metrics.ts'
import { listen, type Range, type RunSummary, type RunView } from './api.ts'
import { Behaviour } from './behaviour.tsx'
import { Curves, Work } from './curves.tsx'
import { Shared } from './markup.tsx'
import { Choice, type Option, Rollouts } from './rollouts.tsx'
import { useRuns, useTab } from './state.ts'
import { labelsFor, Notices, Settings, stateText } from './tables.tsx'

const titles: Record<string, string> = {
  curves: 'Curves',
  behaviour: 'Behaviour',
  step: 'Step and memory',
  evaluations: 'Evaluations',
  rollouts: 'Rollouts',
  notices: 'Warnings',
  settings: 'Settings',
}
const tabs = Object.keys(titles)

interface PickerProps {
  runs: readonly RunSummary[]
  chosen: ReadonlySet<string>
  choose(ids: Set<string>): void
}

function Picker({ runs, chosen, choose }: PickerProps) {
  const [words, setWords] = useState('')
  const found = runs.filter((run) => `${run.name} ${run.folder}`.toLowerCase().includes(words.toLowerCase()))
  const flip = (id: string) => {
    const next = new Set(chosen)
    if (!next.delete(id)) next.add(id)
    choose(next)
  }
  return (
    <section class="picker card" aria-label="Runs">
      {runs.length > 6 && (
        <div class="controls">
          <label>
            runs with <input type="search" value={words} onInput={(e) => setWords(e.currentTarget.value)} />
          </label>
          <button type="button" onClick={() => choose(new Set(found.map((run) => run.id)))}>
            all {found.length}
          </button>
          <button type="button" onClick={() => choose(new Set())}>
            none
          </button>
        </div>
      )}
      <ul>
        {found.map((run) => (
          <li key={run.id}>
            <label title={run.folder}>
              <input type="checkbox" checked={chosen.has(run.id)} onChange={() => flip(run.id)} />
              <span class="name">{run.name}</span>
              <span class={`state ${run.state}`} data-run={run.name} data-step={run.step}>
                {stateText(run)}, step {run.step}
                {run.total > 0 ? ` of ${run.total}` : ''}
              </span>
              {run.notices + run.problems > 0 && (
                <span class="problem">{counted(run.notices + run.problems, 'warning')}</span>
              )}
            </label>
          </li>
        ))}
      </ul>
      {runs.length === 0 && <p role="status">No run yet: this page shows one as soon as its folder appears.</p>}
    </section>
  )
}

/** The newest runs that are running, or else the first one. */
function firstChoice(runs: readonly RunSummary[]): Set<string> {
  const running = runs.filter((run) => run.state === 'running').map((run) => run.id)
  return new Set(running.length > 0 ? running.slice(0, 10) : runs.slice(0, 1).map((run) => run.id))
}

function App() {
  const [runs, setRuns] = useState<RunSummary[]>([])
  const [problems, setProblems] = useState<string[]>([])
  const [lost, setLost] = useState(false)
  const [chosen, setChosen] = useState<Set<string> | null>(null)
  const [range, setRange] = useState<Range>({})
  const [labelBy, setLabelBy] = useState('')
  const tab = useTab(tabs)
  useEffect(
    () =>
      listen((live) => {
        setRuns(live.runs)
        setProblems(live.problems)
        setChosen((known) => known ?? (live.runs.length > 0 ? firstChoice(live.runs) : null))
      }, setLost),
    [],
  )
  const picked = chosen ?? new Set<string>()
  const views = useRuns(runs.filter((run) => picked.has(run.id)))
  const labels: Option[] = [['', 'their names'], ...labelsFor(views).map((key): Option => [key, key])]
  const labelOf = (run: RunView) => {
    const value = run.config.find(([key]) => key === labelBy)?.[1]
    return labelBy !== '' && value !== undefined ? `${labelBy.split('.').at(-1)} ${value}` : run.name
  }
  const shared = { runs: views, labelOf, range, setRange }
  return (
    <>
      <header>
        <h1>roundtrip</h1>
        <nav aria-label="Views">
          {tabs.map((name) => (
            <a key={name} href={`#${name}`} aria-current={tab === name ? 'page' : undefined}>
              {titles[name]}
            </a>
          ))}
        </nav>
        {lost && (
          <span class="problem" role="alert">
            the server does not answer; trying again
          </span>
        )}
      </header>
      <main>
        <Picker runs={runs} chosen={picked} choose={setChosen} />
        {views.length > 1 && (
          <div class="controls">
            <Choice name="name runs by" value={labelBy} of={labels} choose={setLabelBy} />
          </div>
        )}
        <h2 class="visually-hidden">{titles[tab]}</h2>
        {tab === 'curves' && <Curves {...shared} />}
        {tab === 'behaviour' && <Behaviour runs={views} />}
        {tab === 'step' && <Work {...shared} />}
        {tab === 'evaluations' && (
          <Shared
            of={evaluations(views.map((run) => ({ label: labelOf(run), evals: run.evals, note: run.evalNote })))}
          />
        )}
        {tab === 'rollouts' && <Rollouts runs={views} />}
        {tab === 'notices' && <Notices runs={views} problems={problems} />}
        {tab === 'settings' && <Settings runs={views} />}
      </main>
    </>
  )
}

render(<App />, document.getElementById('app')!)
