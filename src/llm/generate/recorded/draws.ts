// Draws on the device: what a step leaves is read by the host once in a while, not after each token. R rows, S hidden, V vocabulary.
import { drawTokens, greedyTokens, suppress } from '../../../nn/index.ts'
import { aten, cuda, type DType, empty, keep, type Tensor, tensor, tidy, zeros } from '../../../tensor/index.ts'

/** States where tokens were read [R, S], and the scores of the next token [R, V]. */
export interface Scores {
  hidden: Tensor
  logits: Tensor
}

/** How tokens are chosen, the same for all rows: from softmax(scores / temperature), nothing cut off. */
export interface DrawPlan {
  /** null: greedy. */
  temperature: number | null
  /** Ids never drawn. */
  never: readonly number[]
}

export const planKey = ({ temperature, never }: DrawPlan): string => `${temperature}: ${never.join()}`

/** Steps between two looks of the host. */
export const stepsAhead = 16
/** Steps of the next ones that are started before the host looks: the device computes while the host reads and decides. */
export const leadSteps = 1

/** What some steps left, in the order of steps, then rows. */
export interface Taken {
  ids: readonly number[]
  /** Among all ids, and among those that could be drawn. */
  logps: readonly number[]
  drawnLogps: readonly number[]
  /** States where the tokens before them were read, [steps, R, S]. */
  hidden: Tensor
}

/** Where a recorded step leaves its tokens: rings of `stepsAhead` places, and a clock that counts steps. */
export class DeviceDraws {
  readonly rows: number
  readonly clock: Tensor // [1] int32
  readonly numbers: Tensor // [steps, R] float64
  readonly ids: Tensor // [steps, R] int32
  readonly logps: Tensor // [steps, R] float32
  readonly drawnLogps: Tensor
  readonly states: Tensor // [steps, R, S]
  /** Copies of ids, logps and drawnLogps on the host, in pinned memory if a device writes them. */
  readonly #copies: readonly Tensor[]

  constructor(rows: number, hidden: number, { device, dtype }: { device: string; dtype: DType }) {
    const ring = [stepsAhead, rows]
    this.rows = rows
    this.clock = keep(zeros([1], { dtype: 'int32', device }))
    this.numbers = keep(zeros(ring, { dtype: 'float64', device }))
    this.ids = keep(zeros(ring, { dtype: 'int32', device }))
    this.logps = keep(zeros(ring, { dtype: 'float32', device }))
    this.drawnLogps = keep(zeros(ring, { dtype: 'float32', device }))
    this.states = keep(empty([...ring, hidden], { dtype, device }))
    const copyOf = (t: Tensor) => empty(ring, { dtype: t.dtype, device: 'cpu' })
    const pinned = (t: Tensor) => (device.startsWith('cuda') ? aten('pin_memory', copyOf(t)) : copyOf(t))
    this.#copies = this.#rings.map((t) => keep(tidy(() => pinned(t))))
  }

  get #rings(): readonly Tensor[] {
    return [this.ids, this.logps, this.drawnLogps]
  }

  /** Part of a step: chooses from its scores, moves the clock and gives the ids to read next, [R]. `never`: the plan's ids, int64. */
  take({ hidden, logits }: Scores, temperature: number | null, never: Tensor | null): Tensor {
    const place = this.clock.remainder(stepsAhead).to('int64') // [1]
    const all = logits.div(temperature ?? 1)
    const allowed = never ? suppress(all, never) : all
    const numbers = this.numbers.indexSelect(0, place).view([this.rows, 1])
    const chosen = temperature === null ? greedyTokens(allowed) : drawTokens(allowed, numbers)
    const next = chosen.clamp({ min: 0 })
    const at = (t: Tensor) => t.logSoftmax(-1).gather(-1, next.unsqueeze(-1)).view([1, this.rows])
    this.ids.indexCopy_(0, place, chosen.to('int32').unsqueeze(0))
    this.logps.indexCopy_(0, place, at(all))
    this.drawnLogps.indexCopy_(0, place, at(allowed))
    this.states.indexCopy_(0, place, hidden.unsqueeze(0))
    this.clock.add_(1)
    return next
  }

  begin(): void {
    this.clock.fill_(0)
  }

  /** The numbers of the next steps, [steps, R]. */
  give(numbers: Float64Array): void {
    const steps = numbers.length / this.rows
    const given = () => tensor(numbers, [steps, this.rows], { device: this.numbers.device })
    tidy(() => void this.numbers.slice({ dim: 0, end: steps }).copy_(given()))
  }

  /** Copies what the last `steps` steps left, before later ones overwrite it; the result waits for these steps alone. */
  read(steps: number): () => Taken {
    const { device } = this.states
    const first = (t: Tensor) => t.slice({ dim: 0, end: steps })
    const hidden = tidy(() => first(this.states).clone())
    tidy(() => this.#rings.forEach((t, i) => void this.#copies[i]!.copy_(t, { nonBlocking: true })))
    const event = device.startsWith('cuda') ? cuda.event(device) : null
    return () => {
      if (event !== null) {
        cuda.elapsed(event, event) // waits
        cuda.freeEvent(event)
      }
      const [ids, logps, drawnLogps] = this.#copies.map((t) => tidy(() => first(t).numbers()))
      return { ids: ids!, logps: logps!, drawnLogps: drawnLogps!, hidden }
    }
  }

  dispose(): void {
    for (const t of [this.clock, this.numbers, ...this.#rings, this.states, ...this.#copies]) t.dispose()
  }
}
