// Curves over the steps, drawn as SVG: in the report, on the live page, and in the files that the live page saves.
import { chartStyle, light } from './chart-style.ts'
import { type Content, html, Markup } from './html.ts'
import { bytes, short } from './metrics.ts'

export interface Curve {
  label: string
  /** Colour of the style sheet: 1 to 10 a task or a run, 0 the whole run. */
  slot: number
  steps: readonly number[]
  values: readonly number[]
  /** The values before smoothing, drawn thin. */
  raw?: readonly number[]
  /** Set for a band of a stack: its part of the height in `values`. The area below the curve is filled. */
  own?: readonly number[]
  /** Pattern of the dashes, as in `stroke-dasharray`. */
  dash?: string
}

export interface ChartOptions {
  logarithmic?: boolean
  /** Values are bytes. */
  inBytes?: boolean
  /** Columns with the values as tooltips, for pages without a script. */
  tooltips?: boolean
}

const frame = { width: 360, height: 190, left: 58, right: 12, top: 10, bottom: 24 }
const maxPoints = 400
const hoverColumns = 48

export const fixed = (n: number) => String(Math.round(n * 10) / 10)

/** Round numbers that span [low, high] in about `count` steps; powers of two apart with `inBytes`. */
export function ticks(low: number, high: number, count: number, inBytes = false): number[] {
  const rough = (high - low) / count
  const power = 10 ** Math.floor(Math.log10(rough))
  const round = ([1, 2, 5, 10].find((m) => m * power >= rough * 0.999) ?? 10) * power
  const step = inBytes ? 2 ** Math.ceil(Math.log2(rough)) : round
  // Counted from the first tick: a running sum of large numbers would stop growing.
  const first = Math.ceil(low / step - 1e-9)
  const length = Math.min(4 * count, Math.floor(high / step + 1e-9) - first + 1)
  if (!(length > 0)) return []
  const values = Array.from({ length }, (_, i) => Number(((first + i) * step).toPrecision(12)))
  return [...new Set(values)].filter((value) => value >= low - step && value <= high + step)
}

/** Without the zeros at the end that `short` keeps. */
export function tickText(value: number): string {
  const size = Math.abs(value)
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential() : String(value)
}

/** Mean over a centred window, a twelfth of the run wide and cut at the ends; values that are not finite are left as they are. */
export function smooth(values: readonly number[]): number[] {
  const finite = values.filter(Number.isFinite)
  const half = Math.floor(finite.length / 24)
  const sums = new Float64Array(finite.length + 1)
  finite.forEach((value, i) => {
    sums[i + 1] = sums[i]! + value
  })
  let i = -1
  return values.map((value) => {
    if (!Number.isFinite(value)) return value
    i++
    const [from, to] = [Math.max(0, i - half), Math.min(finite.length, i + half + 1)]
    return (sums[to]! - sums[from]!) / (to - from)
  })
}

/** Places of at most `maxPoints` values; each bucket keeps its lowest and its highest, so that no spike is lost. */
export function thin(values: readonly number[]): number[] {
  const all = Array.from(values.keys())
  if (values.length <= maxPoints) return all
  const size = Math.ceil(values.length / (maxPoints / 2))
  return Array.from({ length: Math.ceil(values.length / size) }, (_, i) => {
    const bucket = all.slice(i * size, (i + 1) * size)
    const low = bucket.reduce((a, b) => (values[b]! < values[a]! ? b : a))
    const high = bucket.reduce((a, b) => (values[b]! > values[a]! ? b : a))
    return low === high ? [low] : [Math.min(low, high), Math.max(low, high)]
  }).flat()
}

function bounds(values: readonly number[]): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
  for (const v of values) {
    low = Math.min(low, v)
    high = Math.max(high, v)
  }
  return [low, high]
}

function spread(values: readonly number[]): [number, number] {
  const [low, high] = bounds(values)
  if (low > high) return [0, 1]
  if (low === 0 && high === 0) return [-0.06, 1] // never anything but 0
  const room = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1
  return [low - room, high + room]
}

/** How steps and values become places in the drawing. */
export class Scale {
  readonly steps: [number, number]
  readonly heights: [number, number]
  /** A value in the unit of the vertical axis; not finite: it cannot be drawn. */
  readonly height: (value: number) => number

  constructor(curves: readonly Curve[], { logarithmic }: ChartOptions) {
    this.height = logarithmic ? Math.log10 : (value) => value
    const heights = curves.flatMap((c) => [...(c.raw ?? []), ...c.values]).map(this.height)
    const [low, high] = spread(heights.filter(Number.isFinite))
    this.heights = [curves.some(({ own }) => own) && !logarithmic ? Math.min(0, low) : low, high]
    const [first, last] = bounds(curves.flatMap(({ steps }) => steps))
    this.steps = first < last ? [first, last] : first === last ? [first - 1, last + 1] : [-1, 1]
  }

  x(step: number): number {
    const across = frame.width - frame.left - frame.right
    return frame.left + (across * (step - this.steps[0])) / (this.steps[1] - this.steps[0])
  }

  y(height: number): number {
    const down = frame.height - frame.top - frame.bottom
    return frame.top + down * (1 - (height - this.heights[0]) / (this.heights[1] - this.heights[0]))
  }

  /** Where a step is, as a part of the width of the drawing. */
  partAt(step: number): number {
    return this.x(step) / frame.width
  }

  /** The step at a part of the width, within the axis. */
  stepAt(part: number): number {
    const along = (part * frame.width - frame.left) / (frame.width - frame.left - frame.right)
    return this.steps[0] + Math.min(1, Math.max(0, along)) * (this.steps[1] - this.steps[0])
  }
}

/** The line through the values; a value that cannot be drawn leaves a gap. */
function path(steps: readonly number[], values: readonly number[], scale: Scale): string {
  let [pen, out] = ['M', '']
  for (const i of thin(values)) {
    const height = scale.height(values[i]!)
    if (Number.isFinite(height)) out += `${pen}${fixed(scale.x(steps[i]!))} ${fixed(scale.y(height))}`
    pen = Number.isFinite(height) ? 'L' : 'M'
  }
  return out
}

const textOf = ({ inBytes }: ChartOptions) => (inBytes ? bytes : short)

function rowTicks({ heights }: Scale, { logarithmic, inBytes }: ChartOptions): [height: number, text: string][] {
  const rows = ticks(heights[0], heights[1], 5, inBytes && !logarithmic)
  if (!logarithmic) return rows.map((height) => [height, inBytes ? bytes(height) : tickText(height)])
  const powers = rows.filter(Number.isInteger)
  return (powers.length > 1 ? powers : rows).map((height) => [height, textOf({ inBytes })(10 ** height)])
}

function axes(scale: Scale, options: ChartOptions): Content {
  const { left, right, width, height, bottom } = frame
  const rows = rowTicks(scale, options).map(([at, text]) => {
    const y = fixed(scale.y(at))
    return html`<line class="grid" x1="${left}" x2="${width - right}" y1="${y}" y2="${y}"/><text class="tick" x="${left - 6}" y="${y}" dy="0.32em" text-anchor="end">${text}</text>`
  })
  const columns = ticks(scale.steps[0], scale.steps[1], 4).filter(Number.isInteger)
  const labels = columns.map(
    (step) =>
      html`<text class="tick" x="${fixed(scale.x(step))}" y="${height - bottom + 16}" text-anchor="middle">${step}</text>`,
  )
  const unit = html`<text class="tick" x="${left - 6}" y="${height - bottom + 16}" text-anchor="end">step</text>`
  return [...rows, unit, ...labels]
}

export const stepsOf = (curves: readonly Curve[]) =>
  [...new Set(curves.flatMap(({ steps }) => steps))].sort((a, b) => a - b)

/** Invisible columns whose tooltips show the values near them. */
function hover(curves: readonly Curve[], scale: Scale, options: ChartOptions): Content {
  const steps = stepsOf(curves)
  const count = Math.min(hoverColumns, steps.length)
  const across = (frame.width - frame.left - frame.right) / Math.max(1, count)
  const [top, low] = [frame.top, frame.height - frame.bottom]
  return Array.from({ length: count }, (_, i) => {
    const step = steps[Math.round((i * (steps.length - 1)) / Math.max(1, count - 1))]!
    const values = curves.map((c) => [c.label, (c.raw ?? c.values)[c.steps.indexOf(step)]] as const)
    const lines = values.flatMap(([label, value]) => (value === undefined ? [] : `${label}: ${textOf(options)(value)}`))
    const x = scale.x(step)
    return html`<g class="hover"><title>${[`step ${step}`, ...lines].join('\n')}</title><rect x="${fixed(x - across / 2)}" y="${top}" width="${fixed(across)}" height="${low - top}"/><line x1="${fixed(x)}" x2="${fixed(x)}" y1="${top}" y2="${low}"/></g>`
  })
}

function drawCurve({ slot, steps, values, raw, own, dash }: Curve, scale: Scale): Markup {
  const line = path(steps, values, scale)
  const base = frame.height - frame.bottom
  if (own) {
    const ends = [scale.x(steps.at(-1) ?? 0), scale.x(steps[0] ?? 0)].map((x) => `L${fixed(x)} ${base}`)
    return html`<path d="${line === '' ? '' : `${line}${ends.join('')}Z`}" class="band s${slot}"/>`
  }
  const last = values.findLastIndex((value) => Number.isFinite(scale.height(value)))
  const end =
    last >= 0
      ? html`<circle class="end s${slot}" cx="${fixed(scale.x(steps[last]!))}" cy="${fixed(scale.y(scale.height(values[last]!)))}" r="3.5"/>`
      : undefined
  const thinLine = raw && html`<path d="${path(steps, raw, scale)}" class="raw s${slot}"/>`
  const dashes = dash && html` stroke-dasharray="${dash}"`
  return html`${thinLine}<path d="${line}" class="line s${slot}"${dashes}/>${end}`
}

function drawing(curves: readonly Curve[], options: ChartOptions): Content {
  const scale = new Scale(curves, options)
  const columns = options.tooltips ? hover(curves, scale, options) : undefined
  return [axes(scale, options), curves.map((curve) => drawCurve(curve, scale)), columns]
}

export const chartSvg = (curves: readonly Curve[], options: ChartOptions): Markup =>
  html`<svg viewBox="0 0 ${frame.width} ${frame.height}">${drawing(curves, options)}</svg>`

/** The chart as a file, in the light scheme, with its title and the names of its curves. */
export function chartFile(title: string, curves: readonly Curve[], options: ChartOptions = {}): string {
  const names = curves.map(
    ({ label, slot }, i) => html`<tspan class="s${slot}" fill="currentColor">${i > 0 ? '   ' : ''}${label}</tspan>`,
  )
  const { width, height, left } = frame
  const head = 34
  const style = new Markup(`:root { ${light} }${chartStyle}`)
  return html`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height + head}" width="${2 * width}" height="${2 * (height + head)}" font-family="sans-serif" font-size="9"><style>${style}</style><rect width="100%" height="100%" fill="#fff"/><text x="${left}" y="16" font-size="11">${title}</text><text x="${left}" y="30" xml:space="preserve">${names}</text><g transform="translate(0 ${head})">${drawing(curves, options)}</g></svg>`
    .text
}

/** The last finite value of each curve, or with `step` the values at that step. */
export function chartValues(curves: readonly Curve[], options: ChartOptions, step?: number): Content {
  const lost = curves.reduce((n, c) => n + (c.raw ?? c.values).filter((v) => !Number.isFinite(v)).length, 0)
  const values = curves.map((curve) => {
    const all = curve.own ?? curve.values
    const value = step === undefined ? all.findLast(Number.isFinite) : all[curve.steps.indexOf(step)]
    const text = value === undefined ? (step === undefined ? 'no number' : '-') : textOf(options)(value)
    const label = curves.length > 1 ? `${curve.label} ` : ''
    return html`<span class="value"><i class="key s${curve.slot}"></i>${label}${text}</span>`
  })
  return [
    step === undefined ? undefined : html`<span>step ${step}</span>`,
    lost > 0 ? html`<span class="lost">${lost} not finite</span>` : undefined,
    values,
  ]
}

/** The chart as a sentence, for readers who do not see it. */
export function chartText(title: string, curves: readonly Curve[]): string {
  const parts = curves.flatMap(({ label, own, values, steps }) => {
    const all = own ?? values
    if (all.length === 0) return []
    const [low, high] = bounds(all.filter(Number.isFinite))
    const ends = low <= high ? `lowest ${short(low)}, highest ${short(high)}` : 'no number'
    return `${label}: ${ends}, last ${short(all.at(-1)!)} at step ${steps.at(-1)}`
  })
  return `${title} over the steps. ${parts.join('. ')}`
}

/** One metric over the steps: a line for each curve, its meaning and the last values in the caption. */
export function lineChart(title: string, curves: readonly Curve[], options: ChartOptions, meaning = ''): Markup {
  return html`<figure class="chart"><figcaption><b>${title}</b><span class="values">${chartValues(curves, options)}</span>${meaning === '' ? undefined : html`<small>${meaning}</small>`}</figcaption><div class="plot" role="img" aria-label="${chartText(title, curves)}">${chartSvg(curves, { ...options, tooltips: true })}</div></figure>`
}
