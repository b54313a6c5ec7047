import { Mismatch } from '../core/index.ts'
import { emaUpdate, isFloating, keep, type Tensor, tidyNoGrad } from '../tensor/index.ts'
import { sameKind } from './grouping.ts'

interface EmaOptions {
  /** Share of itself that the copy keeps at an update. */
  decay: number
  /** Optimizer steps between updates. */
  every?: number
}

/**
 * An exponential moving average of named tensors: e = decay * e + (1 - decay) * source. Its tensors are float32 (float64 for
 * float64 sources) whatever the sources are: in bfloat16 a step of 0.001 is rounded away and the average never follows.
 */
export class Ema {
  readonly decay: number
  readonly every: number
  readonly #weights = new Map<string, Tensor>()

  constructor(source: ReadonlyMap<string, Tensor>, options: EmaOptions) {
    this.decay = options.decay
    this.every = options.every ?? 1
    if (!(this.decay >= 0 && this.decay < 1))
      throw new Mismatch({ where: 'ema', field: 'decay', expected: 'from 0 to below 1', got: this.decay })
    if (!Number.isInteger(this.every) || this.every < 1)
      throw new Mismatch({ where: 'ema', field: 'every', expected: 'a whole number from 1', got: this.every })
    for (const [name, t] of source) this.#weights.set(name, keep(copyOf(name, t)))
  }

  /** The averaged tensors by name; they belong to this object. */
  get weights(): ReadonlyMap<string, Tensor> {
    return this.#weights
  }

  /** Follows the source after optimizer step `globalStep` (1 is the first); false when it is not the turn. */
  update(source: ReadonlyMap<string, Tensor>, globalStep = this.every): boolean {
    if (globalStep % this.every !== 0) return false
    const pairs = [...this.#weights].map(([name, own]) => [own, sourceOf(name, own, source)] as const)
    tidyNoGrad(() => {
      for (const some of sameKind(pairs, ([own]) => own)) {
        const targets = some.map(([own]) => own)
        const sources = some.map(([own, t]) => (t.dtype === own.dtype ? t : t.to(own.dtype)))
        emaUpdate(targets, sources, this.decay)
      }
    })
    return true
  }

  /** Puts saved tensors back, exactly. */
  load(state: ReadonlyMap<string, Tensor>): void {
    const extra = [...state.keys()].find((name) => !this.#weights.has(name))
    if (extra !== undefined)
      throw new Mismatch({ where: 'ema', field: extra, expected: 'a name of this EMA', got: 'another' })
    for (const [name, own] of this.#weights) tidyNoGrad(() => void own.copy_(sourceOf(name, own, state)))
  }

  dispose(): void {
    for (const t of this.#weights.values()) t.dispose()
    this.#weights.clear()
  }
}

function copyOf(name: string, t: Tensor): Tensor {
  if (!isFloating(t.dtype))
    throw new Mismatch({ where: 'ema', field: name, expected: 'a floating dtype', got: t.dtype })
  const dtype = t.dtype === 'float64' ? 'float64' : 'float32'
  return tidyNoGrad(() => t.detach().to(dtype, { copy: true }).contiguous())
}

function sourceOf(name: string, own: Tensor, source: ReadonlyMap<string, Tensor>): Tensor {
  const t = source.get(name)
  if (!t) throw new Mismatch({ where: 'ema', field: name, expected: 'a tensor', got: 'none' })
  if (t.shape.join() !== own.shape.join())
    throw new Mismatch({ where: 'ema', field: name, expected: `[${own.shape}]`, got: `[${t.shape}]` })
  return t
}
