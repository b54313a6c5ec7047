// One frame of curves: uPlot draws, the keyboard moves and zooms, what is seen can be taken away as PNG, SVG or CSV.
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import { short } from '../markup/metrics.ts'
import type { Range } from './api.ts'
import { bytes, download } from './format.ts'
import { svgOf } from './svg.ts'

export interface Curve {
  label: string
  colour: string
  dash?: number[]
  steps: number[]
  values: number[]
  /** Drawn faint behind the curve: the values before smoothing. */
  faint?: boolean
  /** Filled down to the axis. */
  fill?: boolean
  /** What the legend tells instead of the heights: a band's own part of a stack. */
  own?: number[]
}

export interface PlotProps {
  title: string
  /** What the figure says, with its unit. */
  meaning?: string
  curves: readonly Curve[]
  logarithmic?: boolean
  range: Range
  setRange(range: Range): void
  dark: boolean
  /** Values are bytes. */
  inBytes?: boolean
  /** Address of the same figures as CSV. */
  csv?: string
}

const wholeSteps = Array.from({ length: 10 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat()
const powersOfTwo = Array.from({ length: 50 }, (_, i) => 2 ** i)

function colours() {
  const css = getComputedStyle(document.documentElement)
  const of = (name: string) => css.getPropertyValue(name).trim()
  return { soft: of('--soft'), line: of('--line'), card: of('--card') }
}

/** The part of the axis that is shown: all values with a little room; of nothing but zeros from 0 to 1. */
function heights(_: uPlot, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || (low === 0 && high === 0)) return [0, 1]
  const room = high > low ? (high - low) * 0.1 : Math.abs(high) * 0.1
  return [low >= 0 && low <= room ? 0 : low - room, high + room]
}

/** All curves on one axis of steps; what cannot be drawn is null. */
function joined(curves: readonly Curve[], logarithmic: boolean): uPlot.AlignedData {
  const drawable = (v: number) => (Number.isFinite(v) && (!logarithmic || v > 0) ? v : null)
  const tables = curves.map((c) => [c.steps, c.values.map(drawable)] as unknown as uPlot.AlignedData)
  return tables.length === 0 ? [[]] : tables.length === 1 ? tables[0]! : uPlot.join(tables)
}

function optionsOf(props: PlotProps, width: number, zoomed: (range: Range) => void): uPlot.Options {
  const { soft, line } = colours()
  const format = props.inBytes ? bytes : short
  const axis = {
    stroke: soft,
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1 },
    font: '11px system-ui',
  }
  return {
    width,
    height: 210,
    scales: { x: { time: false }, y: props.logarithmic ? { distr: 3 } : { range: heights } },
    axes: [
      { ...axis, label: 'step', size: 34, labelSize: 16, labelFont: '11px system-ui', labelGap: 0, incrs: wholeSteps },
      {
        ...axis,
        size: 62,
        values: (_, ticks) => ticks.map((t) => (t === null ? '' : format(t))),
        ...(props.inBytes ? { incrs: powersOfTwo } : {}),
      },
    ],
    cursor: { sync: { key: 'steps' }, drag: { x: true, y: false }, focus: { prox: 24 } },
    legend: { live: true },
    series: [
      { label: 'step', value: (_, v) => (v === null ? '-' : String(v)) },
      ...props.curves.map((curve) => ({
        label: curve.label,
        class: curve.faint ? 'faint' : undefined,
        stroke: curve.faint ? `${curve.colour}55` : curve.colour,
        fill: curve.fill ? curve.colour : undefined,
        width: curve.faint ? 1 : 1.75,
        dash: curve.dash,
        spanGaps: true,
        points: { show: curve.steps.length < 2 },
        value: (_: uPlot, height: number | null, __: number, at: number | null) => {
          const v = curve.own && at !== null ? curve.own[at] : height
          return v === null || v === undefined ? '-' : format(v)
        },
      })),
    ],
    hooks: {
      setSelect: [
        (u) => {
          if (u.select.width > 4)
            zoomed({ from: u.posToVal(u.select.left, 'x'), to: u.posToVal(u.select.left + u.select.width, 'x') })
        },
      ],
    },
  }
}

function describe({ title, curves }: PlotProps): string {
  const said = curves
    .filter((c) => !c.faint && c.values.length > 0)
    .map((c) => {
      const values = c.own ?? c.values
      const finite = values.filter(Number.isFinite)
      const ends =
        finite.length > 0 ? `lowest ${short(Math.min(...finite))}, highest ${short(Math.max(...finite))}` : 'no number'
      return `${c.label}: ${ends}, last ${short(values.at(-1)!)} at step ${c.steps.at(-1)}`
    })
  return `${title} over the steps. ${said.join('. ')}`
}

/** Left, right: the values at the next step; plus, minus: zoom; 0: everything. */
function onKey(event: KeyboardEvent, u: uPlot, zoomed: (range: Range) => void): void {
  const { min = 0, max = 1 } = u.scales.x as { min?: number; max?: number }
  const middle = (min + max) / 2
  const quarter = (max - min) / 4
  if (event.key === '+' || event.key === '=') zoomed({ from: middle - quarter, to: middle + quarter })
  else if (event.key === '-') zoomed({ from: middle - 4 * quarter, to: middle + 4 * quarter })
  else if (event.key === '0') zoomed({})
  else if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') {
    const steps = u.data[0]
    const at = u.cursor.idx ?? (event.key === 'ArrowLeft' ? steps.length : -1)
    const next = Math.min(steps.length - 1, Math.max(0, at + (event.key === 'ArrowLeft' ? -1 : 1)))
    u.setCursor({ left: u.valToPos(steps[next]!, 'x'), top: 20 })
  } else return
  event.preventDefault()
}

/** Without a pointer on the chart its legend tells the last values. */
function showLast(u: uPlot): void {
  // uPlot empties the legend when it has drawn, which is after this turn.
  setTimeout(() => {
    if (u.data[0].length > 0 && (u.cursor.left ?? -1) < 0) u.setLegend({ idx: u.data[0].length - 1 })
  })
}

export function Plot(props: PlotProps) {
  const holder = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const setRange = useRef(props.setRange)
  setRange.current = props.setRange
  const shape = JSON.stringify([
    props.curves.map((c) => [c.label, c.colour, c.faint, c.fill, c.steps.length < 2]),
    props.logarithmic,
    props.dark,
  ])

  // The drawing is made anew when its shape changes; new data goes into the drawing there is.
  useEffect(() => {
    const element = holder.current
    if (!element) return
    element.tabIndex = 0 // the keyboard reads values and zooms
    const made = new uPlot(
      optionsOf(props, element.clientWidth || 320, (range) => setRange.current(range)),
      joined(props.curves, props.logarithmic ?? false),
      element,
    )
    plot.current = made
    showLast(made)
    made.over.addEventListener('mouseleave', () => showLast(made))
    const sized = new ResizeObserver(() => made.setSize({ width: element.clientWidth || 320, height: 210 }))
    sized.observe(element)
    return () => {
      sized.disconnect()
      made.destroy()
      plot.current = null
    }
  }, [shape])

  useEffect(() => {
    const made = plot.current
    made?.setData(joined(props.curves, props.logarithmic ?? false))
    if (made) showLast(made)
  }, [props.curves, props.logarithmic])

  const lost = props.curves.reduce((n, c) => n + (c.faint ? 0 : c.values.filter((v) => !Number.isFinite(v)).length), 0)
  const png = () => plot.current?.ctx.canvas.toBlob((blob) => blob && download(blob, `${props.title}.png`), 'image/png')
  const svg = () =>
    download(
      new Blob([svgOf(props.title, props.curves, props.logarithmic ?? false)], { type: 'image/svg+xml' }),
      `${props.title}.svg`,
    )
  const names = props.curves.filter((c) => !c.faint)
  return (
    <figure class="chart">
      <figcaption>
        <b>{props.title}</b>
        {lost > 0 && <span class="problem">{lost} not finite</span>}
        <span class="takes">
          <button type="button" onClick={png} aria-label={`${props.title} as PNG`}>
            PNG
          </button>
          <button type="button" onClick={svg} aria-label={`${props.title} as SVG`}>
            SVG
          </button>
          {props.csv && (
            <a href={props.csv} download aria-label={`${props.title} as CSV`}>
              CSV
            </a>
          )}
        </span>
        {props.meaning && <small>{props.meaning}</small>}
      </figcaption>
      <div
        class="plot"
        ref={holder}
        role="img"
        aria-label={describe(props)}
        onKeyDown={(e) => plot.current && onKey(e, plot.current, props.setRange)}
      />
      <span class="visually-hidden" data-last={names.map((c) => c.steps.at(-1) ?? '').join(' ')} />
    </figure>
  )
}
