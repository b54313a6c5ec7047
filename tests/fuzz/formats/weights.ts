import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  openWeights,
  readAdapter,
  readAll,
  readTorch,
  readTorchBytes,
  writeSafetensors,
} from '../../../src/checkpoint/index.ts'
import { readZip } from '../../../src/checkpoint/zip.ts'
import { crc32, type RandomStream } from '../../../src/core/index.ts'
import { fixture } from '../../support/checkpoint.ts'
import { damageBytes, damageField, edgeNumber } from '../bytes.ts'
import type { Case, Format } from '../format.ts'
import { damageJson } from '../json.ts'

const golden = join(import.meta.dirname, '../../fixtures/golden')

/** Header length, header, data, each damaged or not. */
function damageSafetensors(seed: Buffer, random: RandomStream): { bytes: Buffer; note: string } {
  const length = Number(seed.readBigUInt64LE())
  const header = JSON.parse(seed.toString('utf8', 8, 8 + length)) as unknown
  const choice = random.below(10)
  if (choice < 2) return damageBytes(seed, random)
  if (choice < 3) {
    const bytes = Buffer.from(seed)
    const value = Math.trunc(edgeNumber(random, length))
    bytes.writeBigInt64LE(BigInt.asIntN(64, BigInt(value)))
    return { bytes, note: `header of ${value} bytes` }
  }
  const { text, note } = damageJson(header, random)
  const json = Buffer.from(text)
  const head = Buffer.alloc(8)
  head.writeBigUInt64LE(BigInt(json.length))
  return { bytes: Buffer.concat([head, json, seed.subarray(8 + length)]), note }
}

export const safetensors: Format = {
  name: 'safetensors',
  async setup(folder) {
    const path = join(folder, 'seed.safetensors')
    writeSafetensors(path, [
      { name: 'a.weight', dtype: 'F32', shape: [2, 3], data: new Uint8Array(24) },
      { name: 'b', dtype: 'BF16', shape: [5], data: new Uint8Array(10) },
      { name: 'empty', dtype: 'I64', shape: [0, 4], data: new Uint8Array(0) },
      { name: 'scalar', dtype: 'F64', shape: [], data: new Uint8Array(8) },
    ])
    const seed = readFileSync(path)
    return (random) => {
      const { bytes, note } = damageSafetensors(seed, random)
      return { files: { 'model.safetensors': bytes }, note, expect: 'whole' }
    }
  },
  /** The tensors taken cover the data exactly, each with the bytes its shape needs. */
  async read(folder) {
    const path = join(folder, 'model.safetensors')
    const size = readFileSync(path).length
    const weights = openWeights(path)
    let bytes = 8 + Number(readFileSync(path).readBigUInt64LE())
    for (const { data } of readAll(path).values()) bytes += data.length
    for (const name of weights.names) weights.read(name)
    return bytes === size ? 'whole' : `${bytes} of ${size} bytes`
  },
}

const payloads = [
  () => `cos\nsystem\n(S'touch ${process.env.FUZZ_CANARY}'\ntR.`,
  () => `cbuiltins\neval\n(S'open("${process.env.FUZZ_CANARY}","w")'\ntR.`,
  () => `csubprocess\nPopen\n((lS'touch'\naS'${process.env.FUZZ_CANARY}'\natR.`,
]

interface TorchSeed {
  bytes: Buffer
  pickle: { offset: number; size: number }
  /** Place of the pickle's check sum in the directory. */
  sum: number
  directory: number
}

function torchSeed(name: string): TorchSeed {
  const bytes = readFileSync(fixture(name))
  const [entry, place] = [...readZip(fixture(name))].find(([n]) => n.endsWith('/data.pkl'))!
  const nameAt = bytes.lastIndexOf(entry)
  return { bytes, pickle: place, sum: nameAt - 30, directory: bytes.indexOf(Buffer.from('504b0102', 'hex')) }
}

function damageTorch(seed: TorchSeed, random: RandomStream): Case {
  const choice = random.below(10)
  const bytes = Buffer.from(seed.bytes)
  const { offset, size } = seed.pickle
  const inside = bytes.subarray(offset, offset + size)
  if (choice < 2) {
    const damaged = damageBytes(seed.bytes, random)
    return { files: { 'm.pt': damaged.bytes }, note: damaged.note }
  }
  if (choice < 4) return { files: { 'm.pt': bytes }, note: damageField(bytes, seed.directory, bytes.length, random) }
  let note = 'payload'
  const payload = Buffer.from(random.pick(payloads)())
  if (choice === 4 && payload.length <= size) payload.copy(inside)
  else note = damageField(inside, 0, size, random)
  const mended = random.below(3) > 0
  const changed = !inside.equals(seed.bytes.subarray(offset, offset + size))
  if (mended) bytes.writeUInt32LE(crc32(inside), seed.sum)
  return { files: { 'm.pt': bytes }, note, expect: !mended && changed ? 'nothing' : undefined }
}

export const torch: Format = {
  name: 'torch',
  async setup() {
    const seeds = ['state.bin', 'wrapped.pt', 'module.pt', 'expanded.pt'].map(torchSeed)
    return (random) => damageTorch(random.pick(seeds), random)
  },
  async read(folder) {
    const path = join(folder, 'm.pt')
    const { tensors } = readTorch(path)
    for (const tensor of tensors.values()) readTorchBytes(path, tensor)
    return `${tensors.size} tensors`
  },
}

export const adapter: Format = {
  name: 'adapter',
  async setup() {
    const config = JSON.parse(readFileSync(join(golden, 'lora-tiny', 'adapter_config.json'), 'utf8')) as unknown
    const weights = readFileSync(join(golden, 'lora-tiny', 'adapter_model.safetensors'))
    return (random) => {
      const ofConfig = random.below(2) === 0
      const text = ofConfig ? damageJson(config, random) : { text: JSON.stringify(config), note: '' }
      const file = ofConfig ? { bytes: weights, note: '' } : damageSafetensors(weights, random)
      const name = random.below(8) === 0 ? 'adapter_model.bin' : 'adapter_model.safetensors'
      return { files: { 'adapter_config.json': text.text, [name]: file.bytes }, note: `${text.note}${file.note}` }
    }
  },
  async read(folder) {
    const { config, weights } = readAdapter(folder)
    for (const name of weights.names) weights.read(name)
    return `r ${config.r}, ${weights.names.length} tensors`
  },
}
