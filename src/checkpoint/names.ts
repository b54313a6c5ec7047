import { showShape } from './dtype.ts'

export type Shapes = ReadonlyMap<string, readonly number[]>

/** Missing, unexpected and misshapen tensors of a file in one text, long lists shortened with counts; null if there are none. */
export function missingAndExtra(expected: Shapes, have: Shapes, max = 10): string | null {
  const misshapen = [...expected].flatMap(([name, shape]) => {
    const got = have.get(name)
    return got && got.join() !== shape.join() ? [`${name} ${showShape(got)} instead of ${showShape(shape)}`] : []
  })
  const parts = Object.entries({
    missing: [...expected.keys()].filter((name) => !have.has(name)),
    unexpected: [...have.keys()].filter((name) => !expected.has(name)),
    misshapen,
  }).flatMap(([what, items]) => (items.length === 0 ? [] : [`${items.length} ${what}: ${listed(items, max)}`]))
  return parts.length === 0 ? null : parts.join('; ')
}

function listed(items: readonly string[], max: number): string {
  const rest = items.length - max
  return `${items.slice(0, max).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}
