import { showShape } from './dtype.ts'

export type Shapes = ReadonlyMap<string, readonly number[]>

interface NameDifferences {
  missing: string[]
  unexpected: string[]
  misshapen: { name: string; expected: readonly number[]; got: readonly number[] }[]
}

/** What a model expects against what a file has. */
function compareNames(expected: Shapes, have: Shapes): NameDifferences {
  const out: NameDifferences = { missing: [], unexpected: [], misshapen: [] }
  for (const [name, shape] of expected) {
    const got = have.get(name)
    if (!got) out.missing.push(name)
    else if (got.length !== shape.length || got.some((n, i) => n !== shape[i])) {
      out.misshapen.push({ name, expected: shape, got })
    }
  }
  for (const name of have.keys()) if (!expected.has(name)) out.unexpected.push(name)
  return out
}

/** All missing, unexpected and misshapen tensors in one text, long lists shortened with counts; null when none. */
export function missingAndExtra(expected: Shapes, have: Shapes, most = 10): string | null {
  const { missing, unexpected, misshapen } = compareNames(expected, have)
  const shapes = misshapen.map((m) => `${m.name} ${showShape(m.got)} instead of ${showShape(m.expected)}`)
  const parts = [
    listed('missing', missing, most),
    listed('unexpected', unexpected, most),
    listed('misshapen', shapes, most),
  ].filter((part) => part !== null)
  return parts.length === 0 ? null : parts.join('; ')
}

function listed(what: string, items: readonly string[], most: number): string | null {
  if (items.length === 0) return null
  const rest = items.length - most
  const shown = items.slice(0, most).join(', ')
  return `${items.length} ${what}: ${shown}${rest > 0 ? ` and ${rest} more` : ''}`
}
