import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fixture, refuses, scratch, survives } from '../../tests/support/checkpoint.ts'
import { crc32, stream } from '../core/index.ts'
import { type DType, itemSize } from './dtype.ts'
import { readTorch, readTorchBytes } from './torch-file.ts'
import { openWeights } from './weights.ts'
import { readZip } from './zip.ts'

interface Described {
  dtype: string
  shape: number[]
  values: (number | boolean)[]
  contiguous: boolean
}
const expected = JSON.parse(readFileSync(fixture('expected.json'), 'utf8')) as Record<string, Record<string, Described>>

const dtypeOf: Record<string, DType> = {
  float32: 'F32',
  float16: 'F16',
  bfloat16: 'BF16',
  int64: 'I64',
  bool: 'BOOL',
  uint8: 'U8',
  float64: 'F64',
}

function halfValue(bits: number): number {
  const exponent = (bits >> 10) & 31
  const fraction = (bits & 1023) / 1024
  const size = exponent === 0 ? fraction * 2 ** -14 : (1 + fraction) * 2 ** (exponent - 15)
  return bits & 0x8000 ? -size : size
}

function values(dtype: DType, data: Uint8Array): (number | boolean)[] {
  const view = new DataView(data.buffer, data.byteOffset, data.length)
  const read: Partial<Record<DType, (at: number) => number | boolean>> = {
    F32: (at) => view.getFloat32(at, true),
    F64: (at) => view.getFloat64(at, true),
    F16: (at) => halfValue(view.getUint16(at, true)),
    BF16: (at) => new Float32Array(new Uint32Array([view.getUint16(at, true) << 16]).buffer)[0]!,
    I64: (at) => Number(view.getBigInt64(at, true)),
    BOOL: (at) => view.getUint8(at) !== 0,
    U8: (at) => view.getUint8(at),
  }
  const size = itemSize[dtype]
  return Array.from({ length: data.length / size }, (_, i) => read[dtype]!(i * size))
}

/** A zip of stored entries, as PyTorch lays it out; zip64 writes the wide records. */
function zip(entries: Record<string, Uint8Array>, zip64 = false): Buffer {
  const locals: Buffer[] = []
  const directory: Buffer[] = []
  let at = 0
  for (const [name, data] of Object.entries(entries)) {
    const local = Buffer.alloc(30)
    local.writeUInt32LE(0x04034b50, 0)
    local.writeUInt16LE(name.length, 26)
    const extra = Buffer.alloc(zip64 ? 28 : 0)
    const central = Buffer.alloc(46)
    central.writeUInt32LE(0x02014b50, 0)
    central.writeUInt32LE(crc32(data), 16)
    central.writeUInt32LE(zip64 ? 0xffffffff : data.length, 20)
    central.writeUInt32LE(zip64 ? 0xffffffff : data.length, 24)
    central.writeUInt16LE(name.length, 28)
    central.writeUInt16LE(extra.length, 30)
    central.writeUInt32LE(zip64 ? 0xffffffff : at, 42)
    if (zip64) {
      extra.writeUInt16LE(1, 0)
      extra.writeUInt16LE(24, 2)
      extra.writeBigUInt64LE(BigInt(data.length), 4)
      extra.writeBigUInt64LE(BigInt(data.length), 12)
      extra.writeBigUInt64LE(BigInt(at), 20)
    }
    locals.push(local, Buffer.from(name), Buffer.from(data))
    directory.push(central, Buffer.from(name), extra)
    at += 30 + name.length + data.length
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0)
  const count = Object.keys(entries).length
  const wide = zip64 ? [end64(count, size, at)] : []
  const end = Buffer.alloc(22)
  end.writeUInt32LE(0x06054b50, 0)
  end.writeUInt16LE(zip64 ? 0xffff : count, 10)
  end.writeUInt32LE(zip64 ? 0xffffffff : size, 12)
  end.writeUInt32LE(zip64 ? 0xffffffff : at, 16)
  return Buffer.concat([...locals, ...directory, ...wide, end])
}

function end64(count: number, size: number, offset: number): Buffer {
  const out = Buffer.alloc(76)
  out.writeUInt32LE(0x06064b50, 0)
  out.writeBigUInt64LE(BigInt(count), 32)
  out.writeBigUInt64LE(BigInt(size), 40)
  out.writeBigUInt64LE(BigInt(offset), 48)
  out.writeUInt32LE(0x07064b50, 56)
  out.writeBigUInt64LE(BigInt(offset + size), 64)
  return out
}

/** data.pkl of {"w": tensor} with the given description, in protocol 2. */
function tensorPickle(storage: string, count: number, offset: number, shape: string, strides: string): Buffer {
  const id = `(X\x07\x00\x00\x00storagectorch\n${storage}\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuI${count}\nt`
  const call = `ctorch._utils\n_rebuild_tensor_v2\n(${id}QI${offset}\n${shape}${strides}\x89}tR`
  return Buffer.from(`\x80\x02}X\x01\x00\x00\x00w${call}s.`, 'latin1')
}

for (const file of ['state.bin', 'wrapped.pt']) {
  test(`${file} of torch.save gives every tensor's dtype, shape and values, views and transposes too`, () => {
    const { tensors } = readTorch(fixture(file))
    assert.deepEqual([...tensors.keys()], Object.keys(expected[file]!))
    for (const [name, want] of Object.entries(expected[file]!)) {
      const got = tensors.get(name)!
      assert.equal(got.dtype, dtypeOf[want.dtype], name)
      assert.deepEqual([got.shape, got.contiguous], [want.shape, want.contiguous], name)
      assert.deepEqual(values(got.dtype, readTorchBytes(fixture(file), got)), want.values, name)
    }
  })
}

test('a state dict under model is found, the other values are named, and the offsets can be mapped', () => {
  assert.ok(readTorch(fixture('wrapped.pt')).tensors.size > 0)
  const weights = openWeights(fixture('state.bin'))
  const entry = weights.entry('float')
  assert.equal(entry.offset % 64, 0)
  assert.equal(entry.mappable, true)
  assert.equal(weights.entry('transposed').mappable, false)
  const bytes = readFileSync(fixture('state.bin'))
  assert.ok(bytes.subarray(entry.offset, entry.offset + entry.byteLength).equals(weights.read('float')))
})

test('files from before the zip format, programs, expanded views and modules are refused by name', (t) => {
  refuses(() => readTorch(fixture('legacy.pt')), /got PyTorch's format from before version 1\.6\. load it in Python/)
  refuses(() => readTorch(fixture('expanded.pt')), /weight: expected a tensor inside a storage of 4 bytes/)
  refuses(() => readTorch(fixture('module.pt')), /torch\.nn\.modules\.linear\.Linear/)
  const path = join(scratch(t), 'x.pt')
  writeFileSync(path, zip({ 'x/data.pkl': Buffer.from('N.'), 'x/constants.pkl': Buffer.from('N.') }))
  refuses(() => readTorch(path), /TorchScript/)
  writeFileSync(path, zip({ 'x/other': Buffer.from('N.') }))
  refuses(() => readTorch(path), /one entry NAME\/data\.pkl/)
  writeFileSync(path, zip({ 'x/data.pkl': Buffer.from('N.'), 'x/byteorder': Buffer.from('big') }))
  refuses(() => readTorch(path), /byteorder: expected little, got big/)
  writeFileSync(path, zip({ 'x/data.pkl': Buffer.from('}X\x01\x00\x00\x00aNs.', 'latin1') }))
  refuses(() => readTorch(path), /a dict of tensors, .*got keys a/)
  writeFileSync(path, zip({ 'x/data.pkl': Buffer.from('cposix\nsystem\n.') }))
  refuses(() => readTorch(path), /GLOBAL at byte 0.*posix\.system/)
  writeFileSync(path, 'garbage, not a zip')
  refuses(() => readTorch(path), /got other bytes/)
})

test('a tensor must lie inside its storage, whatever its description says', (t) => {
  const path = join(scratch(t), 'x.pt')
  const data = new Uint8Array(64)
  const write = (pickle: Buffer) => writeFileSync(path, zip({ 'x/data.pkl': pickle, 'x/data/0': data }))
  write(tensorPickle('FloatStorage', 16, 0, '(I4\nI4\nt', '(I4\nI1\nt'))
  assert.deepEqual(readTorch(path).tensors.get('w')!.shape, [4, 4])
  const bad: [Buffer, RegExp][] = [
    [tensorPickle('FloatStorage', 16, 1, '(I4\nI4\nt', '(I4\nI1\nt'), /inside a storage/],
    [tensorPickle('FloatStorage', 17, 0, '(I4\nI4\nt', '(I4\nI1\nt'), /storage 0 of 68 bytes, got 64 bytes/],
    [tensorPickle('FloatStorage', 16, 0, '(I4\nI4\nt', '(I9999999999\nI1\nt'), /inside a storage/],
    [tensorPickle('FloatStorage', 16, 0, '(I9007199254740991\nI9007199254740991\nt', '(I0\nI0\nt'), /inside a storage/],
    [tensorPickle('FloatStorage', 16, 0, '(I4\nI4\nt', '(I4\nt'), /strides of the same length/],
    [tensorPickle('FloatStorage', 16, -1, '(I4\nt', '(I1\nt'), /an offset, a shape/],
    [tensorPickle('QInt8Storage', 16, 0, '(I4\nt', '(I1\nt'), /torch\.QInt8Storage/],
    [tensorPickle('float32', 16, 0, '(I4\nt', '(I1\nt'), /a known storage class/],
  ]
  for (const [pickle, text] of bad) {
    write(pickle)
    refuses(() => readTorch(path), text)
  }
})

test('zip64 files are read, damaged and compressed entries are refused', (t) => {
  const path = join(scratch(t), 'x.zip')
  const pickle = tensorPickle('FloatStorage', 4, 0, '(I4\nt', '(I1\nt')
  const entries = { 'x/data.pkl': pickle, 'x/data/0': new Uint8Array(16).fill(9) }
  writeFileSync(path, zip(entries, true))
  assert.deepEqual([...readZip(path).keys()], ['x/data.pkl', 'x/data/0'])
  const tensor = readTorch(path).tensors.get('w')!
  assert.ok(readTorchBytes(path, tensor).every((v) => v === 9))
  const bytes = zip(entries)
  const directory = bytes.indexOf(Buffer.from([0x50, 0x4b, 1, 2]))
  const changed = (at: number, value: number) => {
    const copy = Buffer.from(bytes)
    copy[at] = value
    writeFileSync(path, copy)
  }
  changed(directory + 10, 8)
  refuses(() => readZip(path), /x\/data\.pkl: expected a stored entry, got compression method 8/)
  changed(directory + 8, 1)
  refuses(() => readZip(path), /an encrypted one/)
  changed(40, 0x4e)
  refuses(() => readTorch(path), /data\.pkl: expected its check sum/)
  writeFileSync(path, zip({ a: new Uint8Array(1), 'b/data.pkl': new Uint8Array(1) }).subarray(0, 60))
  refuses(() => readZip(path), /end of central directory/)
})

test('a torch file cut anywhere is refused, and 600 damaged ones give tensors or a Mismatch', (t) => {
  const path = join(scratch(t), 'fuzz.bin')
  const bytes = readFileSync(fixture('state.bin'))
  for (let keep = 0; keep < bytes.length; keep += 181) {
    writeFileSync(path, bytes.subarray(0, keep))
    assert.equal(
      survives(() => readTorch(path)),
      false,
      `${keep} bytes`,
    )
  }
  const random = stream('torch fuzz')
  const readable = zip({
    'x/data.pkl': tensorPickle('FloatStorage', 4, 0, '(I4\nt', '(I1\nt'),
    'x/data/0': new Uint8Array(16),
  })
  for (let i = 0; i < 600; i++) {
    const copy = Buffer.from(i % 2 ? bytes : readable)
    for (let n = 1 + random.below(3); n > 0; n--) copy[random.below(copy.length)] = random.below(256)
    writeFileSync(path, copy)
    survives(() => {
      for (const tensor of readTorch(path).tensors.values()) readTorchBytes(path, tensor)
    })
  }
})
