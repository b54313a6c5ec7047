// Supervised fine-tuning as a run: the same folder, checkpoints, resume and evaluation as train, and a full model folder at the end.
import { Mismatch, stream, streamId } from '../core/index.ts'
import type { Example } from '../data/index.ts'
import { alone, type World } from '../distributed/index.ts'
import type { GroundedFamily } from '../models/index.ts'
import { requireGrounded, type SupervisedRecord, supervisedLoss } from '../tasks/index.ts'
import { backward, clearTape, manualSeed, tidy } from '../tensor/index.ts'
import type { Metrics } from '../tracking/index.ts'
import type { RunConfig } from './config.ts'
import type { Host, RunResult } from './host.ts'
import { type Opened, runLoop, type StepLog, type Work, type WorkState } from './loop.ts'
import { memoryFigures } from './memory-figures.ts'

export interface SftSettings {
  /** Every weight learns, encoders included, without adapters. */
  everything: boolean
  /** Weight of the mask loss beside the cross-entropy of both answers. */
  maskWeight: number
  /** Folder of the finished model, adapters merged; null: none. */
  exportTo: string | null
}

export interface SftResult extends RunResult {
  exported: string | null
}

export async function sft(
  config: RunConfig,
  settings: SftSettings,
  host: Pick<Host, 'progress' | 'stopping' | 'yieldToLoop'>,
  world: World = alone,
): Promise<SftResult> {
  const { everything, maskWeight, exportTo } = settings
  const options = {
    everything,
    dropout: everything ? 0 : config.lora.dropout,
    passes: 1,
    world,
    goal: () => [`none: cross-entropy of both answers, BCE and Dice of the mask (weight ${maskWeight})`],
    settings: { 'sft everything': everything, 'sft maskWeight': maskWeight },
    work: (opened: Opened) => new SftWork(opened, settings),
  }
  const result = await runLoop(config, host, options, ({ learner }, { stopped }) => {
    if (stopped || !exportTo || world.rank > 0) return
    learner.family.export(exportTo) // adapters are merged in what is written, from the source's own bytes
  })
  return { ...result, exported: result.stopped ? null : exportTo }
}

/** Means over the records of a step. */
const partNames = ['loss', 'caption', 'answer', 'bce', 'dice'] as const
type Parts = Record<(typeof partNames)[number], number>

class SftWork implements Work {
  readonly facts = { kind: 'sft' }
  readonly #opened: Opened
  readonly #settings: SftSettings
  readonly #family: GroundedFamily

  constructor(opened: Opened, settings: SftSettings) {
    this.#opened = opened
    this.#settings = settings
    this.#family = requireGrounded(opened.learner.family)
  }

  async begin(): Promise<void> {}

  async step(number: number, learningRate: number): Promise<StepLog> {
    const startedAt = performance.now()
    const { config, learner, world } = this.#opened
    const { optim: settings, rl } = config
    const { optim, ema } = learner
    this.#seedDropout(number)
    const parts: Parts = { loss: 0, caption: 0, answer: 0, bce: 0, dice: 0 }
    try {
      for (let micro = 0; micro < rl.gradientAccumulationSteps; micro++)
        await this.#learnBatch(await this.#take(), number, micro, 1 / rl.gradientAccumulationSteps, parts)
      const whole = await this.#overAll(parts)
      const norm = optim.clipGradNorm(settings.maxGradNorm || Number.POSITIVE_INFINITY)
      this.#requireFinite(number, whole.loss, norm)
      optim.step(learningRate)
      await learner.share(world)
      ema.update(learner.params())
      const memory = memoryFigures(this.#family.model.placement.device)
      return logOf(whole, norm, learningRate, { step_time: (performance.now() - startedAt) / 1000, ...memory })
    } finally {
      optim.zeroGrad()
    }
  }

  /** Dropout of a resumed run draws the same, and each process its own. */
  #seedDropout(number: number): void {
    const { config, world } = this.#opened
    const process = world.size > 1 ? [world.rank] : []
    manualSeed(stream(config.seed, streamId.dropout, number, ...process).wordAt(0))
  }

  /** Sums over all processes, gradients included. */
  async #overAll(parts: Parts): Promise<Parts> {
    const { learner, world } = this.#opened
    await world.sumGradients(learner.params())
    const sums = await world.sum(partNames.map((name) => parts[name]))
    return Object.fromEntries(partNames.map((name, i) => [name, sums[i]!])) as Parts
  }

  async #take(): Promise<Example[]> {
    const out: Example[] = []
    while (out.length < this.#opened.config.batchSize) out.push(await this.#opened.records.loader.next())
    return out
  }

  /** Gradient of this process's records of a micro-batch; images of different shapes go through apart. */
  async #learnBatch(
    batch: readonly Example[],
    step: number,
    micro: number,
    share: number,
    parts: Parts,
  ): Promise<void> {
    for (const alike of await this.#byShape(batch)) {
      if (alike.every(({ input }) => input === null)) continue
      const weight = (share * alike.length) / batch.length
      const random = stream(this.#opened.config.seed, streamId.rows, step, micro, alike[0]!.example.id)
      try {
        tidy(() => {
          const { loss, report } = supervisedLoss(this.#family, alike, random, this.#lossOptions)
          backward(loss.mul(weight))
          const found = { ...report(), loss: loss.item() }
          for (const name of partNames) parts[name] += weight * found[name]
        })
      } finally {
        clearTape()
      }
    }
  }

  /** Records whose images can be encoded together, in order of first appearance; each process prepares its own. */
  async #byShape(batch: readonly Example[]): Promise<SupervisedRecord[][]> {
    const { config, world } = this.#opened
    const maxTiles = config.maxTiles ?? undefined
    const inputs = batch.map(({ image, prepared }, i) =>
      i % world.size === world.rank ? (prepared ?? this.#family.prepare(image, { maxTiles })) : null,
    )
    const told = await world.gather(inputs.map((input) => (input ? this.#family.shapeOf(input) : null)))
    const shapes = batch.map((_, i) => told.find((of) => of[i] !== null)![i]!)
    return [...new Set(shapes)].map((shape) =>
      batch.flatMap((example, i) => (shapes[i] === shape ? [{ example, input: inputs[i] ?? null }] : [])),
    )
  }

  get #lossOptions() {
    const { everything, maskWeight } = this.#settings
    return { trainEncoders: everything, maskWeight, checkpointing: this.#opened.config.checkpointing }
  }

  #requireFinite(number: number, loss: number, norm: number): void {
    if (Number.isFinite(loss) && Number.isFinite(norm)) return
    throw new Mismatch({
      where: `step ${number + 1}`,
      field: Number.isFinite(loss) ? 'gradient norm' : 'loss',
      expected: 'a finite number',
      got: String(Number.isFinite(loss) ? norm : loss),
      hint: `the last checkpoint is intact; try a smaller optim.learningRate than ${this.#opened.config.optim.learningRate}`,
    })
  }

  /** Dropout takes no part in an evaluation. */
  evaluating<R>(fn: () => R): R {
    const { adapter } = this.#opened.learner
    if (!adapter) return fn()
    const { dropout } = adapter
    adapter.dropout = 0
    try {
      return fn()
    } finally {
      adapter.dropout = dropout
    }
  }

  async state(): Promise<WorkState> {
    return { tasks: {}, entropy: null, generation: null, flat: 0 }
  }

  async restore(): Promise<void> {}

  close(): void {}
}

function logOf(parts: Parts, norm: number, learningRate: number, timing: Metrics): StepLog {
  const { loss } = parts
  return {
    metrics: {
      loss,
      caption_loss: parts.caption,
      answer_loss: parts.answer,
      mask_bce: parts.bce,
      mask_dice: parts.dice,
      learning_rate: learningRate,
      grad_norm: norm,
    },
    timing,
    fields: { loss, caption: parts.caption, mask: parts.bce, dice: parts.dice },
  }
}
