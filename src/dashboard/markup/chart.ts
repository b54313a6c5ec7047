import { type Content, html, type Markup } from './html.ts'
import { short } from './metrics.ts'

export interface Point {
  step: number
  value: number
}

export interface Series {
  name: string
  /** Colour slot of the style sheet: 1 and 2 the first two tasks, 3 anything else. */
  slot: 1 | 2 | 3
  points: readonly Point[]
  /** A schedule or a counter: drawn as it is. */
  exact?: boolean
}

const frame = { width: 360, height: 190, left: 46, right: 12, top: 10, bottom: 24 }
const mostPoints = 400
const hoverColumns = 48

const fixed = (n: number) => String(Math.round(n * 10) / 10)

/** Round figures that span [low, high] in about `count` steps. */
export function ticks(low: number, high: number, count: number): number[] {
  const rough = (high - low) / count
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = ([1, 2, 5, 10].find((m) => m * power >= rough * 0.999) ?? 10) * power
  // Counted from the first tick: far from 0 a running value would not change any more when one is added to it.
  const first = Math.ceil(low / step - 1e-9)
  const most = Math.min(4 * count, Math.floor(high / step + 1e-9) - first + 1)
  if (!(most > 0)) return []
  const values = Array.from({ length: most }, (_, i) => Number(((first + i) * step).toPrecision(12)))
  return [...new Set(values)].filter((value) => value >= low - step && value <= high + step)
}

/** Without the zeros at the end that `short` keeps. */
function tickText(value: number): string {
  const size = Math.abs(value)
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential() : String(value)
}

/** Mean over a centred window, a twelfth of the run wide and cut at the ends; not finite values stay out. */
export function smooth(points: readonly Point[]): Point[] {
  const finite = points.filter((p) => Number.isFinite(p.value))
  const half = Math.floor(finite.length / 24)
  const sums = new Float64Array(finite.length + 1)
  finite.forEach((p, i) => {
    sums[i + 1] = sums[i]! + p.value
  })
  return finite.map(({ step }, i) => {
    const [from, to] = [Math.max(0, i - half), Math.min(finite.length, i + half + 1)]
    return { step, value: (sums[to]! - sums[from]!) / (to - from) }
  })
}

/** At most `mostPoints`; each bucket gives its lowest and its highest point, so that no spike is lost. */
export function thin(points: readonly Point[]): Point[] {
  if (points.length <= mostPoints) return points.slice()
  const size = Math.ceil(points.length / (mostPoints / 2))
  const out: Point[] = []
  for (let from = 0; from < points.length; from += size) {
    const bucket = points.slice(from, from + size)
    const by = (better: (a: number, b: number) => boolean) =>
      bucket.reduce((a, b) => (better(b.value, a.value) ? b : a))
    const ends = [by((a, b) => a < b), by((a, b) => a > b)].sort((a, b) => a.step - b.step)
    out.push(...(ends[0] === ends[1] ? ends.slice(1) : ends))
  }
  return out
}

interface Scale {
  x: (step: number) => number
  y: (value: number) => number
  steps: [number, number]
  values: [number, number]
}

function spread(values: readonly number[]): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
  for (const v of values) {
    low = Math.min(low, v)
    high = Math.max(high, v)
  }
  if (low > high) return [0, 1]
  if (low === 0 && high === 0) return [-0.06, 1] // never anything but 0
  const room = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1
  return [low - room, high + room]
}

function scaleOf(series: readonly Series[]): Scale {
  const points = series.flatMap((s) => s.points).filter((p) => Number.isFinite(p.value))
  const values = spread(points.map((p) => p.value))
  const first = points.reduce((a, p) => Math.min(a, p.step), Number.POSITIVE_INFINITY)
  const last = points.reduce((a, p) => Math.max(a, p.step), Number.NEGATIVE_INFINITY)
  const steps: [number, number] =
    first < last ? [first, last] : [(Number.isFinite(first) ? first : 0) - 1, (Number.isFinite(last) ? last : 0) + 1]
  const across = frame.width - frame.left - frame.right
  const down = frame.height - frame.top - frame.bottom
  return {
    x: (step) => frame.left + (across * (step - steps[0])) / (steps[1] - steps[0]),
    y: (value) => frame.top + down * (1 - (value - values[0]) / (values[1] - values[0])),
    steps,
    values,
  }
}

function path(points: readonly Point[], scale: Scale): string {
  let pen = 'M'
  let out = ''
  for (const { step, value } of points) {
    if (!Number.isFinite(value)) {
      pen = 'M' // a gap, not a bridge over what is no number
      continue
    }
    out += `${pen}${fixed(scale.x(step))} ${fixed(scale.y(value))}`
    pen = 'L'
  }
  return out
}

function axes(scale: Scale): Content {
  const { left, right, width, height, bottom } = frame
  const rows = ticks(scale.values[0], scale.values[1], 5).map((value) => {
    const y = fixed(scale.y(value))
    return html`<line class="grid" x1="${left}" x2="${width - right}" y1="${y}" y2="${y}"/><text class="tick" x="${left - 6}" y="${y}" dy="0.32em" text-anchor="end">${tickText(value)}</text>`
  })
  const columns = ticks(scale.steps[0], scale.steps[1], 4).filter(Number.isInteger)
  const labels = columns.map(
    (step) =>
      html`<text class="tick" x="${fixed(scale.x(step))}" y="${height - bottom + 16}" text-anchor="middle">${step}</text>`,
  )
  const unit = html`<text class="tick" x="${left - 6}" y="${height - bottom + 16}" text-anchor="end">step</text>`
  return [...rows, unit, ...labels]
}

/** Invisible columns whose tooltips say the values near them: readable without a script. */
function hover(series: readonly Series[], scale: Scale): Content {
  const steps = [...new Set(series.flatMap((s) => s.points.map((p) => p.step)))].sort((a, b) => a - b)
  const count = Math.min(hoverColumns, steps.length)
  const across = (frame.width - frame.left - frame.right) / Math.max(1, count)
  return Array.from({ length: count }, (_, i) => {
    const step = steps[Math.round((i * (steps.length - 1)) / Math.max(1, count - 1))]!
    const values = series.map((s) => [s.name, s.points.find((p) => p.step === step)?.value] as const)
    const said = values.filter(([, v]) => v !== undefined).map(([name, v]) => `${name}: ${short(v!)}`)
    const x = scale.x(step)
    const [top, low] = [frame.top, frame.height - frame.bottom]
    return html`<g class="hover"><title>${[`step ${step}`, ...said].join('\n')}</title><rect x="${fixed(x - across / 2)}" y="${top}" width="${fixed(across)}" height="${low - top}"/><line x1="${fixed(x)}" x2="${fixed(x)}" y1="${top}" y2="${low}"/></g>`
  })
}

function curves(series: readonly Series[], scale: Scale): Content {
  return series.map((s) => {
    const smoothed = s.exact ? s.points : smooth(s.points)
    const last = smoothed.at(-1)
    const end =
      last &&
      html`<circle class="end s${s.slot}" cx="${fixed(scale.x(last.step))}" cy="${fixed(scale.y(last.value))}" r="3.5"/>`
    return html`<path class="raw s${s.slot}" d="${path(thin(s.points), scale)}"/><path class="line s${s.slot}" d="${path(thin(smoothed), scale)}"/>${end}`
  })
}

/** One figure over the steps, one curve a series: raw thin, smoothed thick; its meaning and the end values in the caption. */
export function lineChart(title: string, series: readonly Series[], meaning = ''): Markup {
  const scale = scaleOf(series)
  const ends = series.map((s) => {
    const last = (s.exact ? s.points : smooth(s.points)).at(-1)
    return html`<span class="value"><i class="key s${s.slot}"></i>${series.length > 1 ? `${s.name} ` : ''}${last ? short(last.value) : 'no number'}</span>`
  })
  const lost = series.reduce((n, s) => n + s.points.filter((p) => !Number.isFinite(p.value)).length, 0)
  const note = lost > 0 ? html`<span class="lost">${lost} not finite</span>` : undefined
  const { width, height } = frame
  return html`<figure class="chart"><figcaption><b>${title}</b><span class="values">${note}${ends}</span>${meaning === '' ? undefined : html`<small>${meaning}</small>`}</figcaption><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${title} over the steps">${axes(scale)}${curves(series, scale)}${hover(series, scale)}</svg></figure>`
}

export interface Whisker {
  name: string
  /** 0 the figure before, 1 the figure after. */
  slot: 0 | 1
  mean: number
  low: number
  high: number
}

/** Dots with 95 % whiskers on one axis from `low` to `high`, a row each. */
export function whiskerPlot(whiskers: readonly Whisker[], low: number, high: number): Markup {
  const width = 260
  const height = 16 + 14 * whiskers.length
  const x = (v: number) => fixed(6 + ((width - 12) * (Math.min(high, Math.max(low, v)) - low)) / (high - low))
  const marks = ticks(low, high, 5).map(
    (v) =>
      html`<line class="grid" x1="${x(v)}" x2="${x(v)}" y1="2" y2="${height - 10}"/><text class="tick" x="${x(v)}" y="${height - 1}" text-anchor="middle">${tickText(v)}</text>`,
  )
  const rows = whiskers
    .filter((w) => Number.isFinite(w.mean))
    .map((w, i) => {
      const y = 8 + 14 * i
      const bar = Number.isFinite(w.low) && Number.isFinite(w.high)
      const whisker = bar
        ? html`<line class="whisker" x1="${x(w.low)}" x2="${x(w.high)}" y1="${y}" y2="${y}"/>`
        : undefined
      return html`<g class="w${w.slot}"><title>${w.name}: ${short(w.mean)} [${short(w.low)}, ${short(w.high)}]</title>${whisker}<circle cx="${x(w.mean)}" cy="${y}" r="4.5"/></g>`
    })
  return html`<svg class="whiskers" viewBox="0 0 ${width} ${height}" role="img" aria-label="${whiskers.map((w) => `${w.name} ${short(w.mean)}`).join(', ')}">${marks}${rows}</svg>`
}
