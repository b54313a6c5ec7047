import { useState } from 'preact/hooks'
import type { Curve } from '../markup/chart.ts'
import { type CurveRun, curvesOf, isBytes, isFirst, type Metric, metricsOf, slotAt } from '../markup/curves.ts'
import { counted, meaningOf } from '../markup/metrics.ts'
import type { Range, RunView } from './api.ts'
import { smoothed } from './format.ts'
import { Plot } from './plot.tsx'
import { useSeries } from './state.ts'

export interface CurvesProps {
  runs: readonly RunView[]
  labelOf(run: RunView): string
  range: Range
  setRange(range: Range): void
}

const csvPath = (runs: readonly RunView[], keys: readonly string[]) => {
  const names = keys.map((key): [string, string] => ['name', key])
  return `/api/csv?${new URLSearchParams([...runs.map((run): [string, string] => ['run', run.id]), ...names])}`
}

interface ChartsProps extends CurvesProps {
  metrics: readonly Metric[]
  logarithmic?: boolean
  smoothing?: number
}

function Charts({ runs, labelOf, range, setRange, metrics, logarithmic, smoothing = 0 }: ChartsProps) {
  const wanted = new Set(metrics.flatMap(({ keys }) => keys))
  const series = useSeries(runs, (run) => [...run.metrics, ...run.timing].filter((name) => wanted.has(name)), range)
  const shown = runs.map(
    (run): CurveRun => ({ label: labelOf(run), tasks: run.tasks, seriesOf: (key) => series.get(run.id)?.get(key) }),
  )
  const smooth = smoothing > 0 ? (values: readonly number[]) => smoothed(values, smoothing) : undefined
  return (
    <div class="charts">
      {metrics.map((metric) => (
        <Plot
          key={metric.name}
          title={metric.name}
          meaning={meaningOf(metric.name)}
          curves={curvesOf(metric, shown, smooth)}
          logarithmic={logarithmic}
          setRange={setRange}
          inBytes={isBytes(metric.name)}
          csv={csvPath(runs, metric.keys)}
        />
      ))}
    </div>
  )
}

const shownAtOnce = 24

/** The metrics that the reader wants to see: found by name, all, or the first ones. */
function choose(metrics: readonly Metric[], words: string, all: boolean): { shown: Metric[]; found: number } {
  const holds = (text: string) => text.toLowerCase().includes(words.toLowerCase())
  const found = metrics.filter(({ name, keys }) => [name, ...keys].some(holds))
  const first = found.filter(isFirst)
  const few = first.length > 0 ? first : found.slice(0, shownAtOnce)
  return { shown: all || words !== '' ? found.slice(0, 120) : few, found: found.length }
}

export function Curves(props: CurvesProps) {
  const [smoothing, setSmoothing] = useState(0.8)
  const [logarithmic, setLogarithmic] = useState(false)
  const [words, setWords] = useState('')
  const [all, setAll] = useState(false)
  const metrics = metricsOf(props.runs, (run) => run.metrics)
  const { shown, found } = choose(metrics, words, all)
  const isZoomed = props.range.from !== undefined || props.range.to !== undefined
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
          metrics with <input type="search" value={words} onInput={(e) => setWords(e.currentTarget.value)} />
        </label>
        <label>
          <input type="checkbox" checked={all} onChange={(e) => setAll(e.currentTarget.checked)} /> all {metrics.length}{' '}
          metrics
        </label>
        <button type="button" disabled={!isZoomed} onClick={() => props.setRange({})}>
          all steps
        </button>
      </div>
      {metrics.length === 0 && <p>No step has been logged yet.</p>}
      <Charts {...props} metrics={shown} logarithmic={logarithmic} smoothing={smoothing} />
      {shown.length < found && <p>{counted(found - shown.length, 'metric')} not shown; search by name.</p>}
      <p class="small">
        Drag over a chart to zoom. In a chart: arrow keys read values, + and - zoom, 0 shows all steps.
      </p>
    </section>
  )
}

/** Phases of the step as a stacked band, memory, and other metrics of the clock. */
export function Work(props: CurvesProps) {
  const prefix = 'seconds/'
  const rest = metricsOf(props.runs, (run) => run.timing.filter((name) => !name.startsWith(prefix)))
  const memory = rest.filter(({ name }) => isBytes(name))
  const others = rest.filter(({ name }) => !isBytes(name))
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
              curves={stacked(names, prefix, series.get(run.id))}
              setRange={props.setRange}
              csv={csvPath([run], names)}
            />
          )
        })}
      </div>
      <h2>Memory</h2>
      {memory.length === 0 && <p>No memory is logged.</p>}
      <Charts {...props} metrics={memory} />
      <h2>Speed and counts</h2>
      <Charts {...props} metrics={others} />
    </section>
  )
}

/** Each curve is the sum of itself and those below it; the highest is drawn first, so that each shows as a band. */
function stacked(
  names: readonly string[],
  prefix: string,
  series: ReadonlyMap<string, { steps: number[]; values: number[] }> | undefined,
): Curve[] {
  const steps = [...new Set(names.flatMap((name) => series?.get(name)?.steps ?? []))].sort((a, b) => a - b)
  const sums = steps.map(() => 0)
  const bands = names.map((name, at): Curve => {
    const found = series?.get(name)
    const values = new Map(found?.steps.map((step, i) => [step, found.values[i]!]))
    let last = 0
    const own = steps.map((step) => {
      const value = values.get(step) ?? last // thinned curves do not keep the same steps
      last = Number.isFinite(value) ? value : last
      return last
    })
    const heights = own.map((value, i) => {
      sums[i]! += value
      return sums[i]!
    })
    return { label: name.slice(prefix.length), slot: slotAt(at), steps, values: heights, own }
  })
  return bands.reverse()
}
