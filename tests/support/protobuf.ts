import assert from 'node:assert/strict'

/** Fields of a protobuf message in their order, by number; from the format's description, apart from our writers. */
export function fields(bytes: Buffer): [number, bigint | Buffer][] {
  const out: [number, bigint | Buffer][] = []
  let at = 0
  const varint = () => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++]!
      value |= BigInt(byte & 127) << shift
      if (byte < 128) return value
    }
  }
  const take = (n: number) => {
    at += n
    return bytes.subarray(at - n, at)
  }
  while (at < bytes.length) {
    const key = Number(varint())
    const wire = key & 7
    assert.ok([0, 1, 2, 5].includes(wire))
    out.push([key >> 3, wire === 0 ? varint() : take(wire === 1 ? 8 : wire === 5 ? 4 : Number(varint()))])
  }
  return out
}
