import type { Interval } from '../../tracking/index.ts'
import { fixed, ticks, tickText } from './chart.ts'
import { html, type Markup } from './html.ts'
import { short } from './metrics.ts'

/** 0: before, 1: after. */
type Whisker = Interval & { name: string; slot: 0 | 1 }

/** Dots with 95 % intervals on one axis from `low` to `high`, a row each. */
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
      const hasInterval = Number.isFinite(w.low) && Number.isFinite(w.high)
      const whisker = hasInterval
        ? html`<line class="whisker" x1="${x(w.low)}" x2="${x(w.high)}" y1="${y}" y2="${y}"/>`
        : undefined
      return html`<g class="w${w.slot}"><title>${w.name}: ${short(w.mean)} [${short(w.low)}, ${short(w.high)}]</title>${whisker}<circle cx="${x(w.mean)}" cy="${y}" r="4.5"/></g>`
    })
  return html`<svg class="whiskers" viewBox="0 0 ${width} ${height}" role="img" aria-label="${whiskers.map((w) => `${w.name} ${short(w.mean)}`).join(', ')}">${marks}${rows}</svg>`
}
