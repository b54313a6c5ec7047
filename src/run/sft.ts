// Supervised fine-tuning as a run: the same folder, checkpoints, resume and evaluation as train, and a full model folder at the end.
import { Mismatch, stream, streamId } from '../core/index.ts'
import type { Example } from '../data/index.ts'
import type { GroundedFamily } from '../models/index.ts'
import { requireGrounded, type SupervisedRecord, supervisedLoss } from '../tasks/index.ts'
import { backward, clearTape, manualSeed, memory, tidy } from '../tensor/index.ts'
import type { RunConfig } from './config.ts'
import type { Host, RunResult } from './host.ts'
import { type Opened, runLoop, type StepLog, type Work, type WorkState } from './loop.ts'

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
): Promise<SftResult> {
  const { everything, maskWeight, exportTo } = settings
  const options = {
    everything,
    dropout: everything ? 0 : config.lora.dropout,
    passes: 1,
    goal: () => [`none: cross-entropy of both answers, BCE and Dice of the mask (weight ${maskWeight})`],
    settings: { 'sft everything': everything, 'sft maskWeight': maskWeight },
    work: (opened: Opened) => new SftWork(opened, settings),
  }
  const result = await runLoop(config, host, options, ({ learner }, { stopped }) => {
    if (stopped || !exportTo) return
    learner.family.export(exportTo) // adapters are merged in what is written, from the source's own bytes
  })
  return { ...result, exported: result.stopped ? null : exportTo }
}

/** Means over the records of a step. */
type Parts = { caption: number; answer: number; bce: number; dice: number }

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
    const { config, learner } = this.#opened
    const { optim: settings, rl, seed } = config
    const { optim, ema } = learner
    manualSeed(stream(seed, streamId.dropout, number).wordAt(0)) // dropout of a resumed run draws the same
    const parts: Parts = { caption: 0, answer: 0, bce: 0, dice: 0 }
    let loss = 0
    try {
      for (let micro = 0; micro < rl.gradientAccumulationSteps; micro++)
        loss += this.#learnBatch(await this.#take(), number, micro, 1 / rl.gradientAccumulationSteps, parts)
      const norm = optim.clipGradNorm(settings.maxGradNorm || Number.POSITIVE_INFINITY)
      this.#requireFinite(number, loss, norm)
      optim.step(learningRate)
      ema.update(learner.params())
      return logOf(loss, norm, learningRate, parts, startedAt)
    } finally {
      optim.zeroGrad()
    }
  }

  async #take(): Promise<Example[]> {
    const out: Example[] = []
    while (out.length < this.#opened.config.batchSize) out.push(await this.#opened.records.loader.next())
    return out
  }

  /** Gradient of one micro-batch; images of different shapes go through apart. */
  #learnBatch(batch: readonly Example[], step: number, micro: number, share: number, parts: Parts): number {
    let total = 0
    for (const alike of this.#byShape(batch)) {
      const weight = (share * alike.length) / batch.length
      const random = stream(this.#opened.config.seed, streamId.rows, step, micro, alike[0]!.example.id)
      try {
        total += tidy(() => {
          const { loss, report } = supervisedLoss(this.#family, alike, random, this.#lossOptions)
          backward(loss.mul(weight))
          const found = report()
          for (const key of ['caption', 'answer', 'bce', 'dice'] as const) parts[key] += weight * found[key]
          return weight * loss.item()
        })
      } finally {
        clearTape()
      }
    }
    return total
  }

  /** Records whose images can be encoded together, in order of first appearance. */
  #byShape(batch: readonly Example[]): SupervisedRecord[][] {
    const maxTiles = this.#opened.config.maxTiles ?? undefined
    const groups = new Map<string, SupervisedRecord[]>()
    for (const example of batch) {
      const input = example.prepared ?? this.#family.prepare(example.image, { maxTiles })
      const shape = this.#family.shapeOf(input)
      groups.set(shape, [...(groups.get(shape) ?? []), { example, input }])
    }
    return [...groups.values()]
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

function logOf(loss: number, norm: number, learningRate: number, parts: Parts, startedAt: number): StepLog {
  const { tensors, bytes } = memory()
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
    timing: { step_time: (performance.now() - startedAt) / 1000, live_tensors: tensors, live_bytes: bytes },
    fields: { loss, caption: parts.caption, mask: parts.bce, dice: parts.dice },
  }
}
