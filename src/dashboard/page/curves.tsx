import { useState } from 'preact/hooks'
import { exactMetrics, firstMetrics, meaningOf, rank, splitKey } from '../markup/metrics.ts'
import type { Range, RunView } from './api.ts'
import { colourOf, smoothed } from './format.ts'
import { type Curve, Plot } from './plot.tsx'
import { type SeriesByRun, useSeries } from './state.ts'

export interface CurvesProps {
  runs: readonly RunView[]
  labelOf(run: RunView): string
  range: Range
  setRange(range: Range): void
  dark: boolean
}

const dashes = [undefined, [6, 4], [2, 3], [8, 3, 2, 3]]

interface Figure {
  name: string
  /** Key of each curve with the place of its task. */
  keys: Map<string, number>
}

/** One figure for all tasks and runs that have it. */
function figuresOf(runs: readonly RunView[], namesOf: (run: RunView) => readonly string[]): Figure[] {
  const figures = new Map<string, Figure>()
  for (const run of runs) {
    for (const key of namesOf(run)) {
      const { name, at } = splitKey(key, run.tasks)
      const figure = figures.get(name) ?? { name, keys: new Map() }
      figure.keys.set(key, Math.max(0, at))
      figures.set(name, figure)
    }
  }
  return [...figures.values()].sort((a, b) => rank(a.name) - rank(b.name) || (a.name < b.name ? -1 : 1))
}

export interface DrawOptions {
  smoothing: number
  dark: boolean
  labelOf(run: RunView): string
}

/** A colour for each label where runs are compared, else one for each task. */
export function curvesOf(
  keys: ReadonlyMap<string, number>,
  runs: readonly RunView[],
  series: SeriesByRun,
  options: DrawOptions,
): Curve[] {
  const { smoothing, dark, labelOf } = options
  const labels = [...new Set(runs.map(labelOf))]
  const curves: Curve[] = []
  for (const run of runs) {
    for (const [key, at] of keys) {
      const found = series.get(run.id)?.get(key)
      if (!found || found.steps.length === 0) continue
      const { task, name } = splitKey(key, run.tasks)
      const words = [runs.length > 1 ? labelOf(run) : '', task && keys.size > 1 ? task.title : ''].filter(
        (w) => w !== '',
      )
      const colour = colourOf(runs.length > 1 ? labels.indexOf(labelOf(run)) : at, dark)
      const common = {
        label: words.join(', ') || name,
        colour,
        dash: runs.length > 1 ? dashes[at % dashes.length] : undefined,
        steps: found.steps,
      }
      const bend = smoothing > 0 && !exactMetrics.includes(name)
      if (bend) curves.push({ ...common, label: `${common.label} (each step)`, values: found.values, faint: true })
      curves.push({ ...common, values: bend ? smoothed(found.values, smoothing) : found.values })
    }
  }
  return curves
}

const csvPath = (runs: readonly RunView[], keys: Iterable<string>) => {
  const names = Array.from(keys, (key): [string, string] => ['name', key])
  return `/api/csv?${new URLSearchParams([...runs.map((run): [string, string] => ['run', run.id]), ...names])}`
}

const isBytes = (name: string) => /bytes(_sent)?$/.test(name)

function Charts({
  figures,
  logarithmic,
  smoothing,
  ...props
}: CurvesProps & { figures: Figure[]; logarithmic: boolean; smoothing: number }) {
  const wanted = new Set(figures.flatMap((f) => [...f.keys.keys()]))
  const series = useSeries(
    props.runs,
    (run) => [...run.metrics, ...run.timing].filter((name) => wanted.has(name)),
    props.range,
  )
  return (
    <div class="charts">
      {figures.map((figure) => (
        <Plot
          key={figure.name}
          title={figure.name}
          meaning={meaningOf(figure.name)}
          curves={curvesOf(figure.keys, props.runs, series, { smoothing, dark: props.dark, labelOf: props.labelOf })}
          logarithmic={logarithmic}
          range={props.range}
          setRange={props.setRange}
          dark={props.dark}
          inBytes={isBytes(figure.name)}
          csv={csvPath(props.runs, figure.keys.keys())}
        />
      ))}
    </div>
  )
}

const shownAtOnce = 24

export function Curves(props: CurvesProps) {
  const [smoothing, setSmoothing] = useState(0.8)
  const [logarithmic, setLogarithmic] = useState(false)
  const [words, setWords] = useState('')
  const [all, setAll] = useState(false)
  const figures = figuresOf(props.runs, (run) => run.metrics)
  const found =
    words === ''
      ? figures
      : figures.filter((f) => [f.name, ...f.keys.keys()].some((n) => n.toLowerCase().includes(words.toLowerCase())))
  const first = found.filter((f) => rank(f.name) < firstMetrics.length)
  const few = first.length > 0 ? first : found.slice(0, shownAtOnce)
  const shown = all || words !== '' ? found.slice(0, 120) : few
  const zoomed = props.range.from !== undefined || props.range.to !== undefined
  return (
    <section aria-label="Curves">
      <div class="controls">
        <label>
          smoothing{' '}
          <input
            type="range"
            min="0"
            max="0.99"
            step="0.01"
            value={smoothing}
            onInput={(e) => setSmoothing(Number(e.currentTarget.value))}
          />{' '}
          <output>{smoothing.toFixed(2)}</output>
        </label>
        <label>
          <input type="checkbox" checked={logarithmic} onChange={(e) => setLogarithmic(e.currentTarget.checked)} /> log
          scale
        </label>
        <label>
          figures with <input type="search" value={words} onInput={(e) => setWords(e.currentTarget.value)} />
        </label>
        <label>
          <input type="checkbox" checked={all} onChange={(e) => setAll(e.currentTarget.checked)} /> all {figures.length}{' '}
          figures
        </label>
        <button type="button" disabled={!zoomed} onClick={() => props.setRange({})}>
          all steps
        </button>
      </div>
      {figures.length === 0 && <p>No step has been logged yet.</p>}
      <Charts {...props} figures={shown} logarithmic={logarithmic} smoothing={smoothing} />
      {shown.length < found.length && (
        <p>{found.length - shown.length} more figures are not shown; look for them by name.</p>
      )}
      <p class="small">
        Drag over a chart to zoom. In a chart: arrow keys read values, + and - zoom, 0 shows all steps.
      </p>
    </section>
  )
}

/** Phases of the step as a stacked band, memory, and other figures of the clock. */
export function Work(props: CurvesProps) {
  const prefix = 'seconds/'
  const rest = figuresOf(props.runs, (run) => run.timing.filter((name) => !name.startsWith(prefix)))
  const memory = rest.filter((f) => isBytes(f.name))
  const others = rest.filter((f) => !isBytes(f.name))
  const series = useSeries(props.runs, (run) => run.timing.filter((name) => name.startsWith(prefix)), props.range)
  return (
    <section aria-label="Step and memory">
      <h2>Phases of a step, in seconds</h2>
      <div class="charts">
        {props.runs.map((run) => {
          const names = run.timing.filter((name) => name.startsWith(prefix))
          if (names.length === 0) return <p key={run.id}>{run.name}: no phases are logged.</p>
          return (
            <Plot
              key={run.id}
              title={`${props.labelOf(run)}: seconds of a step`}
              curves={stacked(names, prefix, series.get(run.id), props.dark)}
              range={props.range}
              setRange={props.setRange}
              dark={props.dark}
              csv={csvPath([run], names)}
            />
          )
        })}
      </div>
      <h2>Memory</h2>
      {memory.length === 0 && <p>No memory is logged.</p>}
      <Charts {...props} figures={memory} logarithmic={false} smoothing={0} />
      <h2>Speed and counts</h2>
      <Charts {...props} figures={others} logarithmic={false} smoothing={0} />
    </section>
  )
}

/** Each curve is the sum of itself and those below it; the highest is drawn first, so that each shows as a band. */
function stacked(
  names: readonly string[],
  prefix: string,
  series: ReadonlyMap<string, { steps: number[]; values: number[] }> | undefined,
  dark: boolean,
): Curve[] {
  const steps = [...new Set(names.flatMap((name) => series?.get(name)?.steps ?? []))].sort((a, b) => a - b)
  const sums = new Map<number, number>()
  const bands = names.map((name, at): Curve => {
    const found = series?.get(name)
    const values = new Map(found?.steps.map((step, i) => [step, found.values[i]!]))
    let last = 0
    const own = steps.map((step) => {
      const value = values.get(step) ?? last // thinned curves do not keep the same steps
      last = Number.isFinite(value) ? value : last
      return last
    })
    const heights = steps.map((step, i) => {
      sums.set(step, (sums.get(step) ?? 0) + own[i]!)
      return sums.get(step)!
    })
    return { label: name.slice(prefix.length), colour: colourOf(at, dark), fill: true, steps, values: heights, own }
  })
  return bands.reverse()
}
