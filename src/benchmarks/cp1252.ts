import { Mismatch } from '../core/index.ts'

/** Bytes 0x80 to 0x9f; a space is a byte without a character. Node 20's TextDecoder reads them as latin1. */
const upper = '€ ‚ƒ„…†‡ˆ‰Š‹Œ Ž  ‘’“”•–—˜™š›œ žŸ'

/** UTF-8, else cp1252: some of ReasonSeg's published files are. As in Python, bytes that cp1252 leaves undefined are errors. */
export function decodeText(bytes: Uint8Array, where: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return Array.from(bytes, (byte, at) => decodeByte(byte, at, where)).join('')
  }
}

function decodeByte(byte: number, at: number, where: string): string {
  const letter = upper[byte - 0x80] ?? String.fromCharCode(byte)
  if (letter !== ' ' || byte === 0x20) return letter
  const got = `0x${byte.toString(16)}`
  throw new Mismatch({ where, field: `byte ${at}`, expected: 'UTF-8, or a character of cp1252', got })
}
