// A plain line chart as SVG, readable on light and dark pages.
export interface Line {
  name: string
  points: readonly { x: number; y: number }[]
}

const colours = ['#2563eb', '#dc2626', '#059669', '#d97706', '#7c3aed', '#0891b2', '#be185d', '#65a30d']
const frame = { width: 720, height: 260, left: 48, right: 170, top: 28, bottom: 28 }

/** Mean over a window of a tenth of the line. */
function smooth(points: Line['points']): Line['points'] {
  const half = Math.max(1, Math.floor(points.length / 20))
  return points.map(({ x }, i) => {
    const near = points.slice(Math.max(0, i - half), i + half + 1)
    return { x, y: near.reduce((sum, p) => sum + p.y, 0) / near.length }
  })
}

export function lineChart(title: string, lines: readonly Line[]): string {
  const drawn = lines.map((l) => ({ ...l, points: smooth(l.points) }))
  const all = drawn.flatMap((l) => l.points)
  const [lowX, highX] = [Math.min(...all.map((p) => p.x)), Math.max(...all.map((p) => p.x))]
  const [lowY, highY] = [Math.min(...all.map((p) => p.y)), Math.max(...all.map((p) => p.y))]
  const { width, height, left, right, top, bottom } = frame
  const x = (v: number) => left + ((v - lowX) / (highX - lowX || 1)) * (width - left - right)
  const y = (v: number) => height - bottom - ((v - lowY) / (highY - lowY || 1)) * (height - top - bottom)
  const path = (points: Line['points']) =>
    points.map((p, i) => `${i ? 'L' : 'M'}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join('')
  const grid = [0, 0.25, 0.5, 0.75, 1].map((t) => lowY + t * (highY - lowY))
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="11" fill="#6b7280">`,
    `<text x="${left}" y="16" font-size="13">${title}</text>`,
    ...grid.map(
      (v) =>
        `<path d="M${left} ${y(v).toFixed(1)}H${width - right}" stroke="#9ca3af" stroke-opacity=".35"/><text x="${left - 6}" y="${(y(v) + 4).toFixed(1)}" text-anchor="end">${v.toFixed(3)}</text>`,
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
