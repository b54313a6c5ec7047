// Mutators of the `attack-...` formats: renamed keys, flipped types, odd Unicode, number literals, line ends, length fields, block
// order, and what a file system can put in place of a file.
import { gzipSync } from 'node:zlib'
import { type JsonObject, type RandomStream, shuffled } from '../../src/core/index.ts'
import type { FileEntry } from './format.ts'

const oddTexts = [
  '\u202egnp.x',
  'e\u0301'.repeat(300),
  '\u{1f469}\u200d\u{1f680}',
  '\ud83d',
  'a\u0000b',
  '\u2028\u2029',
  '\ufeffx',
  'toString',
  'hasOwnProperty',
  'constructor.prototype.polluted',
  '..\\..\\x',
  './././x.png',
  'file:///etc/hostname',
  '~/x',
  '$(id)',
  '$HOME',
  '</script><img src=x onerror=alert(1)>',
  '%2e%2e%2f',
  '\u001b[31m',
  'y'.repeat(300_000),
]
/** Written without quotes: not every one is JSON. */
const literals = [
  '1e400',
  '-0.0',
  '5e-324',
  '9007199254740993',
  '1E+2',
  '0x10',
  '01',
  'NaN',
  '-Infinity',
  '1_000',
  '2.',
]
const numbers = [
  -0,
  5e-324,
  Number.MAX_VALUE,
  2 ** 53 + 2,
  1e21,
  0.1 + 0.2,
  -(2 ** 31) - 1,
  4294967297,
  1.0000000000000002,
]
const marker = 'literal-to-be-unquoted-'

function renamed(key: string, random: RandomStream): string {
  const snake = key.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)
  const others = [key.toUpperCase(), `${key} `, `\ufeff${key}`, key.replace(/[ae]/, '\u0430'), `${key}\u200b`, snake]
  return random.pick([...others, 'toJSON', 'then', 'length', 'constructor', 'valueOf'])
}

function flipped(value: unknown, random: RandomStream): unknown {
  if (typeof value === 'number')
    return random.pick<unknown>([`${value}`, [value], value !== 0, `${value}px`, { $num: value }])
  if (typeof value === 'string')
    return random.pick<unknown>([[...value.slice(0, 500)], { ...[...value.slice(0, 99)] }, value.length, 0])
  if (typeof value === 'boolean') return random.pick<unknown>([Number(value), `${value}`, null, [value]])
  if (Array.isArray(value))
    return random.pick<unknown>([{ ...value.slice(0, 5000) }, value[0], value.join(','), value.flat(), [value]])
  if (value === null) return random.pick<unknown>(['null', 0, {}, [], false])
  const fields = value as JsonObject
  return random.pick<unknown>([Object.values(fields), Object.keys(fields), Object.entries(fields), [fields], null])
}

function odd(value: unknown, random: RandomStream): unknown {
  const choice = random.below(6)
  if (choice === 0) return random.pick(numbers)
  if (choice === 1) return `${marker}${random.pick(literals)}`
  if (choice === 2) return random.pick(oddTexts)
  if (choice === 3) return typeof value === 'string' ? `${value}${random.pick(oddTexts)}` : random.pick(oddTexts)
  return flipped(value, random)
}

type Spot = [holder: JsonObject, key: string]

function spots(value: unknown, random: RandomStream, found: Spot[] = [], depth = 0): Spot[] {
  if (typeof value !== 'object' || value === null || depth > 30 || found.length > 1500) return found
  const keys = Object.keys(value)
  const some = keys.length > 25 ? Array.from({ length: 25 }, () => random.pick(keys)) : keys
  for (const key of some) {
    found.push([value as JsonObject, key])
    spots((value as JsonObject)[key], random, found, depth + 1)
  }
  return found
}

function deep(key: string, inner: unknown, depth: number): unknown {
  let value = inner
  for (let i = 0; i < depth; i++) value = { [key]: value }
  return value
}

function change([holder, key]: Spot, random: RandomStream): string {
  const before = holder[key]
  switch (random.below(8)) {
    case 0: {
      const name = renamed(key, random)
      delete holder[key]
      if (!Array.isArray(holder)) holder[name] = before
      return `${key} renamed to ${name.slice(0, 30)}`
    }
    case 1:
      for (const name of Object.keys(holder)) if (random.below(2) === 0) delete holder[name]
      return `half of the fields beside ${key} missing`
    case 2:
      holder[key] = deep(key, before, random.pick([1, 2, 40, 2000]))
      return `${key} inside itself`
    case 3:
      if (Array.isArray(before))
        holder[key] = random.pick([shuffled(before, random), before.slice(1), [null, ...before], []])
      else holder[key] = { ...holder }
      return `${key} in another order`
    case 4:
      holder[key] = flipped(before, random)
      return `${key} of another type`
    default:
      holder[key] = odd(before, random)
      return `${key} = ${String(holder[key]).slice(0, 40)}`
  }
}

function jsonText(value: unknown, random: RandomStream): string {
  let text: string
  try {
    text = JSON.stringify(value, null, random.pick([0, 0, 0, 2, '\t'])) ?? 'null'
  } catch {
    return '{"a":'.repeat(3000) // a field named toJSON or a nesting that cannot be written
  }
  return text.replace(new RegExp(`"${marker}([^"]*)"`, 'g'), '$1')
}

/** One JSON document with one to four changes, or in a form that is nearly JSON. */
export function attackJson(seed: unknown, random: RandomStream): { bytes: string | Uint8Array; note: string } {
  const root = { root: structuredClone(seed) } as JsonObject
  const notes: string[] = []
  for (let i = 0; i <= random.below(4); i++) {
    const found = spots(root, random)
    if (found.length > 0) notes.push(change(random.pick(found), random))
  }
  const text = jsonText(Object.hasOwn(root, 'root') ? root.root : root, random)
  return random.below(5) > 0 ? { bytes: text, note: notes.join('; ') } : attackText(text, random)
}

/** The same text as another system would save it, cut at a border, or something else entirely. */
export function attackText(text: string, random: RandomStream): { bytes: string | Uint8Array; note: string } {
  const borders = [...text.slice(0, 200_000).matchAll(/[{}[\],:"\n]/g)].map((m) => m.index)
  const at = borders.length > 0 ? random.pick(borders) : 0
  const forms: Record<string, () => string | Uint8Array> = {
    CRLF: () => text.replaceAll('\n', '\r\n').replaceAll('},{', '},\r\n{'),
    CR: () => text.replaceAll('\n', '\r'),
    BOM: () => `\ufeff${text}`,
    'UTF-16': () => Buffer.from(`\ufeff${text}`, 'utf16le'),
    'Latin-1': () => Buffer.from(`${text}\u00e9`, 'latin1'),
    'NUL at the end': () => `${text}\0\0\0\0`,
    'cut at a border': () => text.slice(0, at),
    'cut after a border': () => text.slice(0, at + 1),
    'trailing comma': () => text.replace(/([\]}])\s*$/, ',$1'),
    twice: () => `${text}\n${text}`,
    comment: () => `// settings\n${text}`,
    'single quotes': () => text.replaceAll('"', "'"),
    'duplicate keys': () => text.replace(/"(\w+)":/g, '"$1":null,"$1":'),
    gzip: () => gzipSync(text),
    'a lone surrogate': () => `${text.slice(0, at)}"\\udfff"${text.slice(at)}`,
    polluting: () => text.replace('{', '{"constructor":{"prototype":{"polluted":1}},"__proto__":{"polluted":1},'),
    'another document': () =>
      random.pick(['', ' \n', 'null', '0', '"x"', '[]', '{}', '[[]]', '[null]', 'true', '[{}]', '\0']),
  }
  const name = random.pick(Object.keys(forms))
  return { bytes: forms[name]!(), note: name }
}

/** Lines of JSON: values, order, ends. */
export function attackLines(text: string, random: RandomStream): { bytes: string | Uint8Array; note: string } {
  const whole = text.split('\n').filter((line) => line !== '')
  const lines = [...whole]
  const notes: string[] = []
  for (let i = 0; i <= random.below(3) && lines.length > 0; i++) {
    const at = random.below(lines.length)
    const { bytes, note } = attackJson(JSON.parse(whole[at]!), random)
    lines[at] = Buffer.from(bytes).toString().replaceAll('\n', ' ')
    notes.push(`line ${at}: ${note}`)
    if (random.below(4) === 0) break
  }
  const order = random.pick([
    lines,
    lines,
    lines,
    [...lines].reverse(),
    lines.flatMap((l) => [l, '', l]),
    shuffled(lines, random),
  ])
  const end = random.pick(['\n', '\n', '\n', '\r\n', '\r', '\u2028', '\n\n\n', ' ', '\n\ufeff'])
  return { bytes: order.join(end) + random.pick(['', end]), note: `${notes.join('; ')}; end ${JSON.stringify(end)}` }
}

interface LengthField {
  at: number
  value: number
  isBig: boolean
}

/** Fields of four bytes that may be a length: what they say fits into the rest of the file. */
function lengthFields(bytes: Buffer, random: RandomStream): LengthField[] {
  const found: LengthField[] = []
  const end = Math.min(bytes.length - 4, 200_000)
  for (let at = random.below(4); at < end; at += random.pick([1, 4]))
    for (const isBig of [false, true]) {
      const value = isBig ? bytes.readUInt32BE(at) : bytes.readUInt32LE(at)
      if (value > 3 && at + 4 + value <= bytes.length) found.push({ at, value, isBig })
    }
  return found
}

function setLength(bytes: Buffer, { at, value, isBig }: LengthField, random: RandomStream): string {
  const rest = bytes.length - at - 4
  const next =
    random.pick([value + 1, value - 1, rest, rest + 1, value * 2, 0, 2 ** 31, 2 ** 32 - value, value ^ 0x80]) >>> 0
  if (isBig !== (random.below(8) === 0)) bytes.writeUInt32BE(next, at)
  else bytes.writeUInt32LE(next, at)
  return `length ${value} at ${at} = ${next}`
}

/** Binary files: length arithmetic, blocks in another order, halves of two files, transfers that change bytes. */
export function attackBytes(seed: Buffer, other: Buffer, random: RandomStream): { bytes: Buffer; note: string } {
  const bytes = Buffer.from(seed)
  const block = Math.max(1, Math.ceil(bytes.length / (2 + random.below(14))))
  const blocks = Array.from({ length: Math.ceil(bytes.length / block) }, (_, i) =>
    bytes.subarray(i * block, (i + 1) * block),
  )
  const at = random.below(blocks.length) * block
  const fields = lengthFields(bytes, random)
  const choice = random.below(12)
  if (choice < 5 && fields.length > 0) {
    const notes = Array.from({ length: 1 + random.below(2) }, () => setLength(bytes, random.pick(fields), random))
    return { bytes, note: notes.join('; ') }
  }
  const forms: Record<string, () => Buffer> = {
    'blocks shuffled': () => Buffer.concat(shuffled(blocks, random)),
    'two halves': () => Buffer.concat([bytes.subarray(0, at), other.subarray(Math.min(at, other.length))]),
    'inside itself': () => Buffer.concat([bytes.subarray(0, at), bytes, bytes.subarray(at)]),
    'cut at a block': () => bytes.subarray(0, at),
    'tail alone': () => bytes.subarray(at),
    'sent as text': () => Buffer.from(bytes.toString('latin1').replaceAll('\n', '\r\n'), 'latin1'),
    'as UTF-8': () => Buffer.from(bytes.toString('latin1')),
    'seven bits': () => bytes.map((b) => b & 127) as Buffer,
    'pairs swapped': () => bytes.subarray(0, bytes.length & ~1).swap16(),
    'ones in a block': () => bytes.fill(255, at, Math.min(bytes.length, at + block, at + 256)),
    'more at the end': () => Buffer.concat([bytes, other.subarray(0, 70_000), Buffer.alloc(3)]),
  }
  const name = random.pick(Object.keys(forms))
  return { bytes: Buffer.from(forms[name]!()), note: `${name} at ${at}` }
}

/** What can be in the place of a file. */
export const entries: readonly FileEntry[] = [
  { kind: 'folder' },
  { kind: 'pipe' },
  { kind: 'absent' },
  { kind: 'sparse' },
  { kind: 'link', to: 'self' },
  { kind: 'link', to: '/nonexistent/x' },
  { kind: 'link', to: '/dev/zero' },
  { kind: 'link', to: '../outside/made' },
  { kind: 'link', to: '/proc/self/environ' },
]
