// Mutations of JSON values that stay JSON: types, sizes, nesting, names that mean something to JavaScript or to a shell.
import type { JsonObject, RandomStream } from '../../src/core/index.ts'
import { damageBytes, edgeNumber } from './bytes.ts'

const texts = [
  '',
  ' ',
  '__proto__',
  'constructor',
  '../../../etc/passwd',
  '/dev/zero',
  '\u0000',
  '\ud800',
  '(a+)+$',
  '<script>alert(1)</script>',
  '\u001b]0;x\u0007',
  'NaN',
  '1e999',
]

function oddValue(random: RandomStream, before: unknown): unknown {
  const near = typeof before === 'number' ? before : 0
  switch (random.below(12)) {
    case 0:
    case 1:
    case 2:
      return edgeNumber(random, near)
    case 3:
      return random.pick([0.5, -0.25, 1e300, -1e300, 1e-320, near + 0.5])
    case 4:
      return random.pick(texts)
    case 5:
      return 'x'.repeat(10 ** random.below(6))
    case 6:
      return random.pick<unknown>([null, true, false, [], {}, [[]], [null], { a: 1 }])
    case 7:
      return Array.from({ length: 10 ** random.below(5) }, () => near)
    case 8:
      return nested(1 + random.below(1200), before)
    case 9:
      return [before]
    case 10:
      return { value: before }
    default:
      return typeof before === 'string' ? `${before}${random.pick(texts)}` : String(before)
  }
}

/** For the report; what is nested too deeply to be written is said so. */
function shown(value: unknown): string {
  try {
    return String(JSON.stringify(value)).slice(0, 60)
  } catch {
    return 'something nested very deeply'
  }
}

function nested(depth: number, inner: unknown): unknown {
  let value = inner
  for (let i = 0; i < depth; i++) value = i % 2 === 0 ? [value] : { a: value }
  return value
}

type Place = { holder: JsonObject | unknown[]; key: string | number }

/** Places of a value, a limited number of them: large lists count by a few of their elements. */
function places(value: unknown, random: RandomStream, found: Place[] = [], depth = 0): Place[] {
  if (typeof value !== 'object' || value === null || found.length > 2000 || depth > 40) return found
  const keys: (string | number)[] = Array.isArray(value) ? [...value.keys()] : Object.keys(value)
  const sampled = keys.length > 40 ? Array.from({ length: 40 }, () => random.pick(keys)) : keys
  for (const key of sampled) {
    found.push({ holder: value as JsonObject, key })
    places((value as JsonObject)[key as string], random, found, depth + 1)
  }
  return found
}

function change({ holder, key }: Place, random: RandomStream): string {
  const fields = holder as JsonObject
  switch (random.below(7)) {
    case 0:
      if (Array.isArray(holder)) holder.splice(Number(key), 1)
      else delete fields[key]
      return `without ${key}`
    case 1:
      if (Array.isArray(holder)) holder.push(structuredClone(holder[Number(key)]))
      else fields[`${key}${random.pick(['2', '_', ' ', '.'])}`] = structuredClone(fields[key])
      return `${key} twice`
    case 2: {
      const other = random.pick(Object.keys(fields))
      const before = fields[key]
      fields[key] = fields[other]
      fields[other] = before
      return `${key} and ${other} swapped`
    }
    default:
      fields[key] = oddValue(random, fields[key])
      return `${key} = ${shown(fields[key])}`
  }
}

/** A value with one to three places changed. */
export function damageValue<T>(seed: T, random: RandomStream): { value: T; note: string } {
  const value = structuredClone(seed)
  const notes: string[] = []
  for (let i = 0; i <= random.below(3); i++) {
    const found = places(value, random)
    if (found.length > 0) notes.push(change(random.pick(found), random))
  }
  return { value, note: notes.join('; ') }
}

/** JSON text of a damaged value, or damaged text. */
export function damageJson(seed: unknown, random: RandomStream): { text: string | Uint8Array; note: string } {
  const choice = random.below(10)
  if (choice === 0) {
    const { bytes, note } = damageBytes(Buffer.from(JSON.stringify(seed)), random)
    return { text: bytes, note }
  }
  if (choice === 1) {
    const depth = 1 + random.below(100_000)
    return { text: '['.repeat(depth) + ']'.repeat(random.below(2) * depth), note: `${depth} brackets` }
  }
  const { value, note } = damageValue(seed, random)
  const text = JSON.stringify(value)
  if (choice !== 2) return { text, note }
  return { text: text.replace(/^\{/, '{"__proto__":{"polluted":1},'), note: `${note}; __proto__` }
}
