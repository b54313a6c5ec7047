// A plain line chart as SVG, readable on light and dark pages.
import { type Point, smooth, ticks } from '../../src/dashboard/index.ts'

export interface Line {
  name: string
  points: readonly Point[]
}

const colours = ['#2563eb', '#dc2626', '#059669', '#d97706', '#7c3aed', '#0891b2', '#be185d', '#65a30d']
const frame = { width: 720, height: 260, left: 48, right: 170, top: 28, bottom: 28 }

export function lineChart(title: string, lines: readonly Line[]): string {
  const drawn = lines.map((l) => ({ ...l, points: smooth(l.points) }))
  const all = drawn.flatMap((l) => l.points)
  const [lowX, highX] = [Math.min(...all.map((p) => p.step)), Math.max(...all.map((p) => p.step))]
  const [lowY, highY] = [Math.min(...all.map((p) => p.value)), Math.max(...all.map((p) => p.value))]
  const { width, height, left, right, top, bottom } = frame
  const x = (v: number) => left + ((v - lowX) / (highX - lowX || 1)) * (width - left - right)
  const y = (v: number) => height - bottom - ((v - lowY) / (highY - lowY || 1)) * (height - top - bottom)
  const path = (points: readonly Point[]) =>
    points.map((p, i) => `${i ? 'L' : 'M'}${x(p.step).toFixed(1)} ${y(p.value).toFixed(1)}`).join('')
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="11" fill="#6b7280">`,
    `<text x="${left}" y="16" font-size="13">${title}</text>`,
    ...ticks(lowY, highY, 5).map(
      (v) =>
        `<path d="M${left} ${y(v).toFixed(1)}H${width - right}" stroke="#9ca3af" stroke-opacity=".35"/><text x="${left - 6}" y="${(y(v) + 4).toFixed(1)}" text-anchor="end">${v}</text>`,
    ),
    `<text x="${left}" y="${height - 8}">step ${lowX}</text><text x="${width - right}" y="${height - 8}" text-anchor="end">${highX}</text>`,
    ...drawn.map(({ name, points }, i) => {
      const colour = colours[i % colours.length]
      const at = top + 6 + i * 17
      return `<path d="${path(points)}" fill="none" stroke="${colour}" stroke-width="2"/><path d="M${width - right + 14} ${at}h16" stroke="${colour}" stroke-width="3"/><text x="${width - right + 36}" y="${at + 4}">${name}</text>`
    }),
    '</svg>\n',
  ].join('\n')
}
