// Curves as a drawing of their own, for a paper or a slide.
import { short } from '../markup/metrics.ts'

import type { Curve } from './plot.tsx'

const frame = { width: 640, height: 360, left: 64, right: 16, top: 40, bottom: 40 }
const escaped = (text: string) =>
  text
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\ufffe\uffff]|\p{Surrogate}/gu, '\ufffd')
    .replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`)
const fixed = (n: number) => String(Math.round(n * 10) / 10)

function bounds(values: readonly number[]): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
  for (const v of values) {
    if (v < low) low = v
    if (v > high) high = v
  }
  if (low > high) return [0, 1]
  return low === high ? [low - 1, high + 1] : [low, high]
}

export function svgOf(title: string, curves: readonly Curve[], logarithmic: boolean): string {
  const height = (v: number) => (logarithmic ? Math.log10(v) : v)
  const drawable = (v: number) => Number.isFinite(v) && (!logarithmic || v > 0)
  const [left, right] = bounds(curves.flatMap((c) => c.steps))
  const [low, high] = bounds(curves.flatMap((c) => c.values.filter(drawable).map(height)))
  const x = (step: number) => frame.left + ((frame.width - frame.left - frame.right) * (step - left)) / (right - left)
  const y = (v: number) =>
    frame.height - frame.bottom - ((frame.height - frame.top - frame.bottom) * (v - low)) / (high - low)
  const lines = curves.map((c) => {
    const points = c.steps.flatMap((step, i) =>
      drawable(c.values[i]!) ? [`${fixed(x(step))} ${fixed(y(height(c.values[i]!)))}`] : [],
    )
    const d = points.length > 0 ? `M${points.join('L')}` : ''
    const dash = c.dash ? ` stroke-dasharray="${c.dash.join(' ')}"` : ''
    return `<path d="${d}" fill="none" stroke="${c.colour}" stroke-width="${c.faint ? 1 : 2}" opacity="${c.faint ? 0.3 : 1}"${dash}><title>${escaped(c.label)}</title></path>`
  })
  const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const value = low + part * (high - low)
    const at = fixed(y(value))
    return `<line x1="${frame.left}" x2="${frame.width - frame.right}" y1="${at}" y2="${at}" stroke="#ddd"/><text x="${frame.left - 6}" y="${at}" dy="0.32em" text-anchor="end">${short(logarithmic ? 10 ** value : value)}</text>`
  })
  const ends = [left, right].map(
    (step) =>
      `<text x="${fixed(x(step))}" y="${frame.height - frame.bottom + 18}" text-anchor="middle">${short(step)}</text>`,
  )
  const legend = curves
    .filter((c) => !c.faint)
    .map((c, i) => `<tspan fill="${c.colour}">${i > 0 ? '   ' : ''}${escaped(c.label)}</tspan>`)
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${frame.width} ${frame.height}" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/><text x="${frame.left}" y="16" font-size="14">${escaped(title)}</text><text x="${frame.left}" y="32" xml:space="preserve">${legend.join('')}</text>${marks.join('')}${ends.join('')}${lines.join('')}</svg>`
}
