// Mutations of bytes that know about numbers: fields are overwritten with the values at which readers go wrong.
import type { RandomStream } from '../../src/core/index.ts'

/** Lengths, counts and offsets at the edges of what a field can say. */
export function edgeNumber(random: RandomStream, near = 0): number {
  const edges = [
    0,
    1,
    2,
    3,
    7,
    8,
    255,
    256,
    65_535,
    65_536,
    2 ** 24,
    2 ** 31 - 1,
    2 ** 31,
    2 ** 32 - 1,
    1e9,
    2 ** 40,
    2 ** 53,
  ]
  const choice = random.below(6)
  if (choice === 0) return near + random.below(17) - 8
  if (choice === 1) return -1 - random.below(3)
  if (choice === 2) return near * 2
  if (choice === 3) return -random.pick(edges)
  return random.pick(edges)
}

/** Overwrites a little-endian field in place. */
export function setNumber(bytes: Buffer, at: number, width: 1 | 2 | 4 | 8, value: number): void {
  if (at < 0 || at + width > bytes.length) return
  const whole = BigInt(Math.trunc(value))
  if (width === 8) bytes.writeBigInt64LE(BigInt.asIntN(64, whole), at)
  else if (width === 4) bytes.writeInt32LE(Number(BigInt.asIntN(32, whole)), at)
  else if (width === 2) bytes.writeInt16LE(Number(BigInt.asIntN(16, whole)), at)
  else bytes.writeInt8(Number(BigInt.asIntN(8, whole)), at)
}

/** One field of a stretch, at a multiple of its width, set to an edge. */
export function damageField(bytes: Buffer, from: number, to: number, random: RandomStream): string {
  const width = random.pick([1, 2, 4, 4, 4, 8, 8] as const)
  const places = Math.max(1, Math.floor((to - from) / width))
  const at = from + random.below(places) * width
  const near = width === 4 && at + 4 <= bytes.length ? bytes.readInt32LE(at) : 0
  const value = edgeNumber(random, near)
  setNumber(bytes, at, width, value)
  return `${width} bytes at ${at} = ${value}`
}

/** Bits, cuts, holes, repeats: damage that knows nothing of the format. */
export function damageBytes(seed: Uint8Array, random: RandomStream): { bytes: Buffer; note: string } {
  const bytes = Buffer.from(seed)
  const at = random.below(bytes.length)
  const length = 1 + random.below(Math.min(64, bytes.length))
  switch (random.below(7)) {
    case 0:
      bytes[at]! ^= 1 << random.below(8)
      return { bytes, note: `bit at ${at}` }
    case 1:
      for (let i = 0; i < 1 + random.below(16); i++) bytes[random.below(bytes.length)] = random.below(256)
      return { bytes, note: 'random bytes' }
    case 2:
      return { bytes: bytes.subarray(0, at), note: `cut at ${at}` }
    case 3:
      return { bytes: Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + length)]), note: `hole at ${at}` }
    case 4:
      return { bytes: Buffer.concat([bytes.subarray(0, at + length), bytes.subarray(at)]), note: `repeat at ${at}` }
    case 5:
      return {
        bytes: Buffer.concat([bytes.subarray(0, at), Buffer.alloc(bytes.length - at)]),
        note: `zeros from ${at}`,
      }
    default:
      return { bytes, note: damageField(bytes, 0, bytes.length, random) }
  }
}
