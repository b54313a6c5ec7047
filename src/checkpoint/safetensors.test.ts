import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { golden, refuses, scratch, survives } from '../../tests/support/checkpoint.ts'
import { stream } from '../core/index.ts'
import type { DType } from './dtype.ts'
import { readAll, readHeader, readTensorBytes, type TensorSource, writeSafetensors } from './safetensors.ts'
import { duplicateKey, parseHeader } from './safetensors-header.ts'

function sources(path: string): TensorSource[] {
  return Array.from(readAll(path), ([name, tensor]) => ({ name, ...tensor }))
}

/** A file from a header text (or object) and a number of data bytes. */
function craft(dir: string, header: unknown, dataBytes: number): string {
  const text = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header))
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(text.length))
  const path = join(dir, 'crafted.safetensors')
  writeFileSync(path, Buffer.concat([length, text, Buffer.alloc(dataBytes)]))
  return path
}

const one = (extra: object = {}) => ({ dtype: 'F32', shape: [2], data_offsets: [0, 8], ...extra })

const goldenFiles = ['lora-tiny/adapter_model', 'lora-tiny/base', 'lora-tiny/golden', 'sa2va-tiny/model', 'misc/golden']
for (const name of goldenFiles) {
  test(`${name}.safetensors is rewritten byte for byte, from any order of its tensors`, (t) => {
    const original = golden(`${name}.safetensors`)
    const copy = join(scratch(t), 'copy.safetensors')
    writeSafetensors(copy, sources(original).reverse(), readHeader(original).metadata)
    assert.ok(readFileSync(copy).equals(readFileSync(original)))
  })
}

test('the header of the golden adapter has its names, shapes and ranges', () => {
  const path = golden('lora-tiny/adapter_model.safetensors')
  const header = readHeader(path)
  assert.equal(header.tensors.size, 42)
  assert.deepEqual(header.metadata, { format: 'pt' })
  assert.equal(header.dataOffset, 5240)
  const entry = header.tensors.get('base_model.model.model.layers.0.mlp.down_proj.lora_B.weight')!
  assert.deepEqual(entry, { dtype: 'F32', shape: [64, 8], begin: 5240 + 5632, end: 5240 + 7680 })
  assert.ok(readFileSync(path).subarray(entry.begin, entry.end).equals(readTensorBytes(path, entry)))
})

test('every dtype, scalars and empty tensors survive a round trip; data functions are called once each', (t) => {
  const dir = scratch(t)
  const path = join(dir, 'all.safetensors')
  const dtypes: [DType, number][] = [
    ['BOOL', 1],
    ['BF16', 2],
    ['F16', 2],
    ['I64', 8],
    ['F64', 8],
    ['U8', 1],
    ['C64', 8],
  ]
  let calls = 0
  const entries = dtypes.map(([dtype, size], i) => ({
    name: `t${i}`,
    dtype,
    shape: [3, 5],
    data: () => {
      calls++
      return new Uint8Array(15 * size).fill(i + 1)
    },
  }))
  const scalar = { name: 'scalar', dtype: 'F32' as const, shape: [], data: new Uint8Array([1, 2, 3, 4]) }
  const empty = { name: 'empty', dtype: 'F32' as const, shape: [0, 7], data: new Uint8Array(0) }
  writeSafetensors(path, [scalar, ...entries, empty], { b: '2', a: '1' })
  const back = readAll(path)
  assert.equal(calls, entries.length)
  assert.equal(back.size, entries.length + 2)
  assert.deepEqual(back.get('scalar'), { dtype: 'F32', shape: [], data: new Uint8Array([1, 2, 3, 4]) })
  assert.equal(back.get('empty')!.data.length, 0)
  assert.ok(back.get('t1')!.data.every((v) => v === 2))
  assert.equal(readHeader(path).dataOffset % 8, 0)
  assert.deepEqual(readdirSync(dir), ['all.safetensors'])
})

test('a writer that fails leaves the old file and no temporary one', (t) => {
  const dir = scratch(t)
  const path = join(dir, 'w.safetensors')
  const entry = { name: 'a', dtype: 'U8' as const, shape: [2], data: new Uint8Array(2) }
  writeSafetensors(path, [entry])
  const before = readFileSync(path)
  refuses(() => writeSafetensors(path, [{ ...entry, data: new Uint8Array(3) }]), /a: expected 2 bytes, got 3 bytes/)
  refuses(() => writeSafetensors(path, [entry, entry]), /a: expected each name once/)
  refuses(() => writeSafetensors(path, [{ ...entry, name: 'a\nb' }]), /control characters/)
  refuses(() => writeSafetensors(path, [{ ...entry, shape: [-1] }]), /a: expected a known dtype and sizes/)
  assert.ok(readFileSync(path).equals(before))
  assert.deepEqual(readdirSync(dir), ['w.safetensors'])
})

test('hostile headers are refused with the file, the field, what was expected and what came', (t) => {
  const dir = scratch(t)
  const cases: [unknown, number, RegExp][] = [
    [{ a: one({ dtype: 'F33' }) }, 8, /a\.dtype: expected one of BOOL .*, got F33/],
    [{ a: one({ dtype: 'toString' }) }, 8, /a\.dtype/],
    [{ a: one({ shape: [3] }) }, 8, /a\.data_offsets: expected 12 bytes for F32 \[3\], got 8 bytes/],
    [{ a: one({ shape: [-2] }) }, 8, /a\.shape/],
    [{ a: one({ shape: [2 ** 40, 2 ** 40] }) }, 8, /a\.shape/],
    [{ a: one({ shape: 2 }) }, 8, /a\.shape/],
    [{ a: one({ data_offsets: [8, 0] }) }, 8, /begin <= end/],
    [{ a: one({ data_offsets: [0, 8, 9] }) }, 8, /a\.data_offsets/],
    [{ a: one({ data_offsets: ['0', 8] }) }, 8, /a\.data_offsets/],
    [{ a: one() }, 4, /a\.data_offsets: expected inside the file's 4 data bytes, got end 8. the file is cut/],
    [{ a: one() }, 12, /size: expected .* bytes as the header says/],
    [{ a: one(), b: one() }, 8, /b: expected a begin of 8, got 0. it overlaps/],
    [{ a: one(), b: one({ data_offsets: [4, 12] }) }, 12, /overlaps/],
    [{ a: one(), b: one({ data_offsets: [12, 20] }) }, 20, /b: expected a begin of 8, got 12. a gap/],
    [{ a: 3 }, 0, /a: expected an object, got number/],
    [{ '': one() }, 8, /a tensor name of 1 to 1024/],
    [{ __metadata__: { x: 1 } }, 0, /__metadata__\.x: expected a string/],
    [{ __metadata__: [] }, 0, /__metadata__: expected an object, got a list/],
    ['[1]', 0, /expected JSON that begins with \{/],
    ['{"a":', 0, /header: expected JSON/],
    ['', 0, /header/],
    [`{"a":${JSON.stringify(one())},"a":${JSON.stringify(one())}}`, 8, /each key once, got a twice/],
    [`{"a":${JSON.stringify(one())},"\\u0061":${JSON.stringify(one())}}`, 8, /a twice/],
    ['{"a":{"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]}}', 8, /dtype twice/],
  ]
  for (const [header, bytes, text] of cases) refuses(() => readHeader(craft(dir, header, bytes)), text)
})

test('a header length beyond the file or the limit is refused before anything is read', (t) => {
  const path = join(scratch(t), 'x.safetensors')
  for (const length of [2n ** 63n, 100_000_001n, 9n]) {
    const head = Buffer.alloc(16, '{')
    head.writeBigUInt64LE(length)
    writeFileSync(path, head)
    refuses(() => readHeader(path), /header length: expected at most 8, got/)
  }
  writeFileSync(path, 'short')
  refuses(() => readHeader(path), /a safetensors file, got 5 bytes/)
  refuses(() => readHeader(join(path, 'nothing')), /a readable file/)
  mkdirSync(`${path}.d`)
  refuses(() => readHeader(`${path}.d`), /regular file/)
})

test('a file cut anywhere is refused', (t) => {
  const path = join(scratch(t), 'cut.safetensors')
  const bytes = readFileSync(golden('lora-tiny/adapter_model.safetensors'))
  for (const keep of [0, 7, 8, 100, 5239, 5240, 50_000, bytes.length - 1]) {
    writeFileSync(path, bytes)
    truncateSync(path, keep)
    assert.equal(
      survives(() => readAll(path)),
      false,
      `${keep} bytes`,
    )
  }
})

test('a tensor named __proto__ is data', (t) => {
  const path = craft(scratch(t), '{"__proto__":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8)
  assert.deepEqual([...readHeader(path).tensors.keys()], ['__proto__'])
})

test('duplicateKey sees keys per object and not values', () => {
  assert.equal(duplicateKey('{"a":"a","b":{"a":1},"c":["a","a",{"a":1},{"a":2}]}'), null)
  assert.equal(duplicateKey('{"x":{"a" : 1,"\\"":2, "a"\n:3}}'), 'a')
})

test('10,000 headers with random bytes changed give a Mismatch or a header, never another error', (t) => {
  const path = craft(scratch(t), { __metadata__: { f: 'pt' }, a: one(), b: one({ data_offsets: [8, 16] }) }, 16)
  const file = readFileSync(path)
  const random = stream('safetensors fuzz')
  for (let i = 0; i < 10_000; i++) {
    const header = Buffer.from(file.subarray(8, file.length - 16))
    for (let n = 1 + random.below(4); n > 0; n--) header[random.below(header.length)] = random.below(256)
    survives(() => parseHeader('fuzz', header, file.length))
  }
})
