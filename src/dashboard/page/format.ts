export function bytes(value: number): string {
  if (!Number.isFinite(value)) return String(value)
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let [size, unit] = [value, 0]
  for (; Math.abs(size) >= 1024 && unit < units.length - 1; unit++) size /= 1024
  return `${Number.isInteger(size) ? size : size.toFixed(1)} ${units[unit]}`
}

/** Exponential mean with the start's bias taken out, as TensorBoard draws it; not finite values stay out. */
export function smoothed(values: readonly number[], weight: number): number[] {
  let [mean, scale] = [0, 0]
  return values.map((value) => {
    if (!Number.isFinite(value)) return value
    mean = mean * weight + (1 - weight) * value
    scale = scale * weight + (1 - weight)
    return mean / scale
  })
}

const colours = [
  '#2a78d6',
  '#d9541e',
  '#0a8a5f',
  '#9b4dca',
  '#b8860b',
  '#c2185b',
  '#00838f',
  '#6d4c41',
  '#5c6bc0',
  '#558b2f',
]
const darkColours = [
  '#5aa2f2',
  '#f0875a',
  '#3fc495',
  '#c68cf0',
  '#e0b040',
  '#f06a9b',
  '#40c0cc',
  '#bd9486',
  '#97a5f0',
  '#9ccc65',
]

export function colourOf(at: number, dark: boolean): string {
  const list = dark ? darkColours : colours
  return list[at % list.length]!
}

/** Saves what a page has made; `name` is cleaned, as it may come from a run's own names. */
export function download(data: Blob, name: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(data)
  link.download = name.replace(/[^A-Za-z0-9._-]+/g, '_').slice(0, 100)
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}
