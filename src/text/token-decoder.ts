// From token strings back to text. Two families: byte-level (GPT-2, Qwen2) and SentencePiece with byte fallback (Llama,
// Phi-3). Own code, because the tokenizers package differs from the Rust one on invalid UTF-8 in the second family.
import { refuseAt } from '../core/index.ts'
import { byteLevelBytes, joinBytes, lossyText } from './byte-level.ts'

export interface TokenDecoder {
  /** Bytes that one token adds to the text. */
  bytesOf(token: string, isAdded: boolean): Uint8Array
  /** Text of a sequence. */
  join(tokens: readonly { token: string; isAdded: boolean }[]): string
}

/** One step of a `decoder` block of tokenizer.json; only the fields used here. */
export interface DecoderStep {
  type: string
  decoders?: DecoderStep[]
  content?: string
  start?: number
  pattern?: { String?: string }
  replacement?: string
  prepend_scheme?: string
}

const utf8 = new TextEncoder()
const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

const byteLevel: TokenDecoder = {
  bytesOf: (token, isAdded) => (isAdded ? utf8.encode(token) : byteLevelBytes(token)),
  join: (tokens) => lossyText(joinBytes(tokens.map((t) => byteLevel.bytesOf(t.token, t.isAdded)))),
}

function fallbackByte(token: string): number | undefined {
  const hex = /^<0x([0-9A-Fa-f]{2})>$/.exec(token)
  return hex ? Number.parseInt(hex[1]!, 16) : undefined
}

/** Bytes of one run of fallback tokens; if they are not valid UTF-8, each byte becomes one U+FFFD, as in the Rust package. */
function fallbackText(run: readonly number[]): string {
  try {
    return strictUtf8.decode(Uint8Array.from(run))
  } catch {
    return '\ufffd'.repeat(run.length)
  }
}

function byteFallback(space: string, stripStart: number): TokenDecoder {
  const plain = (token: string) => token.replaceAll(space, ' ')
  return {
    bytesOf(token) {
      const byte = fallbackByte(token)
      return byte === undefined ? utf8.encode(plain(token)) : Uint8Array.of(byte)
    },
    join(tokens) {
      let text = ''
      let run: number[] = []
      for (const { token } of tokens) {
        const byte = fallbackByte(token)
        if (byte !== undefined) {
          run.push(byte)
          continue
        }
        text += fallbackText(run) + plain(token)
        run = []
      }
      text += fallbackText(run)
      let cut = 0
      while (cut < stripStart && text[cut] === ' ') cut++
      return text.slice(cut)
    },
  }
}

/** The decoder a tokenizer.json asks for. */
export function tokenDecoder(step: DecoderStep | null | undefined, where: string): TokenDecoder {
  const steps = step?.type === 'Sequence' ? (step.decoders ?? []) : step ? [step] : []
  if (steps.length === 1 && steps[0]!.type === 'ByteLevel') return byteLevel
  if (steps.some((s) => s.type === 'ByteFallback')) {
    const replace = steps.find((s) => s.type === 'Replace')
    const strip = steps.find((s) => s.type === 'Strip')
    return byteFallback(replace?.pattern?.String ?? '\u2581', strip?.start ?? 0)
  }
  const hint = 'supported are Qwen2-style byte-level BPE and Llama-style BPE with byte fallback'
  return refuseAt(where)('decoder', 'ByteLevel, or a sequence with ByteFallback', step?.type ?? 'none', hint)
}
