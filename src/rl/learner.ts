// The model in its three roles. Policy: the weights that train. EMA copy: answers back, never trains. Reference: the start, for the
// KL term. Frozen weights are shared by all; a role is a set of trainable tensors that stands in their place.
import { Mismatch } from '../core/index.ts'
import { type Loaded, loraTargets } from '../models/index.ts'
import { type AdapterState, addLora, type Slot, selectSlots, tensorAt, trainOnly, withWeights } from '../nn/index.ts'
import { type AdamW, adamwOf, Ema } from '../optim/index.ts'
import { keep, noGrad, type Tensor, tidy } from '../tensor/index.ts'
import { type RunConfig, type TrainGroup, trainGroups } from './run-config.ts'

/** `all`: every weight, encoders included. */
export type LearnedGroup = TrainGroup | 'all'

export interface GroupCount {
  group: LearnedGroup
  tensors: number
  elements: number
}

export class Learner {
  readonly loaded: Loaded
  readonly slots: readonly Slot[]
  readonly optim: AdamW
  readonly ema: Ema
  /** The KL reference where it follows the policy (syncRefModel); null: it is the start. */
  readonly reference: Ema | null
  readonly adapter: AdapterState | null
  readonly #groups: ReadonlyMap<LearnedGroup, readonly Slot[]>
  /** Start values of what trains, adapters left out while they start at zero. */
  readonly #start: ReadonlyMap<string, Tensor>
  readonly #startSlots: readonly Slot[]

  constructor(loaded: Loaded, config: RunConfig, options: { dropout?: number; everything?: boolean } = {}) {
    this.loaded = loaded
    const withLora = config.train.includes('lora') && !options.everything
    this.adapter = withLora ? attach(loaded, config, options.dropout ?? 0) : null
    const groups: [LearnedGroup, readonly RegExp[]][] = options.everything
      ? [['all', [/./]]]
      : config.train.map((g) => [g, trainGroups[g]])
    this.slots = trainOnly(
      loaded.model,
      groups.flatMap(([, patterns]) => patterns),
    )
    this.#groups = new Map(groups.map(([g, patterns]) => [g, selectSlots(loaded.model, patterns)]))
    const scales = new Map(
      [...this.#groups].flatMap(([group, slots]) =>
        slots.map((s) => [s.name, group === 'all' ? 1 : config.lrScale[group]]),
      ),
    )
    this.optim = adamwOf(this.params(), config.optim, (name) => scales.get(name)!)
    this.ema = new Ema(this.params(), { decay: config.optim.emaDecay })
    const { syncRefModel, refModelMixupAlpha, refModelSyncSteps } = config.rl
    this.reference = syncRefModel
      ? new Ema(this.params(), { decay: 1 - refModelMixupAlpha, every: refModelSyncSteps })
      : null
    this.#startSlots = this.slots.filter((s) => !/\.lora_[AB]\./.test(s.name))
    this.#start = new Map(
      this.#startSlots.map((s) => [s.name, keep(noGrad(() => tidy(() => tensorAt(s).detach().clone())))]),
    )
  }

  params(): Map<string, Tensor> {
    return new Map(this.slots.map((s) => [s.name, tensorAt(s)]))
  }

  counts(): GroupCount[] {
    return [...this.#groups].map(([group, slots]) => ({
      group,
      tensors: slots.length,
      elements: slots.reduce((n, s) => n + tensorAt(s).numel, 0),
    }))
  }

  namesOf(group: string): Set<string> {
    return new Set(this.#groups.get(group as LearnedGroup)?.map((s) => s.name))
  }

  /** Runs `fn` with the EMA copy's weights, without gradient. */
  asEma<R>(fn: () => R): R {
    return noGrad(() => withWeights(this.slots, this.ema.weights, fn))
  }

  /** After an update: the EMA copy takes its small step, and a reference that moves its larger one when it is the turn. */
  follow(): void {
    const params = this.params()
    this.ema.update(params)
    this.reference?.update(params, this.optim.steps)
  }

  /** Runs `fn` with the reference's weights. At the start: adapters off, the other trainables as they were. Without gradient. */
  asReference<R>(fn: () => R): R {
    const { adapter, reference } = this
    if (reference) return noGrad(() => withWeights(this.slots, reference.weights, fn))
    const was = adapter?.enabled ?? false
    try {
      if (adapter) adapter.enabled = false
      return noGrad(() => withWeights(this.#startSlots, this.#start, fn))
    } finally {
      if (adapter) adapter.enabled = was
    }
  }

  get start(): ReadonlyMap<string, Tensor> {
    return this.#start
  }

  /** Gradient norm of each group as it stands. */
  gradNorms(): Partial<Record<LearnedGroup, number>> {
    const out: Partial<Record<LearnedGroup, number>> = {}
    for (const [group, slots] of this.#groups)
      out[group] = Math.sqrt(slots.reduce((sum, s) => sum + squaredGrad(tensorAt(s)), 0))
    return out
  }

  dispose(): void {
    this.optim.dispose()
    this.ema.dispose()
    this.reference?.dispose()
    for (const t of this.#start.values()) t.dispose()
  }
}

function squaredGrad(t: Tensor): number {
  return tidy(() => {
    const g = t.grad()
    return g ? g.to('float64').square().sum().item() : 0
  })
}

function attach(loaded: Loaded, config: RunConfig, dropout: number): AdapterState {
  const { model, cfg } = loaded
  const { rank, alpha } = config.lora
  const architecture = cfg.llm.architectures[0]!
  if (rank > cfg.llm.hidden_size) {
    throw new Mismatch({
      where: 'settings',
      field: 'lora.rank',
      expected: `at most the hidden size ${cfg.llm.hidden_size}`,
      got: rank,
    })
  }
  return addLora(model.language_model, loraTargets(architecture), { rank, alpha, dropout, seed: config.seed })
}
