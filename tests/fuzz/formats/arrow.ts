import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  Dictionary,
  Int32,
  LargeUtf8,
  makeTable,
  Table,
  tableFromIPC,
  tableToIPC,
  Utf8,
  vectorFromArray,
} from 'apache-arrow'
import type { RandomStream } from '../../../src/core/index.ts'
import { scanShard } from '../../../src/data/arrow/messages.ts'
import { writeGarArrow } from '../../../src/data/arrow/write.ts'
import { fixtures, garRow, rowsOf } from '../../support/data.ts'
import { damageBytes, damageField } from '../bytes.ts'
import type { Case, Format } from '../format.ts'
import { readSource } from './source.ts'

interface Stretch {
  begin: number
  meta: number
  body: number
  end: number
}

interface Seed {
  bytes: Buffer
  messages: Stretch[]
  /** Rows, where a row is a record whatever its values are. */
  rows: number | null
  /** The file format lists its batches, so that a lost one shows. */
  hasFooter: boolean
}

async function seedOf(path: string, rows: number | null): Promise<Seed> {
  const index = await scanShard(path)
  const bytes = readFileSync(path)
  const hasFooter = bytes.toString('latin1', 0, 6) === 'ARROW1'
  const all = [...index.dictionaries, ...index.batches].sort((a, b) => a.metaOffset - b.metaOffset)
  const schema = {
    begin: index.schemaOffset - 8,
    meta: index.schemaOffset,
    body: index.schemaOffset + index.schemaLength,
  }
  const messages = all.map((m) => ({
    begin: m.metaOffset - 8,
    meta: m.metaOffset,
    body: m.bodyOffset,
    end: m.bodyOffset + m.bodyLength,
  }))
  return { bytes, messages: [{ ...schema, end: schema.body }, ...messages], rows, hasFooter }
}

/** Large offsets and a dictionary, which the usual writer does not use. */
function wideTable(rows: Table): Table {
  const n = rows.numRows
  const texts = Array.from({ length: n }, (_, i) => `caption ${i}`)
  const words = Array.from({ length: n }, (_, i) => ['box', 'line', null][i % 3]!)
  const wide = makeTable({ size: Int32Array.from({ length: n }, (_, i) => i) })
  return new Table({
    image: rows.getChild('image')!,
    mask_rle: rows.getChild('mask_rle')!,
    caption: vectorFromArray(texts, new LargeUtf8()),
    category: vectorFromArray(words, new Dictionary(new Utf8(), new Int32())),
    size: wide.getChild('size')!,
  }) as unknown as Table
}

/** The file format around a stream, with the footer of a file of the same batches. */
function asFile(stream: Buffer, other: Buffer): Buffer {
  const length = other.readInt32LE(other.length - 10)
  const footer = other.subarray(other.length - 10 - length)
  return Buffer.concat([Buffer.from('ARROW1\0\0', 'latin1'), stream, footer])
}

async function seeds(folder: string): Promise<Seed[]> {
  const rows = await Promise.all(Array.from({ length: 12 }, (_, i) => garRow(i)))
  const { existsSync, writeFileSync } = await import('node:fs')
  const shard = join(folder, 'data-00000-of-00001.arrow')
  if (!existsSync(shard)) await writeGarArrow(folder, rowsOf(rows), { batchRows: 4 })
  const table = tableFromIPC(readFileSync(shard))
  writeFileSync(join(folder, 'file.arrow'), asFile(readFileSync(shard), Buffer.from(tableToIPC(table, 'file'))))
  writeFileSync(join(folder, 'wide.arrow'), tableToIPC(wideTable(table), 'stream'))
  return [
    await seedOf(shard, 12),
    await seedOf(join(folder, 'file.arrow'), 12),
    await seedOf(join(folder, 'wide.arrow'), 12),
    await seedOf(join(fixtures, 'gar-list.arrow'), null),
    await seedOf(join(fixtures, 'gar-transposed.arrow'), null),
  ]
}

/** Whole messages left out, repeated or in another order. */
function reorder({ bytes, messages }: Seed, random: RandomStream): { bytes: Buffer; note: string } {
  const parts = messages.map((m) => bytes.subarray(m.begin, m.end))
  const i = random.below(parts.length)
  const how = random.pick(['without', 'twice', 'swapped'])
  if (how === 'without') parts.splice(i, 1)
  else if (how === 'twice') parts.splice(i, 0, parts[i]!)
  else parts.push(...parts.splice(i, 1))
  const head = bytes.subarray(0, messages[0]!.begin)
  return { bytes: Buffer.concat([head, ...parts, bytes.subarray(messages.at(-1)!.end)]), note: `message ${i} ${how}` }
}

function mutate(seed: Seed, random: RandomStream): Case {
  const choice = random.below(10)
  let bytes: Buffer = Buffer.from(seed.bytes)
  let note: string
  let counted = seed.hasFooter
  const message = random.pick(seed.messages)
  if (choice < 5) {
    note = damageField(bytes, message.begin, message.body, random)
    counted = true
  } else if (choice < 7) {
    note = damageField(bytes, message.body, Math.min(message.end, message.body + 512), random)
    counted = true
  } else if (choice < 8) ({ bytes, note } = reorder(seed, random))
  else ({ bytes, note } = damageBytes(seed.bytes, random))
  const expect = counted && seed.rows !== null ? `${seed.rows} records` : undefined
  return { files: { 'data-00000-of-00001.arrow': bytes }, note, expect }
}

export const arrow: Format = {
  name: 'arrow',
  async setup(folder) {
    const all = await seeds(folder)
    return (random) => mutate(random.pick(all), random)
  },
  read: (folder) => readSource(join(folder, 'data-00000-of-00001.arrow'), true),
}
