// A generated row ends by id (EOS is a set) or by text. In Sa2VA-4B `<|end|>` is plain text whose first `<` and last `>` merge with
// their neighbours, so no sequence of ids identifies it.
import { Mismatch } from '../core/index.ts'
import type { Tokenizer } from './base-tokenizer.ts'

const CR = 13
const LF = 10
const utf8 = new TextEncoder()

/** Follows one row, token by token. Each row of a batch needs its own. */
export class StopMatcher {
  readonly #tokenizer: Pick<Tokenizer, 'tokenBytes'>
  readonly #stopIds: ReadonlySet<number>
  readonly #stops: Uint8Array[]
  readonly #longest: number
  /** The last bytes of the row, line breaks left out. */
  #tail: number[] = []
  #stopped = false

  constructor(
    tokenizer: Pick<Tokenizer, 'tokenBytes'>,
    rule: { stopIds: ReadonlySet<number>; stopStrings: readonly string[] },
  ) {
    this.#tokenizer = tokenizer
    this.#stopIds = rule.stopIds
    this.#stops = rule.stopStrings.map(stopBytes)
    this.#longest = Math.max(0, ...this.#stops.map((stop) => stop.length))
  }

  get stopped(): boolean {
    return this.#stopped
  }

  /** 'stop' as soon as the token is an EOS or the text, without CR and LF, ends with a stop string; from then on always. */
  feed(id: number): 'go' | 'stop' {
    if (!this.#stopped) this.#stopped = this.#stopIds.has(id) || this.#endsAfter(this.#tokenizer.tokenBytes(id))
    return this.#stopped ? 'stop' : 'go'
  }

  #endsAfter(bytes: Uint8Array): boolean {
    if (this.#longest === 0) return false
    for (const byte of bytes) if (byte !== CR && byte !== LF) this.#tail.push(byte)
    this.#tail = this.#tail.slice(-this.#longest)
    return this.#stops.some((stop) => endsWith(this.#tail, stop))
  }
}

// Bytes decide as well as text: UTF-8 is self-synchronising, so a valid string is at the end of one iff of the other.
function endsWith(tail: readonly number[], stop: Uint8Array): boolean {
  const start = tail.length - stop.length
  return start >= 0 && stop.every((byte, i) => tail[start + i] === byte)
}

function stopBytes(text: string): Uint8Array {
  const bytes = utf8.encode(text.replace(/[\r\n]/g, ''))
  if (bytes.length === 0) {
    throw new Mismatch({ where: 'stop strings', expected: 'text besides line breaks', got: JSON.stringify(text) })
  }
  return bytes
}
