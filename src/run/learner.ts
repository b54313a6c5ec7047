// The model in its three roles. Policy: the weights that train. EMA copy: answers back, never trains. Reference: the start, for the
// KL term. Frozen weights are shared by all; a role is a set of trainable tensors that replaces theirs.
import { assert, Mismatch } from '../core/index.ts'
import {
  alone,
  type Gathered,
  gatherOwned,
  ownersOf,
  shareOwned,
  type World,
  wholeState,
} from '../distributed/index.ts'
import { knownPrefixes, slowPathLog, TrainingLayers } from '../llm/index.ts'
import { type AdapterSite, defaultTrainGroups, type Family, isLanguage, type TrainGroup } from '../models/index.ts'
import {
  type AdapterState,
  addLora,
  CastCopies,
  linears,
  MergedWeights,
  type Slot,
  selectSlots,
  targetRule,
  tensorAt,
  trainOnly,
  withMergedLora,
  withWeights,
} from '../nn/index.ts'
import { type AdamW, adamwOf, Ema, type GradientNorms } from '../optim/index.ts'
import type { CopiedRole, Roles } from '../rl/index.ts'
import { keep, noGrad, type Tensor, tidy, tidyNoGrad } from '../tensor/index.ts'
import type { RunConfig } from './config.ts'
import { deviceOf } from './device.ts'
import { samplingOf } from './gpu-plan.ts'
import type { SamplingChoice } from './memory-plan.ts'

export interface GroupCount {
  group: string
  tensors: number
  elements: number
}

export interface LearnerOptions {
  dropout?: number
  /** Every weight learns, without adapters. */
  everything?: boolean
  /** The processes that train together; alone unless given. */
  world?: World
  /** How many the memory is planned for, if not those of `world`. */
  processes?: number
}

export class Learner implements Roles {
  readonly family: Family
  readonly slots: readonly Slot[]
  readonly optim: AdamW
  readonly ema: Ema
  /** The KL reference where it follows the policy (syncRefModel); null: it is the start. */
  readonly reference: Ema | null
  readonly adapter: AdapterState | null
  /** Where the adapters are; null without them. */
  readonly adapterSite: AdapterSite | null
  readonly #groups: ReadonlyMap<string, readonly Slot[]>
  /** Start values of what trains, adapters left out while they start at zero. */
  readonly #start: ReadonlyMap<string, Tensor>
  readonly #startSlots: readonly Slot[]

  /** Process that keeps moments, EMA copy and start values of each trained tensor; null: every process keeps all. */
  readonly #owners: ReadonlyMap<string, number> | null
  readonly #rank: number
  /** Copies of a role that are whole at the moment, where each process keeps a part. */
  readonly #gathered = new Map<CopiedRole, ReadonlyMap<string, Tensor>>()
  /** How the adapters of policy and EMA copy sample. */
  readonly sampling: SamplingChoice
  /** On a device with graph capture merged weights keep their buffers; elsewhere they are freed after use. */
  readonly #mergedWeights: MergedWeights | undefined
  /** Of the weights that train beside adapters, from the first sampling on. */
  #casts: CastCopies | null = null
  /** Activations are narrower than these weights. */
  readonly #castsWeights: boolean

  constructor(family: Family, config: RunConfig, options: LearnerOptions = {}) {
    this.family = family
    const trained = trainedGroups(family, config.train)
    const withLora = trained.includes('lora') && !options.everything
    this.adapterSite = withLora ? siteOf(family, config) : null
    this.adapter = this.adapterSite && attach(this.adapterSite, config, options.dropout ?? 0)
    const groups: [string, readonly RegExp[]][] = options.everything
      ? [['all', [/./]]]
      : trained.map((g) => [g, patternsOf(family, g)])
    this.slots = trainOnly(
      family.module,
      groups.flatMap(([, patterns]) => patterns),
    )
    if (isLanguage(family)) TrainingLayers.open(family.model.decoder) // moves the weights before anything captures their addresses
    this.#groups = new Map(groups.map(([g, patterns]) => [g, selectSlots(family.module, patterns)]))
    const scales = new Map(
      [...this.#groups].flatMap(([group, slots]) =>
        slots.map((s) => [s.name, config.lrScale[group as keyof RunConfig['lrScale']] ?? 1]),
      ),
    )
    const { rank, size } = options.world ?? alone
    this.sampling = samplingOf(config, family, options.processes ?? size)
    this.#mergedWeights = deviceOf(config).device.startsWith('cuda') ? new MergedWeights() : undefined
    this.#owners = config.splitMoments && size > 1 ? ownersOf(this.params(), size) : null
    this.#rank = rank
    const own = this.ownedOf(this.params())
    this.optim = adamwOf(
      this.params(),
      config.optim,
      (name) => scales.get(name)!,
      (name) => own.has(name),
    )
    this.ema = new Ema(own, { decay: config.optim.emaDecay })
    const { syncRefModel, refModelMixupAlpha, refModelSyncSteps } = config.rl
    this.reference = syncRefModel ? new Ema(own, { decay: 1 - refModelMixupAlpha, every: refModelSyncSteps }) : null
    this.#startSlots = this.slots.filter((s) => !/\.lora_[AB]\./.test(s.name))
    const started = this.#startSlots.filter((s) => own.has(s.name))
    this.#start = new Map(started.map((s) => [s.name, keep(tidyNoGrad(() => tensorAt(s).detach().clone()))]))
    this.#castsWeights = deviceOf(config).dtype !== 'float32' && !options.everything
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
    return new Set(this.#groups.get(group)?.map((s) => s.name))
  }

  /** Runs `fn` with the EMA copy's weights, without gradient. */
  asEma<R>(fn: () => R): R {
    return noGrad(() => withWeights(this.slots, this.copyOf('ema'), () => knownPrefixes.apart(fn)))
  }

  whileSampling<R>(fn: () => R): R {
    return knownPrefixes.during(fn)
  }

  /** Merged anew each time: what is in place may be the policy or the EMA copy, and moves with every update. */
  forSampling<R>(fn: () => R): R {
    const draw = () => slowPathLog.whileSampling(() => knownPrefixes.during(fn))
    const sample = () => (this.#castsWeights ? this.#whileCast(draw) : draw())
    const merges = this.sampling.weights === 'merged'
    return merges ? withMergedLora(this.family.module, sample, this.#mergedWeights) : noGrad(sample)
  }

  #whileCast<R>(fn: () => R): R {
    const weights = this.#startSlots.map(tensorAt)
    this.#casts ??= new CastCopies(weights, 'bfloat16')
    return this.#casts.during(weights, fn)
  }

  /** After an update: the EMA copy takes its small step, and a reference that moves its larger one when it is the turn. */
  follow(): void {
    const params = this.params()
    this.ema.update(params)
    this.reference?.update(params, this.optim.steps)
  }

  async share(world: World): Promise<void> {
    if (this.#owners) await shareOwned(world, this.params(), this.#owners)
  }

  /** Tensors by name without those that other processes keep; names that are not trained stay, to be reported. */
  ownedOf(tensors: ReadonlyMap<string, Tensor>): ReadonlyMap<string, Tensor> {
    const owners = this.#owners
    if (!owners) return tensors
    return new Map([...tensors].filter(([name]) => (owners.get(name) ?? this.#rank) === this.#rank))
  }

  /** The copy of a role: whole inside `whileWhole`, else what this process keeps of it. */
  copyOf(role: CopiedRole): ReadonlyMap<string, Tensor> {
    const own = role === 'ema' ? this.ema.weights : (this.reference?.weights ?? this.#start)
    return this.#gathered.get(role) ?? own
  }

  async whileWhole<R>(role: CopiedRole, world: World, fn: () => R | Promise<R>): Promise<R> {
    if (!this.#owners) return fn()
    const own = this.copyOf(role)
    const like = new Map((own === this.#start ? this.#startSlots : this.slots).map((s) => [s.name, tensorAt(s)]))
    const { tensors, release } = await gatherOwned(world, own, like, this.#owners)
    this.#gathered.set(role, tensors)
    try {
      return await fn()
    } finally {
      this.#gathered.delete(role)
      release()
    }
  }

  /** The optimizer's whole state, also where moments are split; `release` it after use. */
  async optimizerState(world: World): Promise<Gathered> {
    const own = this.optim.state()
    const steps = [...own].filter(([key]) => key.endsWith('.step')).map(([, t]) => keep(t))
    const whole = this.#owners ? await wholeState(world, own, this.params(), this.#owners) : null
    const release = () => {
      whole?.release()
      for (const t of steps) t.dispose()
    }
    return { tensors: whole?.tensors ?? own, release }
  }

  /** Runs `fn` with the reference's weights. At the start: adapters off, the other trainables as they were. Without gradient. */
  asReference<R>(fn: () => R): R {
    const { adapter, reference } = this
    if (reference) return noGrad(() => withWeights(this.slots, this.copyOf('reference'), fn))
    const was = adapter?.enabled ?? false
    try {
      if (adapter) adapter.enabled = false
      return noGrad(() => withWeights(this.#startSlots, this.copyOf('reference'), fn))
    } finally {
      if (adapter) adapter.enabled = was
    }
  }

  get start(): ReadonlyMap<string, Tensor> {
    return this.#start
  }

  /** In float64 on the CPU; on a GPU from the given ones, because computing each again would wait for the device. */
  gradNorms({ each }: GradientNorms): Record<string, number> {
    const squareOf = (slot: Slot) => {
      const grad = tensorAt(slot).device === 'cpu' ? tensorAt(slot).grad() : null
      return grad ? grad.to('float64').square().sum().item() : (each.get(slot.name) ?? 0) ** 2
    }
    const normOf = (slots: readonly Slot[]) => Math.sqrt(slots.reduce((sum, slot) => sum + squareOf(slot), 0))
    return Object.fromEntries([...this.#groups].map(([group, slots]) => [group, tidy(() => normOf(slots))]))
  }

  dispose(): void {
    this.#mergedWeights?.dispose()
    this.#casts?.dispose()
    this.optim.dispose()
    this.ema.dispose()
    this.reference?.dispose()
    for (const t of this.#start.values()) t.dispose()
  }
}

/** The default means every group of it that the family has: Qwen-VL has no group for its frozen projector. */
function trainedGroups(family: Family, wanted: readonly TrainGroup[]): readonly TrainGroup[] {
  const isDefault = wanted.length === defaultTrainGroups.length && defaultTrainGroups.every((g) => wanted.includes(g))
  return isDefault ? wanted.filter((group) => Object.hasOwn(family.groups, group)) : wanted
}

function patternsOf(family: Family, group: string): readonly RegExp[] {
  const patterns = family.groups[group]
  if (patterns) return patterns
  const expected = `groups of a ${family.name}: ${Object.keys(family.groups).join(', ')}`
  throw new Mismatch({ where: 'settings', field: 'train', expected, got: group })
}

/** Where `lora.targets` puts adapters. PEFT wraps the whole model if the projector has some, else what the family names. */
function siteOf(family: Family, { lora, train }: RunConfig): AdapterSite {
  patternsOf(family, 'lora') // a family without adapters is reported by its groups
  assert(isLanguage(family), 'a family with the group lora has a language model')
  const { module, adapter, groups } = family
  const { root, projector, targets: isDefault } = adapter
  const isTarget = targetRule(lora.targets, { root, isDefault, projector })
  const chosen = linears(module).flatMap(([name]) => (isTarget(name) ? [name] : []))
  const refuse = (expected: string, got: string) =>
    new Mismatch({ where: 'settings', field: 'lora.targets', expected, got })
  if (chosen.length === 0) throw refuse('layers of the language model or its projector', `${lora.targets}, no match`)
  const whole = train.find((group) => group !== 'lora' && chosen.some((name) => groups[group]?.some((p) => p.test(`${name}.weight`)))) // biome-ignore format: one line
  if (whole && lora.targets !== null)
    throw refuse(`layers that do not train as a whole (${whole} is in train)`, lora.targets)
  if (!chosen.some((name) => projector?.test(name))) return { ...adapter, targets: (path) => isTarget(root + path) }
  const names = { ours: '', file: 'base_model.model.', adapter: null }
  return { ...adapter, on: module, root: '', targets: isTarget, names }
}

function attach({ on, targets, width }: AdapterSite, config: RunConfig, dropout: number): AdapterState {
  const { rank, alpha } = config.lora
  if (rank > width) {
    const expected = `at most the hidden size ${width}`
    throw new Mismatch({ where: 'settings', field: 'lora.rank', expected, got: rank })
  }
  return addLora(on, targets, { rank, alpha, dropout, seed: config.seed })
}
