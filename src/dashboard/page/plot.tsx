// One chart of the live page: the drawing of the report, with values at the pointer, zoom, and files to save.
import { useEffect, useMemo, useState } from 'preact/hooks'
import {
  type ChartOptions,
  type Curve,
  chartFile,
  chartSvg,
  chartText,
  chartValues,
  Scale,
  stepsOf,
} from '../markup/chart.ts'
import type { Range } from './api.ts'
import { download, pngOf } from './format.ts'
import { reachByKeyboard, Shared } from './markup.tsx'

export interface PlotProps extends ChartOptions {
  title: string
  /** What the metric means, with its unit. */
  meaning?: string
  curves: readonly Curve[]
  setRange(range: Range): void
  /** Address of the same metrics as CSV. */
  csv: string
}

/** All charts show their values at the same step. */
const cursors = new Set<(step: number | undefined) => void>()
const showStep = (step: number | undefined) => {
  for (const show of cursors) show(step)
}

function useCursor(): number | undefined {
  const [step, setStep] = useState<number>()
  useEffect(() => {
    cursors.add(setStep)
    return () => void cursors.delete(setStep)
  }, [])
  return step
}

const nearest = (steps: readonly number[], wanted: number) =>
  steps.reduce((a, b) => (Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a), steps[0] ?? 0)

/** Where the pointer is, as a part of the width. */
function partOf(event: PointerEvent): number {
  const { left, width } = (event.currentTarget as HTMLElement).getBoundingClientRect()
  return (event.clientX - left) / width
}

/** The range after a key: plus and minus zoom around the middle, 0 shows all steps; undefined: another key. */
function zoomed(key: string, [min, max]: readonly [number, number]): Range | undefined {
  const [middle, quarter] = [(min + max) / 2, (max - min) / 4]
  if (key === '+' || key === '=') return { from: middle - quarter, to: middle + quarter }
  if (key === '-') return { from: middle - 4 * quarter, to: middle + 4 * quarter }
  return key === '0' ? {} : undefined
}

function Takes({ title, curves, csv, ...options }: PlotProps) {
  const svg = () => new Blob([chartFile(title, curves, options)], { type: 'image/svg+xml' })
  return (
    <span class="takes">
      <button
        type="button"
        aria-label={`${title} as PNG`}
        onClick={async () => download(await pngOf(svg()), `${title}.png`)}
      >
        PNG
      </button>
      <button type="button" aria-label={`${title} as SVG`} onClick={() => download(svg(), `${title}.svg`)}>
        SVG
      </button>
      <a href={csv} download aria-label={`${title} as CSV`}>
        CSV
      </a>
    </span>
  )
}

const percent = (part: number) => `${100 * part}%`

export function Plot(props: PlotProps) {
  const { title, meaning, curves, setRange, logarithmic, inBytes } = props
  const options = { logarithmic, inBytes }
  const step = useCursor()
  const [drag, setDrag] = useState<{ from: number; to: number }>()
  const [scale, svg, steps, text] = useMemo(
    () => [new Scale(curves, options), chartSvg(curves, options), stepsOf(curves), chartText(title, curves)],
    [curves, logarithmic],
  )
  const onMove = (event: PointerEvent) => {
    showStep(nearest(steps, scale.stepAt(partOf(event))))
    if (drag) setDrag({ from: drag.from, to: partOf(event) })
  }
  const onUp = () => {
    setDrag(undefined)
    if (!drag || Math.abs(drag.to - drag.from) < 0.01) return
    setRange({ from: scale.stepAt(Math.min(drag.from, drag.to)), to: scale.stepAt(Math.max(drag.from, drag.to)) })
  }
  const onKey = (event: KeyboardEvent) => {
    const range = zoomed(event.key, scale.steps)
    const by = event.key === 'ArrowLeft' ? -1 : event.key === 'ArrowRight' ? 1 : 0
    if (range) setRange(range)
    else if (by !== 0) {
      const at = step === undefined ? (by < 0 ? steps.length : -1) : steps.indexOf(nearest(steps, step))
      showStep(steps[Math.min(steps.length - 1, Math.max(0, at + by))])
    } else return
    event.preventDefault()
  }
  return (
    <figure class="chart">
      <figcaption>
        <b>{title}</b>
        <Takes {...props} />
        {meaning && <small>{meaning}</small>}
      </figcaption>
      <div
        class="plot"
        ref={reachByKeyboard} // it reads values and zooms
        role="img"
        aria-label={text}
        onKeyDown={onKey}
        onPointerMove={onMove}
        onPointerDown={(e) => setDrag({ from: partOf(e), to: partOf(e) })}
        onPointerUp={onUp}
        onPointerLeave={() => {
          setDrag(undefined)
          showStep(undefined)
        }}
      >
        <Shared of={svg} />
        {step !== undefined && <i class="cursor" style={{ left: percent(scale.partAt(nearest(steps, step))) }} />}
        {drag && (
          <i
            class="selection"
            style={{ left: percent(Math.min(drag.from, drag.to)), width: percent(Math.abs(drag.to - drag.from)) }}
          />
        )}
      </div>
      <Shared class="values" of={chartValues(curves, options, step ?? steps.at(-1))} />
      <span class="visually-hidden" data-last={curves.map((c) => c.steps.at(-1) ?? '').join(' ')} />
    </figure>
  )
}
