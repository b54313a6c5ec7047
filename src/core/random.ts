// Counter-based random streams (Philox 4x32-10): a value depends only on key and counter. A row does not depend on other rows,
// and a restart gives the same numbers. Key = (seed, stream id, step, record, k, ...).

const M0 = 0xd2511f53
const M1 = 0xcd9e8d57
const W0 = 0x9e3779b9
const W1 = 0xbb67ae85

/** High 32 bits of the unsigned product; every step is a 32-bit integer, which engines keep in registers. */
function mulHigh(a: number, b: number): number {
  const aLow = a & 0xffff
  const aHigh = a >>> 16
  const bLow = b & 0xffff
  const bHigh = b >>> 16
  const cross = (Math.imul(aHigh, bLow) + (Math.imul(aLow, bLow) >>> 16)) | 0
  const middle = (Math.imul(aLow, bHigh) + (cross & 0xffff)) | 0
  return (Math.imul(aHigh, bHigh) + (cross >>> 16) + (middle >>> 16)) | 0
}

/** Stream names used as keys; a new use of randomness gets a new line. */
export const streamId = {
  data: 1,
  rows: 2,
  sampling: 3,
  dropout: 4,
  maskAction: 5,
  init: 6,
  scenes: 7,
  test: 8,
} as const

export class RandomStream {
  readonly #k0: number
  readonly #k1: number
  readonly #block = new Uint32Array(4)
  #blockIndex = -1
  #next = 0

  constructor(k0: number, k1: number) {
    this.#k0 = k0 >>> 0
    this.#k1 = k1 >>> 0
  }

  /** The two words that decide all numbers of the stream. */
  get key(): readonly [number, number] {
    return [this.#k0, this.#k1]
  }

  /** The 32-bit word at a counter; any order of calls gives the same words. */
  wordAt(counter: number): number {
    const index = Math.floor(counter / 4)
    if (index !== this.#blockIndex) this.#fill(index)
    return this.#block[counter % 4]!
  }

  /** Uniform in [0, 1) with 53 bits, from the words 2i and 2i+1. */
  uniformAt(i: number): number {
    const high = this.wordAt(2 * i) >>> 5
    const low = this.wordAt(2 * i + 1) >>> 6
    return (high * 67108864 + low) / 9007199254740992
  }

  /** Standard normal by Box-Muller, from the uniforms 2i and 2i+1. */
  normalAt(i: number): number {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniformAt(2 * i)))
    return radius * Math.cos(2 * Math.PI * this.uniformAt(2 * i + 1))
  }

  // Sequential use, for callers that need no addressing.
  uniform(): number {
    return this.uniformAt(this.#next++)
  }

  normal(): number {
    const at = this.#next
    this.#next += 2
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniformAt(at)))
    return radius * Math.cos(2 * Math.PI * this.uniformAt(at + 1))
  }

  /** Integer in [0, n). */
  below(n: number): number {
    return Math.floor(this.uniform() * n)
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!
  }

  #fill(index: number): void {
    let c0 = (index >>> 0) | 0
    let c1 = Math.floor(index / 4294967296) | 0
    let c2 = 0
    let c3 = 0
    let k0 = this.#k0 | 0
    let k1 = this.#k1 | 0
    for (let round = 0; round < 10; round++) {
      const high0 = mulHigh(M0, c0)
      const low0 = Math.imul(M0, c0)
      const high1 = mulHigh(M1, c2)
      const low1 = Math.imul(M1, c2)
      c0 = high1 ^ c1 ^ k0
      c1 = low1
      c2 = high0 ^ c3 ^ k1
      c3 = low0
      k0 = (k0 + W0) | 0
      k1 = (k1 + W1) | 0
    }
    this.#block[0] = c0
    this.#block[1] = c1
    this.#block[2] = c2
    this.#block[3] = c3
    this.#blockIndex = index
  }
}

function mix(h: number, word: number): number {
  h = Math.imul(h ^ word, 0x85ebca6b)
  h ^= h >>> 13
  h = Math.imul(h, 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

/** The stream of a key: numbers and strings, order matters. */
export function stream(...key: readonly (number | string)[]): RandomStream {
  let a = 0x243f6a88
  let b = 0x85a308d3
  const feed = (word: number) => {
    a = mix((a + W0) >>> 0, word >>> 0)
    b = mix((b ^ W1) >>> 0, (word ^ a) >>> 0)
  }
  for (const part of key) {
    if (typeof part === 'number') {
      feed(part >>> 0)
      feed(Math.floor(part / 4294967296) >>> 0)
    } else {
      for (let i = 0; i < part.length; i++) feed(part.charCodeAt(i) + 0x10000)
    }
    feed(0xffffffff)
  }
  return new RandomStream(a, b)
}

/** Fisher-Yates on a copy. */
export function shuffled<T>(items: readonly T[], random: RandomStream): T[] {
  const out = items.slice()
  for (let i = out.length - 1; i > 0; i--) {
    const j = random.below(i + 1)
    const held = out[i]!
    out[i] = out[j]!
    out[j] = held
  }
  return out
}
