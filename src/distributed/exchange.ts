// Small messages between ranks: one frame of fixed size each, more only where a message is longer. Gloo aborts the process when
// sizes differ, so nothing of free size is sent before the frames have agreed on what is being sent.
import { keep, type Tensor, tensor, typedArray, zeros } from '../tensor/index.ts'
import { Divergence } from './failure.ts'
import type { Link } from './link.ts'

const kinds = ['sum', 'gather', 'agree', 'barrier', 'gradients', 'broadcast'] as const
export type Kind = (typeof kinds)[number]

// Frame, in bytes: number of the call (8), kind (8), length of the message (8), then the message as far as it fits.
const frameBytes = 512
const headBytes = 24

interface Frame {
  number: number
  kind: Kind
  length: number
  inline: Uint8Array
}

export class Exchange {
  readonly #link: Link
  readonly #own: Tensor
  readonly #all: Tensor[]
  #calls = 0

  constructor(link: Link) {
    this.#link = link
    const frame = () => keep(zeros([frameBytes], { dtype: 'uint8' }))
    this.#own = frame()
    this.#all = Array.from({ length: link.place.size }, frame)
  }

  /** Every rank's message, by rank. The caller sees to it that one exchange follows another. */
  async all(kind: Kind, message: Uint8Array): Promise<Uint8Array[]> {
    const frames = await this.#frames(kind, message)
    requireSameCall(frames)
    const longest = Math.max(...frames.map((frame) => frame.length))
    if (longest <= frameBytes - headBytes) return frames.map(({ inline, length }) => inline.slice(0, length))
    const whole = await this.#gatherBytes(message, longest)
    return whole.map((bytes, rank) => bytes.subarray(0, frames[rank]!.length))
  }

  async #frames(kind: Kind, message: Uint8Array): Promise<Frame[]> {
    const bytes = new Uint8Array(frameBytes)
    const head = new Float64Array(bytes.buffer, 0, 3)
    head.set([++this.#calls, kinds.indexOf(kind), message.length])
    bytes.set(message.subarray(0, frameBytes - headBytes), headBytes)
    const fresh = tensor(bytes, { dtype: 'uint8' })
    this.#own.copy_(fresh)
    fresh.dispose()
    await this.#link.allGather(this.#own, this.#all)
    return this.#all.map((one) => readFrame(one.array() as Uint8Array))
  }

  async #gatherBytes(message: Uint8Array, length: number): Promise<Uint8Array[]> {
    const padded = typedArray('uint8', length) as Uint8Array
    padded.set(message)
    const input = keep(tensor(padded, { dtype: 'uint8' }))
    const outputs = this.#all.map(() => keep(zeros([length], { dtype: 'uint8' })))
    try {
      await this.#link.allGather(input, outputs)
      return outputs.map((one) => one.array() as Uint8Array)
    } finally {
      for (const one of [input, ...outputs]) one.dispose()
    }
  }

  dispose(): void {
    for (const one of [this.#own, ...this.#all]) one.dispose()
  }
}

function readFrame(bytes: Uint8Array): Frame {
  const [number, kind, length] = new Float64Array(bytes.slice(0, headBytes).buffer)
  return { number: number!, kind: kinds[kind!]!, length: length!, inline: bytes.subarray(headBytes) }
}

function requireSameCall(frames: readonly Frame[]): void {
  const name = ({ kind, number }: Frame) => `${kind} (call ${number})`
  const first = name(frames[0]!)
  const other = frames.findIndex((frame) => name(frame) !== first)
  if (other < 0) return
  throw new Divergence(`ranks do different things: rank 0 is at ${first}, rank ${other} at ${name(frames[other]!)}`)
}
