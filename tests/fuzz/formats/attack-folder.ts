// The formats `attack-...`: a folder of good files, one of which is attacked by its kind, and a reader of the folder.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { RandomStream } from '../../../src/core/index.ts'
import { attackBytes, attackJson, attackLines, attackText, entries } from '../attack.ts'
import type { Case, Format } from '../format.ts'

export type Files = Record<string, string | Uint8Array>

export interface Target {
  name: string
  /** Good folders; one is chosen for each case. */
  seeds(folder: string): Promise<Files[]> | Files[]
  /** Files that are attacked; all by default. */
  attacks?: RegExp
  read(folder: string): Promise<string> | string
  writes?: RegExp
  /** One case of so many has a link, a pipe or a folder in place of a file. */
  entriesIn?: number
  /** The file is of the fuzzer: it is always there, and always of its kind. */
  isPlain?: boolean
}

/** Files of a folder, by their paths in it, under `prefix`. */
export function filesOf(folder: string, prefix = '', wanted = /./): Files {
  const names = readdirSync(folder, { recursive: true }).map(String).sort()
  const files = names.filter((name) => wanted.test(name) && statSync(join(folder, name)).isFile())
  return Object.fromEntries(files.map((name) => [`${prefix}${name}`, readFileSync(join(folder, name))]))
}

export const json = (value: unknown) => JSON.stringify(value)

function attackFile(name: string, seed: Uint8Array | string, random: RandomStream) {
  const bytes = Buffer.from(seed)
  const text = bytes.toString()
  if (name.endsWith('.jsonl')) return attackLines(text, random)
  if (name.endsWith('.json')) return attackJson(JSON.parse(text), random)
  if (/\.(ya?ml|txt|lock|id)$|\/id$/.test(name)) return attackText(text, random)
  if (name.endsWith('.safetensors') && random.below(3) > 0) return attackHeader(bytes, random)
  return attackBytes(bytes, bytes, random)
}

/** The JSON header of a safetensors file, with its length corrected. */
function attackHeader(bytes: Buffer, random: RandomStream): { bytes: Buffer; note: string } {
  const length = Number(bytes.readBigUInt64LE())
  const header = attackJson(JSON.parse(bytes.toString('utf8', 8, 8 + length)), random)
  const text = Buffer.from(header.bytes)
  const head = Buffer.alloc(8)
  head.writeBigUInt64LE(BigInt(text.length))
  return { bytes: Buffer.concat([head, text, bytes.subarray(8 + length)]), note: `header: ${header.note}` }
}

function attackCase(
  files: Files,
  { attacks = /./, entriesIn = 9, isPlain = false }: Target,
  random: RandomStream,
): Case {
  const name = random.pick(Object.keys(files).filter((file) => attacks.test(file)))
  if (!isPlain && random.below(entriesIn) === 0) {
    const entry = random.pick(entries)
    return { files, entries: { [name]: entry }, note: `${name}: ${JSON.stringify(entry)}` }
  }
  const { bytes, note } = attackFile(name, files[name]!, random)
  return { files: { ...files, [name]: bytes }, note: `${name}: ${note}` }
}

export function attackFormat(target: Target): Format {
  const { name, seeds, read, writes } = target
  return {
    name: `attack-${name}`,
    ...(writes ? { writes } : {}),
    async setup(folder) {
      const all = await seeds(folder)
      return (random) => attackCase(random.pick(all), target, random)
    },
    read: async (folder) => read(folder),
  }
}
