// Scores of a frozen head, in chunks of rows that never leave the GPU: rows x vocabulary exists neither in float32 nor all at once.
// M rows, S hidden, V vocabulary, W the same filled up with rows of zeros, which keeps products aligned.
import type { TrainingKernels } from '../../../kernels/index.ts'
import {
  cat,
  empty,
  keep,
  products,
  savingFunction,
  type Tensor,
  tidy,
  tidyNoGrad,
  untracked,
  zeros,
} from '../../../tensor/index.ts'

/** The vocabulary is filled up to a multiple of this. */
const alignment = 64
/** Elements of a chunk of scores. */
const chunkElements = 1 << 26

export interface HeadOwner {
  weight: Tensor // [V, S]
}

export class TrainingHead {
  readonly #owner: HeadOwner
  readonly #kernels: TrainingKernels
  readonly #weight: Tensor // [W, S]; the owner's is a view of it
  readonly #handle: number
  readonly #vocabulary: number

  constructor(owner: HeadOwner, kernels: TrainingKernels) {
    const { weight } = owner
    const [V, S] = weight.shape as [number, number]
    const missing = Math.ceil(V / alignment) * alignment - V
    const { device, dtype } = weight
    this.#owner = owner
    this.#kernels = kernels
    this.#vocabulary = V
    this.#weight = keep(tidyNoGrad(() => cat([weight, zeros([missing, S], { device, dtype })])))
    weight.dispose()
    owner.weight = keep(this.#weight.narrow(0, 0, V))
    this.#handle = owner.weight.handle
  }

  get inPlace(): boolean {
    return this.#owner.weight.handle === this.#handle
  }

  /** Normed states [M, S], ids [M] -> [2, M] float32: log-probability of the id and entropy. */
  logProbs(states: Tensor, ids: Tensor, temperature: number): Tensor {
    const V = this.#vocabulary
    const score = (h: Tensor, target: Tensor) =>
      cat(
        this.#chunks(h).map(([from, n]) =>
          tidy(() => {
            const scores = this.#scores(h.narrow(0, from, n))
            return this.#kernels.scoreRows(scores, V, target.narrow(0, from, n), temperature)
          }),
        ),
        { dim: 1 },
      ) // [3, M]
    const back = (h: Tensor, target: Tensor, scored: Tensor, grad: Tensor) => {
      const out = empty([...h.shape], { dtype: h.dtype, device: h.device })
      for (const [from, n] of this.#chunks(h))
        tidy(() => {
          const scores = this.#scores(h.narrow(0, from, n))
          const part = (t: Tensor) => t.narrow(1, from, n).contiguous()
          this.#kernels.scoreBack(scores, V, target.narrow(0, from, n), temperature, part(scored), part(grad))
          products([{ a: { of: scores }, b: { of: this.#weight }, out: { of: out.narrow(0, from, n) } }])
        })
      return out
    }
    return savingFunction<[Tensor, Tensor], Tensor>(
      (h, target) =>
        untracked(() => {
          const scored = score(h, target)
          return { out: scored.narrow(0, 0, 2).clone(), saved: scored }
        }),
      ([h, target], scored, grad) => [untracked(() => back(h, target, scored, grad)), null],
    )(states, ids)
  }

  /** [M, S] -> [M, W] */
  #scores(states: Tensor): Tensor {
    return products([{ a: { of: states }, b: { of: this.#weight, transposed: true } }])[0]!
  }

  #chunks(h: Tensor): [from: number, count: number][] {
    const rows = Math.max(1, Math.floor(chunkElements / this.#weight.size(0)))
    return Array.from({ length: Math.ceil(h.size(0) / rows) }, (_, i) => [
      i * rows,
      Math.min(rows, h.size(0) - i * rows),
    ])
  }

  dispose(): void {
    this.#weight.dispose()
  }
}
