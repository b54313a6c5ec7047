import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { RandomStream } from '../../../src/core/index.ts'
import { fixtures } from '../../support/data.ts'
import { damageBytes, damageField, edgeNumber } from '../bytes.ts'
import type { Case, Format } from '../format.ts'
import { type Field, fieldsOf, type List, readStruct, writeStruct } from '../thrift.ts'
import { readSource } from './source.ts'

interface Seed {
  bytes: Buffer
  footer: number
}

const name = 'train-00000-of-00001.parquet'

function seedOf(path: string): Seed {
  const bytes = readFileSync(path)
  return { bytes, footer: bytes.length - 8 - bytes.readUInt32LE(bytes.length - 8) }
}

/** Paths of field ids whose number the rest of the file contradicts when it changes: rows of the file, rows of a group. */
const counted = [[3], [4, 3]]

function withFooter({ bytes, footer }: Seed, fields: readonly Field[]): Buffer {
  const meta = writeStruct(fields)
  const length = Buffer.alloc(4)
  length.writeUInt32LE(meta.length)
  return Buffer.concat([bytes.subarray(0, footer), meta, length, Buffer.from('PAR1')])
}

function damageFooter(seed: Seed, random: RandomStream): Case {
  const { fields } = readStruct(Buffer.from(seed.bytes), seed.footer)
  const all = [...fieldsOf(fields)]
  const counts = all.filter(({ path }) => counted.some((c) => c.join() === path.join()))
  const targeted = random.below(4) === 0
  const { field, path } = random.pick(targeted ? counts : all)
  const before = field.value
  if (typeof before === 'bigint') field.value = BigInt(Math.trunc(edgeNumber(random, Number(before))))
  else if (Buffer.isBuffer(before))
    field.value =
      random.below(2) === 0 ? Buffer.alloc(0) : damageBytes(Buffer.concat([before, Buffer.from('x')]), random).bytes
  else if (typeof before === 'boolean') field.value = !before
  else if (field.type === 9) {
    const list = before as List
    if (list.items.length > 0 && random.below(2) === 0) list.items.pop()
    else if (list.items.length > 0) list.items.push(list.items[0]!)
  }
  const note = `footer ${path.join('.')}: ${String(before).slice(0, 40)} to ${String(field.value).slice(0, 40)}`
  const changed = typeof before === 'bigint' && BigInt.asIntN(64, field.value as bigint) !== before
  const expect = targeted && changed ? 'nothing' : undefined
  return { files: { [name]: withFooter(seed, fields) }, note, expect }
}

function mutate(seed: Seed, random: RandomStream): Case {
  const choice = random.below(10)
  if (choice < 5) return damageFooter(seed, random)
  if (choice < 8) {
    // page headers, levels and runs are at the beginning of pages
    const bytes = Buffer.from(seed.bytes)
    const note = damageField(bytes, 4, seed.footer, random)
    return { files: { [name]: bytes }, note }
  }
  const { bytes, note } = damageBytes(seed.bytes, random)
  return { files: { [name]: bytes }, note }
}

export const parquet: Format = {
  name: 'parquet',
  async setup() {
    const good = [name, 'zstd.parquet'].map((file) => seedOf(join(fixtures, file)))
    const large = seedOf(join(fixtures, 'damaged', 'rows4100.parquet')) // 8,200 rows under a wrong count
    const { fields } = readStruct(Buffer.from(large.bytes), large.footer)
    fields.find((f) => f.id === 3)!.value = 8200n
    const mended = { ...large, bytes: withFooter(large, fields) }
    return (random) => mutate(random.below(32) === 0 ? mended : random.pick(good), random) // the large one is slow
  },
  read: (folder) => readSource(join(folder, name), true),
}
