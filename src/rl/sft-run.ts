// Supervised fine-tuning as a run: the same folder, checkpoints, resume and evaluation as train, and a full model folder at the end.
import { prune } from '../checkpoint/index.ts'
import { Mismatch, sha256, stream, streamId } from '../core/index.ts'
import type { Example } from '../data/index.ts'
import { tileCount, tileGrid } from '../image/index.ts'
import { exportSa2VA, type Loaded } from '../models/index.ts'
import { mergeLora } from '../nn/index.ts'
import { learningRateAt } from '../optim/index.ts'
import { backward, clearTape, manualSeed, memory, tidy } from '../tensor/index.ts'
import type { Interval, RunWriter } from '../tracking/index.ts'
import { evaluateBatch, summariseScores } from './evaluate.ts'
import { Learner } from './learner.ts'
import { openRecords, type Records, readEvalRecords } from './records.ts'
import type { RunConfig } from './run-config.ts'
import { openRunFolder } from './run-folder.ts'
import { loadRun, saveRun } from './run-state.ts'
import { sftLoss } from './sft.ts'
import { evaluateAll, type Host, openModel, type RunResult, totalSteps } from './trainer.ts'

export interface SftSettings {
  /** Every weight learns, encoders included, without adapters. */
  everything: boolean
  /** Weight of the mask loss beside the cross-entropy of both answers. */
  maskWeight: number
  /** Folder of the finished model, adapters merged; null: none. */
  exportTo: string | null
}

type SftHost = Pick<Host, 'progress' | 'stopping' | 'breathe'>

export interface SftResult extends RunResult {
  exported: string | null
}

export async function sftRun(config: RunConfig, settings: SftSettings, host: SftHost): Promise<SftResult> {
  const run = await SftRun.open(config, settings, host)
  try {
    return await run.run()
  } finally {
    await run.close()
  }
}

/** Means over the records of a step. */
type Parts = { caption: number; answer: number; bce: number; dice: number }

class SftRun {
  readonly #config: RunConfig
  readonly #settings: SftSettings
  readonly #host: SftHost
  readonly #learner: Learner
  readonly #records: Records
  readonly #held: Example[]
  readonly #writer: RunWriter
  readonly #fingerprint: string
  readonly #total: number
  #step = 0
  #fresh = true

  private constructor(
    config: RunConfig,
    settings: SftSettings,
    host: SftHost,
    learner: Learner,
    records: Records,
    held: Example[],
  ) {
    this.#config = config
    this.#settings = settings
    this.#host = host
    this.#learner = learner
    this.#records = records
    this.#held = held
    this.#total = totalSteps({ ...config, rl: { ...config.rl, numIterations: 1 } }, records.loader.epochLength)
    this.#fingerprint = fingerprintOf(config, settings, this.#total)
    const { writer, resumed } = openRunFolder(config, this.#fingerprint)
    this.#writer = writer
    if (!resumed) return
    host.progress({ kind: 'phase', text: `3 resume ${resumed.path}` })
    loadRun(resumed.path, learner)
    records.loader.restore(resumed.state.loader)
    this.#step = resumed.state.step
    this.#fresh = false
  }

  static async open(config: RunConfig, settings: SftSettings, host: SftHost): Promise<SftRun> {
    host.progress({ kind: 'phase', text: `1 model ${config.model}` })
    const dropout = settings.everything ? 0 : config.lora.dropout
    const learner = new Learner(openModel(config), config, { dropout, everything: settings.everything })
    for (const { group, tensors, elements } of learner.counts())
      host.progress({
        kind: 'note',
        text: `  trains ${group}: ${tensors} tensors, ${elements.toLocaleString('en')} values`,
      })
    host.progress({ kind: 'phase', text: `2 records ${config.dataPath}` })
    const records = await openRecords(config)
    return new SftRun(config, settings, host, learner, records, await readEvalRecords(config))
  }

  async run(): Promise<SftResult> {
    const { saveSteps, evalSteps } = this.#config
    if (this.#fresh) {
      const { length, format } = this.#records.source
      this.#writer.start({ total: this.#total, records: length, source: format, kind: 'sft' })
    }
    const before = this.#fresh ? await this.#evaluate('before') : null
    if (this.#fresh && !this.#host.stopping()) this.#checkpoint()
    let saved: string | null = null
    let since = 0
    while (this.#step < this.#total && !this.#host.stopping()) {
      await this.#oneStep()
      since++
      if (evalSteps > 0 && this.#step % evalSteps === 0 && this.#step < this.#total)
        await this.#evaluate(`step ${this.#step}`)
      if (saveSteps > 0 && this.#step % saveSteps === 0) {
        saved = this.#checkpoint()
        since = 0
      }
      await this.#host.breathe()
    }
    if (since > 0) saved = this.#checkpoint()
    return this.#finish(before, saved)
  }

  async #finish(before: SftResult['before'], saved: string | null): Promise<SftResult> {
    const stopped = this.#step < this.#total
    const after = stopped ? null : await this.#evaluate('after')
    this.#writer.stop(this.#step, stopped ? 'stopped' : 'done')
    const { exportTo } = this.#settings
    if (!stopped && exportTo) {
      if (this.#learner.adapter) mergeLora(this.#learner.loaded.model.language_model)
      exportSa2VA(this.#learner.loaded, exportTo)
    }
    return { step: this.#step, stopped, before, after, checkpoint: saved, exported: stopped ? null : exportTo }
  }

  async #oneStep(): Promise<void> {
    const startedAt = performance.now()
    const { optim: settings, rl, seed } = this.#config
    const { optim, ema } = this.#learner
    manualSeed(stream(seed, streamId.dropout, this.#step).wordAt(0)) // dropout of a resumed run draws the same
    const learningRate = learningRateAt(this.#step, settings, this.#total)
    const parts: Parts = { caption: 0, answer: 0, bce: 0, dice: 0 }
    let loss = 0
    try {
      for (let micro = 0; micro < rl.gradientAccumulationSteps; micro++)
        loss += this.#learnBatch(await this.#take(), micro, 1 / rl.gradientAccumulationSteps, parts)
      const norm = optim.clipGradNorm(settings.maxGradNorm || Number.POSITIVE_INFINITY)
      this.#requireFinite(loss, norm)
      optim.step(learningRate)
      ema.update(this.#learner.params())
      this.#step++
      this.#log(loss, norm, learningRate, parts, startedAt)
    } finally {
      optim.zeroGrad()
    }
  }

  async #take(): Promise<Example[]> {
    const out: Example[] = []
    while (out.length < this.#config.batchSize) out.push(await this.#records.loader.next())
    return out
  }

  /** Gradient of one micro-batch; records whose images give different numbers of tiles go through apart. */
  #learnBatch(batch: readonly Example[], micro: number, share: number, parts: Parts): number {
    const { loaded } = this.#learner
    let total = 0
    for (const some of byTiles(batch, loaded, this.#config.maxTiles ?? undefined)) {
      const weight = (share * some.length) / batch.length
      const random = stream(this.#config.seed, streamId.rows, this.#step, micro, some[0]!.id)
      try {
        total += tidy(() => {
          const { loss, report } = sftLoss(loaded, some, random, this.#lossOptions)
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

  get #lossOptions() {
    return {
      trainEncoders: this.#settings.everything,
      maskWeight: this.#settings.maskWeight,
      checkpointing: this.#config.checkpointing,
      maxTiles: this.#config.maxTiles ?? undefined,
    }
  }

  #requireFinite(loss: number, norm: number): void {
    if (Number.isFinite(loss) && Number.isFinite(norm)) return
    throw new Mismatch({
      where: `step ${this.#step + 1}`,
      field: Number.isFinite(loss) ? 'gradient norm' : 'loss',
      expected: 'a finite number',
      got: String(Number.isFinite(loss) ? norm : loss),
      hint: `the last checkpoint is intact; try a smaller optim.learningRate than ${this.#config.optim.learningRate}`,
    })
  }

  #log(loss: number, norm: number, learningRate: number, parts: Parts, startedAt: number): void {
    const spent = (performance.now() - startedAt) / 1000
    const { tensors, bytes } = memory()
    const metrics = {
      loss,
      caption_loss: parts.caption,
      answer_loss: parts.answer,
      mask_bce: parts.bce,
      mask_dice: parts.dice,
      learning_rate: learningRate,
      grad_norm: norm,
    }
    this.#writer.step(this.#step, metrics, { step_time: spent, live_tensors: tensors, live_bytes: bytes })
    const fields = { loss, caption: parts.caption, mask: parts.bce, dice: parts.dice }
    if (this.#step % this.#config.logSteps === 0 || this.#step === this.#total)
      this.#host.progress({ kind: 'step', step: this.#step, total: this.#total, fields })
  }

  #checkpoint(): string {
    this.#writer.checkpoint(this.#step, `checkpoint_step_${this.#step}`)
    const path = saveRun(this.#config.output, this.#learner, {
      version: 1,
      step: this.#step,
      fingerprint: this.#fingerprint,
      loader: this.#records.loader.state(),
      position: this.#writer.position(),
      actionScale: 1,
      balance: { loop1: 1, loop2: 1 },
      norms: { loop1: 0, loop2: 0 },
      buffer: null,
      flat: 0,
    })
    prune(this.#config.output, this.#config.saveTotalLimit)
    return path
  }

  /** Dropout takes no part in an evaluation. */
  async #evaluate(name: string): Promise<Record<string, Interval> | null> {
    if (this.#held.length === 0) return null
    const { adapter } = this.#learner
    const dropout = adapter?.dropout ?? 0
    if (adapter) adapter.dropout = 0
    try {
      const context = { learner: this.#learner, config: this.#config, actionScale: 1 }
      const scores = await evaluateAll(
        this.#held,
        this.#config.evalBatch,
        (batch) => evaluateBatch(context, batch),
        (done) => this.#host.progress({ kind: 'eval', text: name, step: done, total: this.#held.length }),
        () => this.#host.stopping(),
      )
      if (!scores) return null
      const result = summariseScores(scores, this.#config.seed)
      this.#writer.eval(this.#step, name, scores.length, result)
      return result
    } finally {
      if (adapter) adapter.dropout = dropout
    }
  }

  async close(): Promise<void> {
    this.#writer.close()
    await this.#records.close()
    this.#learner.dispose()
    for (const t of this.#learner.loaded.model.parameters().values()) t.dispose()
  }
}

/** Settings a resumed run may not change; the number of steps decides the learning rate of every step. */
function fingerprintOf(config: RunConfig, settings: SftSettings, total: number): string {
  const { output, saveSteps, saveTotalLimit, logSteps, tensorboard, maxSteps, epochs, evalSteps, ...deciding } = config
  const { everything, maskWeight } = settings
  const steps = config.optim.lrSchedulerType.startsWith('constant') ? null : total
  return sha256(JSON.stringify({ deciding, everything, maskWeight, steps }))
}

/** Records by the number of tiles their image gives, in order of first appearance. */
function byTiles(batch: readonly Example[], { cfg }: Loaded, maxTiles?: number): Example[][] {
  const most = maxTiles ?? cfg.max_dynamic_patch
  const options = {
    tileSize: cfg.image_size,
    minTiles: Math.min(cfg.min_dynamic_patch, most),
    maxTiles: most,
    thumbnail: cfg.use_thumbnail,
  }
  const groups = new Map<number, Example[]>()
  for (const example of batch) {
    const tiles = tileCount(tileGrid(example.image.width, example.image.height, options), options)
    groups.set(tiles, [...(groups.get(tiles) ?? []), example])
  }
  return [...groups.values()]
}
