import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { test } from 'node:test'
import { fields } from '../../../tests/support/protobuf.ts'
import { RunWriter } from '../run-writer.ts'
import { TensorboardTracker } from './tensorboard.ts'

// A separate reader, from the format's description: bit-wise checksum.
function slowCrc(bytes: Uint8Array): number {
  let c = 0xffffffffn
  for (const byte of bytes) {
    c ^= BigInt(byte)
    for (let i = 0; i < 8; i++) c = c & 1n ? (c >> 1n) ^ 0x82f63b78n : c >> 1n
  }
  c ^= 0xffffffffn
  return Number((((c >> 15n) | ((c << 17n) & 0xffffffffn)) + 0xa282ead8n) & 0xffffffffn)
}

function records(bytes: Buffer): Buffer[] {
  const out: Buffer[] = []
  for (let at = 0; at < bytes.length; ) {
    const n = Number(bytes.readBigUInt64LE(at))
    assert.equal(bytes.readUInt32LE(at + 8), slowCrc(bytes.subarray(at, at + 8)))
    const data = bytes.subarray(at + 12, at + 12 + n)
    assert.equal(bytes.readUInt32LE(at + 12 + n), slowCrc(data))
    out.push(data)
    at += 16 + n
  }
  return out
}

interface Read {
  time: number
  step: number
  version?: string
  session?: number
  scalars: [string, number][]
}

function readEvent(bytes: Buffer): Read {
  const out: Read = { time: 0, step: 0, scalars: [] }
  for (const [field, value] of fields(bytes)) {
    if (field === 1) out.time = (value as Buffer).readDoubleLE()
    if (field === 2) out.step = Number(value)
    if (field === 3) out.version = String(value)
    if (field === 7) out.session = Number(fields(value as Buffer)[0]?.[1])
    if (field !== 5) continue
    for (const [, item] of fields(value as Buffer)) {
      const parts = new Map(fields(item as Buffer))
      if (parts.has(2)) out.scalars.push([String(parts.get(1)), (parts.get(2) as Buffer).readFloatLE()])
    }
  }
  return out
}

const readFolder = (folder: string) =>
  readdirSync(folder)
    .sort()
    .flatMap((name) => records(readFileSync(join(folder, name))))
    .map(readEvent)

test('an event file read by an independent reader gives back steps, times, tags and values', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tb-'))
  const run = { dir: folder, name: 'run', settings: {}, resumedAt: 0 }
  const writer = new TensorboardTracker(folder, run, 1_700_000_000_250)
  writer.step(1, { total_loss: 0.5, 'loop1/reward_mean': -1.25 }, 1_700_000_001_000)
  writer.step(300, { 'größe/x': Number.NaN }, 1_700_000_002_000)
  writer.step(2 ** 40, { a: 1e-3 }, 1_700_000_002_000)
  writer.close('done', 1_700_000_003_000)
  assert.match(writer.path, /events\.out\.tfevents\.1700000000\./)
  const read = readFolder(folder).filter(({ session }) => session === undefined)
  assert.deepEqual(read[0], { time: 1_700_000_000.25, step: 0, version: 'brain.Event:2', scalars: [] })
  const scalars: [string, number][] = [
    ['total_loss', 0.5],
    ['loop1/reward_mean', -1.25],
  ]
  assert.deepEqual(read[1], { time: 1_700_000_001, step: 1, scalars })
  assert.deepEqual(read[2]?.scalars, [['größe/x', Number.NaN]])
  assert.deepEqual([read[3]?.step, read[3]?.scalars[0]?.[1]], [2 ** 40, Math.fround(1e-3)])
})

test('the file of a later start has the last name, also after the clock was set back', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tb-'))
  const run = { dir: folder, name: 'run', settings: {}, resumedAt: 3 }
  const paths = [1_700_000_000_000, 1_700_000_000_900, 1_600_000_000_000].map((now) => {
    const writer = new TensorboardTracker(folder, run, now)
    writer.close('done', now)
    return writer.path
  })
  assert.deepEqual(
    readdirSync(folder).sort(),
    paths.map((path) => basename(path)),
  )
  assert.equal(new Set(paths).size, 3)
})

test('a resumed run opens a second file that takes back the steps to be redone', () => {
  const dir = mkdtempSync(join(tmpdir(), 'tb-'))
  const options = { tensorboard: true }
  const first = RunWriter.create(dir, { config: {}, environment: {}, ...options })
  for (let step = 1; step <= 5; step++) first.step(step, { a: step })
  first.close()
  const again = RunWriter.resume(dir, 3, undefined, options)
  again.eval(3, 'x', 4, { 'mask/giou': { mean: 0.75, low: 0, high: 1 } })
  again.close()
  const names = readdirSync(join(dir, 'tensorboard'))
  assert.equal(names.length, 2)
  const events = readFolder(join(dir, 'tensorboard'))
  const session = events.find((e) => e.session !== undefined)
  assert.deepEqual([session?.session, session?.step], [1, 4])
  assert.deepEqual(events.find((e) => e.scalars[0]?.[0] === 'eval/mask/giou')?.scalars, [['eval/mask/giou', 0.75]])
})
