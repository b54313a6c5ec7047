// Supervised fine-tuning as a run: the same folder, checkpoints, resume and evaluation as train, and a full model folder at the end.
import { Mismatch, stream, streamId } from '../core/index.ts'
import type { Example } from '../data/index.ts'
import { alone, type World } from '../distributed/index.ts'
import { NonFinite } from '../rl/index.ts'
import type { LessonOptions, SupervisedBatches, TaskKind } from '../tasks/index.ts'
import { manualSeed } from '../tensor/index.ts'
import type { Metrics } from '../tracking/index.ts'
import { defaultDropout, type RunConfig } from './config.ts'
import type { Settings } from './flat-settings.ts'
import type { Host, RunResult } from './host.ts'
import { type Opened, runLoop, type StepLog, type Work, type WorkState } from './loop.ts'
import { memoryMetrics } from './memory-metrics.ts'
import { overProcesses } from './over-processes.ts'
import { SkippedUpdates } from './skipped-updates.ts'

/** Settings by path where sft differs from train; the learning rate is the one the reference fine-tunes with. */
export const sftDefaults: Settings = {
  'optim.learningRate': 4e-5,
  'optim.warmupSteps': 0.05,
  'optim.lrSchedulerType': 'cosine',
  'lrScale.text_hidden_fcs': 1,
  'lrScale.mask_decoder': 1,
  'lrScale.prompt_encoder': 1,
}

/** Settings of supervised fine-tuning beside those of a run. */
export interface SftSettings {
  /** Every weight learns, encoders included, without adapters. */
  everything: boolean
  /** Weight of the mask loss beside the cross-entropy of both answers. */
  maskWeight: number
  /** Folder of the finished model, adapters merged; null: none. */
  exportTo: string | null
}

/** How supervised fine-tuning ended. */
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
  const lessonOptions = { everything, maskWeight, maxTiles: config.maxTiles }
  const options = {
    everything,
    dropout: everything ? 0 : (config.lora.dropout ?? defaultDropout),
    passes: 1,
    together: config.batchSize,
    world,
    goal: (kind: TaskKind<RunConfig>) => [`none: ${lessonsOf(kind).goal(config, lessonOptions)}`],
    settings: { 'sft everything': everything, 'sft maskWeight': maskWeight },
    work: (opened: Opened) => new SftWork(opened, lessonOptions),
  }
  const result = await runLoop(config, host, options, ({ learner }, { stopped }) => {
    if (stopped || !exportTo || world.rank > 0) return
    learner.family.export(exportTo) // adapters are merged in what is written, from the source's own bytes
  })
  return { ...result, exported: result.stopped ? null : exportTo }
}

class SftWork implements Work {
  readonly facts = { kind: 'sft' }
  readonly #opened: Opened
  readonly #lessons: SupervisedBatches
  readonly #skipped: SkippedUpdates

  constructor(opened: Opened, options: LessonOptions) {
    const { kind, learner, config } = opened
    this.#opened = opened
    this.#skipped = new SkippedUpdates('sft', opened)
    this.#lessons = lessonsOf(kind).open(learner.family, config, options)
  }

  async begin(): Promise<void> {}

  async step(number: number, learningRate: number): Promise<StepLog> {
    const startedAt = performance.now()
    const { config, learner, world } = this.#opened
    const { optim: settings, rl } = config
    const { optim, ema } = learner
    this.#seedDropout(number)
    const share = 1 / rl.gradientAccumulationSteps
    const found: Record<string, number>[] = []
    try {
      for (let micro = 0; micro < rl.gradientAccumulationSteps; micro++) {
        const place = { seed: config.seed, step: number, micro, share, world }
        found.push(await this.#lessons.learn(await this.#take(), place))
      }
      const whole = await this.#overAll(found)
      const norm = optim.clipGradNorm(settings.maxGradNorm || Number.POSITIVE_INFINITY)
      if (this.#isFinite(number, whole['loss']!, norm)) {
        optim.step(learningRate)
        await learner.share(world)
        ema.update(learner.params())
      }
      const clocks = { step_time: (performance.now() - startedAt) / 1000 }
      const max = memoryMetrics(learner.family.placement.device)
      const timing = overProcesses(await world.gather({ mean: clocks, max }))
      return this.#log(whole, norm, learningRate, timing)
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

  /** Sums over the batches of a step and over all processes, gradients included. */
  async #overAll(found: readonly Record<string, number>[]): Promise<Record<string, number>> {
    const { learner, world } = this.#opened
    await world.sumGradients(learner.params())
    const names = Object.keys(this.#lessons.metrics)
    const sums = await world.sum(names.map((name) => found.reduce((sum, part) => sum + part[name]!, 0)))
    return Object.fromEntries(names.map((name, i) => [name, sums[i]!]))
  }

  async #take(): Promise<Example[]> {
    const out: Example[] = []
    while (out.length < this.#opened.config.batchSize) out.push(await this.#opened.records.loader.next())
    return out
  }

  /** Whether the update is applied. If not, it is skipped or ends the run, as `onNonFinite` says. */
  #isFinite(number: number, loss: number, norm: number): boolean {
    const isLoss = !Number.isFinite(loss)
    const got = isLoss ? loss : norm
    if (Number.isFinite(got)) {
      this.#skipped.applied()
      return true
    }
    const rate = this.#opened.config.optim.learningRate
    const error = new NonFinite({
      where: `step ${number + 1}`,
      field: isLoss ? 'loss' : 'gradient norm',
      expected: 'a finite number',
      got: String(got),
      hint: `the last checkpoint is intact; try a smaller optim.learningRate than ${rate}, or onNonFinite skip`,
    })
    this.#skipped.skip(number + 1, error)
    return false
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

  #log(parts: Readonly<Record<string, number>>, norm: number, learningRate: number, timing: Metrics): StepLog {
    const named = Object.entries(this.#lessons.metrics).map(([short, name]) => [name, parts[short]!])
    const metrics = { ...Object.fromEntries(named), learning_rate: learningRate, grad_norm: norm }
    return { metrics, timing, fields: { ...parts } }
  }

  async state(): Promise<WorkState> {
    return { tasks: {}, entropy: null, generation: null, flat: 0 }
  }

  async restore(): Promise<void> {}

  close(): void {}
}

function lessonsOf(kind: TaskKind<RunConfig>): NonNullable<TaskKind<RunConfig>['lessons']> {
  if (kind.lessons) return kind.lessons
  throw new Mismatch({ where: 'sft', field: 'task', expected: 'a task that teaches by examples', got: kind.name })
}
