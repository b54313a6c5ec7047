// For tests of this room: integer tensors out of a golden safetensors file (the checkpoint room is above this one).
import { readFileSync } from 'node:fs'

export function readInt64(path: string, name: string): number[] {
  const file = readFileSync(path)
  const headerLength = Number(file.readBigUInt64LE(0))
  const header = JSON.parse(file.toString('utf8', 8, 8 + headerLength)) as Record<
    string,
    { dtype: string; data_offsets: [number, number] }
  >
  const entry = header[name]
  if (entry?.dtype !== 'I64') throw new Error(`${path}: no int64 tensor ${name}`)
  const [start, end] = entry.data_offsets
  const out: number[] = []
  for (let at = start; at < end; at += 8) out.push(Number(file.readBigInt64LE(8 + headerLength + at)))
  return out
}
