// The GPT-2 byte alphabet: printable bytes stand for themselves, the other 68 take the code points from 256 on.

function buildAlphabet(): string[] {
  const printable = (b: number) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255)
  const alphabet: string[] = []
  let next = 256
  for (let b = 0; b < 256; b++) alphabet.push(String.fromCodePoint(printable(b) ? b : next++))
  return alphabet
}

/** The character of each byte. */
export const byteAlphabet: readonly string[] = buildAlphabet()

const byteOf = new Map(byteAlphabet.map((character, byte) => [character, byte]))
const utf8 = new TextEncoder()

/** The alphabet in the order of GPT-2's vocabulary: printable bytes first; these are the ids 0 to 255 of Qwen2. */
export function baseVocabulary(): string[] {
  return [...byteAlphabet].sort((a, b) => rankOf(a) - rankOf(b))
}

function rankOf(character: string): number {
  return character.codePointAt(0)!
}

/** Bytes of a byte-level token; a token with a character outside the alphabet stands for its own text. */
export function byteLevelBytes(token: string): Uint8Array {
  const bytes: number[] = []
  for (const character of token) {
    const byte = byteOf.get(character)
    if (byte === undefined) return utf8.encode(token)
    bytes.push(byte)
  }
  return Uint8Array.from(bytes)
}

/** Text of bytes; an invalid sequence becomes U+FFFD, a byte order mark stays. */
export function lossyText(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
}

export function joinBytes(parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}
