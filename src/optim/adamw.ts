// AdamW with decoupled decay over named parameters. Moments have the parameter's dtype, float32 in training.
import { groupBy, Mismatch } from '../core/index.ts'
import {
  type AdamWNumbers,
  adamwUpdate,
  keep,
  normsOf,
  scaleAll,
  type Tensor,
  tensor,
  tidy,
  tidyNoGrad,
  zeros,
} from '../tensor/index.ts'
import type { OptimConfig } from './config.ts'
import { sameKind } from './grouping.ts'

interface ParamGroup {
  params: ReadonlyMap<string, Tensor>
  weightDecay: number
  /** Factor on the learning rate of this group. */
  lrScale?: number
}

interface AdamWOptions {
  beta1?: number
  beta2?: number
  eps?: number
  /** False: another process keeps the moments of this parameter, updates it and hands out its values. All are owned unless given. */
  owns?: (name: string) => boolean
}

interface Moments {
  readonly expAvg: Tensor
  readonly expAvgSq: Tensor
}

interface Entry {
  readonly name: string
  readonly param: Tensor
  readonly group: ParamGroup
  /** Null if another process owns the parameter. */
  readonly moments: Moments | null
  /** Updates this parameter has had; one without gradient is left out, as torch does. */
  steps: number
}

/** Norms of all gradients, and the norm of these; several devices or dtypes are combined on the host. */
export interface GradientNorms {
  readonly total: number
  readonly each: ReadonlyMap<string, number>
}

/** Biases, norms and other vectors are not decayed. */
export function decayGroups(params: ReadonlyMap<string, Tensor>, weightDecay: number, lrScale = 1): ParamGroup[] {
  const decayed = new Map<string, Tensor>()
  const rest = new Map<string, Tensor>()
  for (const [name, t] of params) (t.ndim >= 2 && !/(^|\.)bias$/.test(name) ? decayed : rest).set(name, t)
  return [
    { params: decayed, weightDecay, lrScale },
    { params: rest, weightDecay: 0, lrScale },
  ].filter((g) => g.params.size > 0)
}

/** The optimizer of a configuration, for named parameters; `scaleOf` gives the factor on the learning rate of each. */
export function adamwOf(
  params: ReadonlyMap<string, Tensor>,
  config: OptimConfig,
  scaleOf: (name: string) => number = () => 1,
  owns?: (name: string) => boolean,
): AdamW {
  const { adamBeta1: beta1, adamBeta2: beta2, adamEpsilon: eps } = config
  const byScale = new Map<number, Map<string, Tensor>>()
  for (const [name, t] of params) {
    const scale = scaleOf(name)
    byScale.set(scale, (byScale.get(scale) ?? new Map()).set(name, t))
  }
  const groups = [...byScale].flatMap(([scale, some]) => decayGroups(some, config.weightDecay, scale))
  return new AdamW(groups, { beta1, beta2, eps, owns })
}

export class AdamW {
  readonly #groups: readonly ParamGroup[]
  readonly #entries = new Map<string, Entry>()
  readonly #beta1: number
  readonly #beta2: number
  readonly #eps: number
  readonly #owns: (name: string) => boolean
  /** Norm found by the last clipGradNorm since the gradients were dropped. */
  #norm: number | null = null

  constructor(groups: readonly ParamGroup[], options: AdamWOptions = {}) {
    this.#groups = groups
    this.#beta1 = options.beta1 ?? 0.9
    this.#beta2 = options.beta2 ?? 0.999
    this.#eps = options.eps ?? 1e-8
    this.#owns = options.owns ?? (() => true)
    for (const group of groups) for (const [name, param] of group.params) this.#enter(name, param, group)
  }

  #enter(name: string, param: Tensor, group: ParamGroup): void {
    if (this.#entries.has(name))
      throw new Mismatch({ where: 'AdamW', field: name, expected: 'in one group', got: 'two' })
    if (param.dtype !== 'float32' && param.dtype !== 'float64') {
      const hint = 'a step of 1e-5 is lost in bfloat16 weights; trainOnly makes float32 masters'
      throw new Mismatch({ where: 'AdamW', field: name, expected: 'float32', got: param.dtype, hint })
    }
    const moment = () => keep(zeros([...param.shape], { dtype: param.dtype, device: param.device }))
    const moments = this.#owns(name) ? { expAvg: moment(), expAvgSq: moment() } : null
    this.#entries.set(name, { name, param, group, moments, steps: 0 })
  }

  get names(): string[] {
    return [...this.#entries.keys()]
  }

  /** Gradients by name, of the parameters that have one; fresh handles of the current scope. */
  #gradients(): { entry: Entry; grad: Tensor }[] {
    return [...this.#entries.values()].flatMap((entry) => {
      const grad = entry.param.grad()
      return grad ? [{ entry, grad }] : []
    })
  }

  /** The same by device and dtype, which are those of the parameters: asking fresh handles takes milliseconds. */
  #kinds(): { entry: Entry; grad: Tensor }[][] {
    return sameKind(this.#gradients(), ({ entry }) => entry.param)
  }

  /**
   * Scales all gradients to a total norm of maxNorm at most (0: only measures) and returns the norm before. When it is not
   * finite nothing is scaled: nonFiniteGradients() names the tensors, and step() refuses until zeroGrad().
   */
  clipGradNorm(maxNorm: number, { total }: GradientNorms = this.gradientNorms()): number {
    this.#norm = total
    if (maxNorm > 0 && Number.isFinite(total))
      tidy(() => {
        for (const some of this.#kinds()) {
          const factor = clipCoefficient(total, maxNorm, some[0]!.entry.param)
          scaleAll(
            some.map(({ grad }) => grad),
            factor,
          )
        }
      })
    return total
  }

  /** Waits for the device. */
  gradientNorms(): GradientNorms {
    return tidy(() => {
      const parts = this.#kinds().map((some) => {
        const { total, each } = normsOf(some.map((g) => g.grad))
        return { total, each: some.map(({ entry }, i) => [entry.name, each[i]!] as const) }
      })
      const [one, ...others] = parts.map(({ total }) => total)
      const total = others.length === 0 ? (one ?? 0) : Math.hypot(one!, ...others)
      return { total, each: new Map(parts.flatMap(({ each }) => each)) }
    })
  }

  /** Sets the gradients aside: the parameters have none afterwards. The tensors belong to the caller until addGradients(). */
  takeGradients(): Map<string, Tensor> {
    const taken = new Map(
      tidy(() => this.#gradients().map(({ entry, grad }) => [entry.name, keep(grad.detach().clone())] as const)),
    )
    this.zeroGrad()
    return taken
  }

  /** Adds gradients that were set aside, and frees them. */
  addGradients(taken: ReadonlyMap<string, Tensor>): void {
    tidyNoGrad(() => {
      for (const [name, aside] of taken) {
        const { param } = this.#entries.get(name)!
        const grad = param.grad()
        param.setGrad(grad ? grad.add(aside) : aside.clone())
      }
    })
    for (const t of taken.values()) t.dispose()
    this.#norm = null
  }

  /** Names of parameters whose gradient has NaN or infinity (or a norm beyond its dtype). */
  nonFiniteGradients({ each }: GradientNorms = this.gradientNorms()): string[] {
    return [...each].filter(([, norm]) => !Number.isFinite(norm)).map(([name]) => name)
  }

  /** Updates so far. */
  get steps(): number {
    return Math.max(0, ...[...this.#entries.values()].map((e) => e.steps))
  }

  /** One update with the given learning rate. */
  step(lr: number): void {
    if (this.#norm !== null && !Number.isFinite(this.#norm)) {
      const got = this.nonFiniteGradients().join(', ') || `a total norm of ${this.#norm}`
      const hint = 'skip this step: zeroGrad()'
      throw new Mismatch({ where: 'AdamW', field: 'gradients', expected: 'finite', got, hint })
    }
    tidy(() => {
      for (const some of this.#calls()) this.#update(some, lr)
    })
  }

  /** Lists that one fused call can take: same group, same step count, same device and dtype. */
  #calls(): { entry: Entry; grad: Tensor }[][] {
    const calls = groupBy(this.#gradients(), ({ entry }) => `${this.#groups.indexOf(entry.group)} ${entry.steps}`)
    return [...calls.values()].flatMap((some) => sameKind(some, ({ entry }) => entry.param))
  }

  #update(items: readonly { entry: Entry; grad: Tensor }[], lr: number): void {
    const { group, steps } = items[0]!.entry
    const h: AdamWNumbers = {
      lr: lr * (group.lrScale ?? 1),
      beta1: this.#beta1,
      beta2: this.#beta2,
      eps: this.#eps,
      weightDecay: group.weightDecay,
      step: steps + 1,
    }
    const own = items.flatMap(({ entry: { param, moments }, grad }) => (moments ? [{ param, grad, ...moments }] : []))
    const lists = {
      params: own.map((i) => i.param),
      grads: own.map((i) => i.grad),
      expAvgs: own.map((i) => i.expAvg),
      expAvgSqs: own.map((i) => i.expAvgSq),
    }
    adamwUpdate(lists, h)
    for (const { entry } of items) entry.steps++
  }

  /** Drops the gradients. */
  zeroGrad(): void {
    for (const { param } of this.#entries.values()) param.setGrad(null)
    this.#norm = null
  }

  /** NAME.exp_avg and NAME.exp_avg_sq (the live tensors of this process) and NAME.step (a new scalar). */
  state(): Map<string, Tensor> {
    const out = new Map<string, Tensor>()
    for (const { name, moments, steps } of this.#entries.values()) {
      if (moments) {
        out.set(`${name}.exp_avg`, moments.expAvg)
        out.set(`${name}.exp_avg_sq`, moments.expAvgSq)
      }
      out.set(`${name}.step`, tensor(steps, { dtype: 'int64' }))
    }
    return out
  }

  /** Restores a saved state: the run continues bit for bit. Every name must be there, and no other; moments of others are not read. */
  load(state: ReadonlyMap<string, Tensor>): void {
    const parts = ['exp_avg', 'exp_avg_sq', 'step']
    const wanted = new Set(this.names.flatMap((name) => parts.map((part) => `${name}.${part}`)))
    const missing = [...wanted].find((key) => !state.has(key))
    const extra = [...state.keys()].find((key) => !wanted.has(key))
    if (missing !== undefined)
      throw new Mismatch({ where: 'AdamW state', field: missing, expected: 'a tensor', got: 'none' })
    const expected = 'a trained parameter'
    if (extra !== undefined)
      throw new Mismatch({ where: 'AdamW state', field: extra, expected, got: 'none of that name' })
    for (const entry of this.#entries.values()) {
      if (entry.moments) {
        restore(entry.moments.expAvg, state.get(`${entry.name}.exp_avg`)!, `${entry.name}.exp_avg`)
        restore(entry.moments.expAvgSq, state.get(`${entry.name}.exp_avg_sq`)!, `${entry.name}.exp_avg_sq`)
      }
      entry.steps = state.get(`${entry.name}.step`)!.item()
    }
  }

  /** Frees the moments; the parameters belong to their model. */
  dispose(): void {
    for (const { moments } of this.#entries.values()) {
      moments?.expAvg.dispose()
      moments?.expAvgSq.dispose()
    }
    this.#entries.clear()
  }
}

function restore(own: Tensor, saved: Tensor, name: string): void {
  if (own.shape.join() !== saved.shape.join())
    throw new Mismatch({ where: 'AdamW state', field: name, expected: `[${own.shape}]`, got: `[${saved.shape}]` })
  if (own.dtype !== saved.dtype)
    throw new Mismatch({ where: 'AdamW state', field: name, expected: own.dtype, got: saved.dtype })
  tidyNoGrad(() => void own.copy_(saved))
}

/** torch's: maxNorm / (norm + 1e-6), at most 1, in the gradients' precision. */
export function clipCoefficient(norm: number, maxNorm: number, like: Tensor): number {
  const round = like.dtype === 'float64' ? (x: number) => x : Math.fround
  return Math.min(1, round(maxNorm / round(norm + 1e-6)))
}
