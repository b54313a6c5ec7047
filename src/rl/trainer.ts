// A whole run: start-up, steps, evaluations, checkpoints, resume. The step itself is step.ts.
import { statSync } from 'node:fs'
import { basename } from 'node:path'
import { openWeights, prune } from '../checkpoint/index.ts'
import { log, Mismatch, messageOf, sha256 } from '../core/index.ts'
import type { Example } from '../data/index.ts'
import { encodePng } from '../image/index.ts'
import { encodeRle } from '../mask/index.ts'
import { type Loaded, openSa2VA } from '../models/index.ts'
import { learningRateAt } from '../optim/index.ts'
import type { ScoredRow } from '../rewards/index.ts'
import { memory, setThreads, tidy } from '../tensor/index.ts'
import type { Interval, RunWriter, Sample } from '../tracking/index.ts'
import { measureActionScale } from './action-scale.ts'
import { initialEntropyState } from './entropy.ts'
import { evaluateBatch, type RecordScores, summariseScores } from './evaluate.ts'
import { FeatureStore } from './feature-store.ts'
import { Learner } from './learner.ts'
import { openRecords, type Records, readEvalRecords, release, workItems } from './records.ts'
import type { RunConfig } from './run-config.ts'
import { deviceOf, openRunFolder } from './run-folder.ts'
import { loadRun, type RunState, saveRun } from './run-state.ts'
import { type Group, learn, NonFinite, plainDensities, type Run, sampleGroups } from './step.ts'
import { StepReport } from './step-report.ts'
import { restoreGroup, storeGroup } from './stored-group.ts'
import { type Answered, captionToMask, maskToCaption, type Task, type WorkItem } from './tasks/index.ts'

export interface Progress {
  kind: 'phase' | 'step' | 'eval' | 'note'
  text?: string
  step?: number
  total?: number
  fields?: Record<string, number>
}

/** What a run needs from the thread that keeps the terminal and the network. */
export interface Host {
  score(loop: Task['name'], groups: readonly (readonly Answered['answer'][])[]): Promise<ScoredRow[][]>
  progress(event: Progress): void
  /** Polled between steps: finish the step, save, end. */
  stopping(): boolean
  breathe(): Promise<void>
}

export interface RunResult {
  step: number
  stopped: boolean
  before: Record<string, Interval> | null
  after: Record<string, Interval> | null
  checkpoint: string | null
}

export function openModel(config: RunConfig): Loaded {
  if (config.threads > 0) setThreads(config.threads)
  const { device, dtype } = deviceOf(config)
  return openSa2VA(config.model, { device, dtype })
}

export function tasksOf(config: RunConfig): Task[] {
  return [maskToCaption, captionToMask].filter((task) => config[task.name].weight > 0)
}

/** Settings a resumed run may not change: everything that decides the numbers. */
function fingerprintOf(config: RunConfig): string {
  const { output, saveSteps, saveTotalLimit, logSteps, tensorboard, maxSteps, epochs, evalSteps, ...deciding } = config
  return sha256(JSON.stringify(deciding))
}

/** The parts a step needs, before the action's scale is measured. */
export function runOf(config: RunConfig, learner: Learner, host: Pick<Host, 'score'>): Run {
  return {
    config,
    learner,
    tasks: tasksOf(config),
    actionScale: Number.NaN,
    balance: { loop1: 1, loop2: 1 },
    entropy: initialEntropyState(config.rl),
    score: (loop, groups) => {
      const all = host.score(
        loop,
        groups.map((g) => g.map((a) => a.answer)),
      )
      // an error is met where a group is awaited; another loop's error may come first and leave this one unmet
      const one = groups.map(async (_, i) => (await all)[i]!)
      for (const promise of [all, ...one]) promise.catch(() => undefined)
      return one
    },
  }
}

/** Optimizer steps of the run. */
export function totalSteps(config: RunConfig, epochLength: number): number {
  if (config.maxSteps >= 0) return config.maxSteps
  const perStep = config.batchSize * config.rl.gradientAccumulationSteps
  return Math.max(1, Math.ceil((config.epochs * epochLength * config.rl.numIterations) / perStep))
}

export async function train(config: RunConfig, host: Host): Promise<RunResult> {
  const trainer = await Trainer.open(config, host)
  try {
    return await trainer.run()
  } finally {
    await trainer.close()
  }
}

/** Scored groups that several optimizer steps draw from. */
interface Buffer {
  groups: Group[]
  items: WorkItem[]
  /** Optimizer steps already taken from it. */
  used: number
}

export class Trainer {
  readonly config: RunConfig
  readonly run_: Run
  readonly #host: Host
  readonly #records: Records
  readonly #writer: RunWriter
  readonly #store: FeatureStore | null
  readonly #total: number
  readonly #held: Example[]
  #buffer: Buffer | null = null
  #step = 0
  #norms = { loop1: 0, loop2: 0 }
  #flat = 0
  #fresh = true

  private constructor(
    config: RunConfig,
    host: Host,
    run: Run,
    records: Records,
    writer: RunWriter,
    held: Example[],
    store: FeatureStore | null,
  ) {
    this.config = config
    this.run_ = run
    this.#host = host
    this.#records = records
    this.#writer = writer
    this.#held = held
    this.#store = store
    this.#total = totalSteps(config, records.loader.epochLength)
  }

  static async open(config: RunConfig, host: Host): Promise<Trainer> {
    host.progress({ kind: 'phase', text: `1 model ${config.model}` })
    const learner = new Learner(openModel(config), config)
    let records: Records | null = null
    try {
      records = await Trainer.#describe(learner, config, host)
      return await Trainer.#assemble(config, host, learner, records)
    } catch (error) {
      await records?.close()
      disposeAll(learner)
      throw error
    }
  }

  static async #describe(learner: Learner, config: RunConfig, host: Host): Promise<Records> {
    for (const { group, tensors, elements } of learner.counts())
      host.progress({
        kind: 'note',
        text: `  trains ${group}: ${tensors} tensors, ${elements.toLocaleString('en')} values`,
      })
    host.progress({ kind: 'phase', text: `2 records ${config.dataPath}` })
    return openRecords(config)
  }

  static async #assemble(config: RunConfig, host: Host, learner: Learner, records: Records): Promise<Trainer> {
    const held = await readEvalRecords(config)
    const run = runOf(config, learner, host)
    const { writer, resumed } = openRunFolder(config, fingerprintOf(config))
    const store = config.featureCache
      ? new FeatureStore(config.featureCache, featureFingerprint(config, learner), learner.loaded.model.home.device)
      : null
    try {
      const trainer = new Trainer(config, host, run, records, writer, held, store)
      if (resumed) await trainer.#restore(resumed.path, resumed.state)
      return trainer
    } catch (error) {
      writer.close()
      throw error
    }
  }

  async #restore(path: string, state: RunState): Promise<void> {
    this.#host.progress({ kind: 'phase', text: `3 resume ${path}` })
    loadRun(path, this.run_.learner)
    this.run_.actionScale = state.actionScale
    this.run_.balance = state.balance
    this.run_.entropy = state.entropy ?? this.run_.entropy
    this.#norms = state.norms
    this.#flat = state.flat
    this.#step = state.step
    this.#fresh = false
    this.#records.loader.restore(state.loader)
    if (state.buffer) await this.#refill(state.buffer)
  }

  /** Records of a stored generation batch are read again by id; their samples and scores come from the checkpoint. */
  async #refill(buffer: NonNullable<RunState['buffer']>): Promise<void> {
    const wanted = new Set(buffer.groups.map((g) => g.record))
    const examples: Example[] = []
    for (let i = 0; i < this.#records.source.length && examples.length < wanted.size; i++) {
      if (wanted.has(this.#records.source.id(i))) examples.push(await this.#records.source.get(i))
    }
    const order = [...wanted]
    examples.sort((a, b) => order.indexOf(a.id) - order.indexOf(b.id))
    const items = workItems(this.run_.learner, this.config, examples, this.#store)
    const byId = new Map(items.map((item) => [item.example.id, item]))
    this.#buffer = {
      groups: buffer.groups.map((g) => restoreGroup(g, this.run_.tasks, byId)),
      items,
      used: buffer.next,
    }
  }

  async run(): Promise<RunResult> {
    if (this.#fresh) {
      this.#writer.start({
        total: this.#total,
        records: this.#records.source.length,
        source: this.#records.source.format,
      })
      await this.#measureScale()
    }
    const before = this.#fresh ? await this.evaluate('before') : null
    if (this.#fresh && !this.#host.stopping()) this.#checkpoint()
    let saved: string | null = null
    let since = 0
    while (this.#step < this.#total && !this.#host.stopping()) {
      await this.#oneStep()
      since++
      if (this.config.evalSteps > 0 && this.#step % this.config.evalSteps === 0 && this.#step < this.#total)
        await this.evaluate(`step ${this.#step}`)
      if (this.config.saveSteps > 0 && this.#step % this.config.saveSteps === 0) {
        saved = this.#checkpoint()
        since = 0
      }
      await this.#host.breathe()
    }
    const stopped = this.#step < this.#total
    if (since > 0) saved = this.#checkpoint()
    const after = stopped ? null : await this.evaluate('after')
    this.#writer.stop(this.#step, stopped ? 'stopped' : 'done')
    return { step: this.#step, stopped, before, after, checkpoint: saved }
  }

  async #measureScale(): Promise<void> {
    if (!this.run_.tasks.includes(captionToMask) || this.config.loop2.action === 'text') {
      this.run_.actionScale = 1
      return
    }
    const examples = this.#held.length > 0 ? this.#held.slice(0, 32) : [await this.#records.source.get(0)]
    const items = workItems(this.run_.learner, this.config, examples, this.#store)
    this.run_.actionScale = measureActionScale(this.run_, items)
    release(items)
    this.#host.progress({
      kind: 'note',
      text: `  mask action ${this.config.loop2.action}: noise ${this.run_.actionScale.toPrecision(3)}`,
    })
  }

  /** Passes over one generation batch, and optimizer steps in each. */
  get #stepsPerBatch(): number {
    const { numIterations, gradientAccumulationSteps: GA, stepsPerGeneration } = this.config.rl
    return numIterations * Math.max(1, Math.round((stepsPerGeneration ?? GA) / GA))
  }

  async #oneStep(): Promise<void> {
    const startedAt = performance.now()
    const seconds: Record<string, number> = {}
    const fresh = this.#buffer === null
    if (!this.#buffer) this.#buffer = await this.#generate(seconds)
    const sampled = fresh ? this.#buffer.groups : []
    const report = new StepReport()
    const learningRate = learningRateAt(this.#step, this.config.optim, this.#total)
    const learnedAt = performance.now()
    const groups = this.#slice(this.#buffer)
    const skipped = this.#learn(groups, learningRate, report)
    seconds.learn = (performance.now() - learnedAt) / 1000
    this.#buffer.used++
    if (this.#buffer.used >= this.#stepsPerBatch) {
      release(this.#buffer.items)
      this.#buffer = null
    }
    this.#step++
    if (!skipped) this.#balance(report)
    await this.#log(report, learningRate, sampled, seconds, startedAt)
  }

  /** Samples and scores the records of the next generation batch; with groupFilter, groups without spread are replaced. */
  async #generate(seconds: Record<string, number>): Promise<Buffer> {
    const { rl, batchSize } = this.config
    const size = batchSize * (rl.stepsPerGeneration ?? rl.gradientAccumulationSteps)
    const items: WorkItem[] = []
    const groups: Group[] = []
    for (let round = 0; round <= (rl.groupFilter ? rl.maxResampleTimes : 0); round++) {
      const needed = size - groups.length / this.run_.tasks.length
      if (needed < 1) break
      const encodedAt = performance.now()
      const fresh = workItems(this.run_.learner, this.config, await this.#take(Math.ceil(needed)), this.#store)
      seconds.encode = (seconds.encode ?? 0) + (performance.now() - encodedAt) / 1000
      const sampledAt = performance.now()
      const made = await sampleGroups(this.run_, fresh, this.#step)
      seconds.sample = (seconds.sample ?? 0) + (performance.now() - sampledAt) / 1000
      const last = round === rl.maxResampleTimes || !rl.groupFilter
      const kept = fresh.filter((item) => last || made.some((g) => g.item === item && g.hasSignal))
      release(fresh.filter((item) => !kept.includes(item)))
      items.push(...kept)
      groups.push(...made.filter((g) => kept.includes(g.item)))
    }
    if (this.#stepsPerBatch > 1) for (const g of groups) g.old = plainDensities(this.run_, g)
    return { groups, items, used: 0 }
  }

  /** Records of one batch differ: where an epoch ends inside it, or the set is smaller, it ends at the first that came before. */
  async #take(count: number): Promise<Example[]> {
    const { loader } = this.#records
    const out = new Map<string, Example>()
    while (out.size < count) {
      const before = loader.state()
      const example = await loader.next()
      if (out.has(example.id)) {
        loader.restore(before) // it is the next batch's
        break
      }
      out.set(example.id, example)
    }
    return [...out.values()]
  }

  /** The groups of this optimizer step: all, or the part of the generation batch whose turn it is. */
  #slice(buffer: Buffer): Group[] {
    const { numIterations } = this.config.rl
    const parts = this.#stepsPerBatch / numIterations
    if (parts === 1) return buffer.groups
    const part = buffer.used % parts
    const size = Math.ceil(buffer.items.length / parts)
    const mine = new Set(buffer.items.slice(part * size, (part + 1) * size))
    return buffer.groups.filter((g) => mine.has(g.item))
  }

  #learn(groups: readonly Group[], learningRate: number, report: StepReport): boolean {
    try {
      learn(this.run_, groups, learningRate, report)
      this.#checkGroups(report)
      return false
    } catch (error) {
      if (!(error instanceof NonFinite) || this.config.onNonFinite === 'stop') throw error
      this.#writer.warning(this.#step, 'non-finite', messageOf(error))
      log.warn(`step ${this.#step}: update skipped: ${messageOf(error)}`)
      return true
    }
  }

  /**
   * A trainable group whose gradient is exactly zero in the first steps is a defect, not a silence. LoRA A starts behind a zero B.
   * Judged in steps where every loop had rewards with spread; without any, #watchSpread speaks.
   */
  #checkGroups(report: StepReport): void {
    if (!this.config.checkGroups || this.#step < 1 || this.#step > 9) return
    if (this.run_.tasks.some(({ name }) => report.flat(name))) return
    const dead = Object.entries(report.groupNorms)
      .filter(([, norm]) => norm === 0)
      .map(([group]) => group)
    if (dead.length === 0) return
    throw new Mismatch({
      where: 'train',
      field: dead.join(', '),
      expected: 'a gradient from the enabled losses',
      got: `exactly 0 in step ${this.#step + 1}`,
      hint: 'leave the group out of `train`, or enable a loss that reaches it; a model that never says [SEG] draws no mask',
    })
  }

  /** Loops with the larger gradient get the smaller weight; both start at 1. */
  #balance(report: StepReport): void {
    if (!this.config.adaptiveLoops) return
    const { balance, tasks } = this.run_
    for (const [name, weighted] of report.taskNorms()) {
      const norm = weighted / balance[name]
      this.#norms[name] = this.#norms[name] === 0 ? norm : 0.9 * this.#norms[name] + 0.1 * norm
    }
    const mean = tasks.reduce((sum, { name }) => sum + this.#norms[name], 0) / tasks.length
    for (const { name } of tasks)
      if (this.#norms[name] > 0) balance[name] = Math.min(5, Math.max(0.2, mean / this.#norms[name]))
  }

  async #log(
    report: StepReport,
    learningRate: number,
    fresh: readonly Group[],
    seconds: Record<string, number>,
    startedAt: number,
  ): Promise<void> {
    const metrics = {
      ...report.metrics(learningRate),
      ...(this.config.rl.useAdaptiveEntropy ? { entropy_coef: this.run_.entropy.coef } : {}),
    }
    this.#watchSpread(metrics)
    const spent = (performance.now() - startedAt) / 1000
    const { tensors, bytes } = memory()
    const tokens = report.tokens
    this.#writer.step(this.#step, metrics, {
      step_time: spent,
      tokens_per_second: tokens / spent,
      live_tensors: tensors,
      live_bytes: bytes,
      ...Object.fromEntries(Object.entries(seconds).map(([k, v]) => [`seconds/${k}`, v])),
    })
    for (const group of fresh) this.#writer.samples(await this.#samples(group))
    const fields: Record<string, number> = {}
    for (const task of this.run_.tasks) fields[task.name] = report.rewardMean(task.name)
    fields.grad = report.gradNorm
    fields['tok/s'] = tokens / spent
    if (this.#step % this.config.logSteps === 0 || this.#step === this.#total)
      this.#host.progress({ kind: 'step', step: this.#step, total: this.#total, fields })
  }

  /** Rewards without spread at the very start mean the loop cannot learn; say so instead of training on nothing. */
  #watchSpread(metrics: Record<string, number>): void {
    const flat = this.run_.tasks.filter((t) => metrics[`${t.name}/frac_reward_zero_std`] === 1).map((t) => t.name)
    this.#flat = flat.length > 0 ? this.#flat + 1 : 0
    if (this.#flat === 3 && this.#step === 3) {
      const text = `${flat.join(' and ')}: in the first three steps the rewards of every group were equal: advantages are 0 and nothing is learned; see docs/troubleshooting.md`
      this.#writer.warning(this.#step, 'no-spread', text)
      log.warn(text)
    }
  }

  async #samples(group: Group): Promise<Sample[]> {
    const { example } = group.item
    const png = await encodePng(example.image)
    const image = this.#writer.image(example.id, () => png)
    const given = encodeRle(example.mask)
    return group.rollouts.map((r, k) => {
      const { madeMask, answerText } = group.answered[k]!
      return {
        step: this.#step,
        loop: group.task.name,
        id: example.id,
        k,
        text: r.text,
        ...(answerText === null ? {} : { answer: answerText }),
        reference: example.caption,
        given,
        made: madeMask ? encodeRle(madeMask) : null,
        rewards: group.scores[k]!.parts,
        total: group.scores[k]!.total,
        advantage: group.advantages[k]!,
        logp: r.logps.reduce((a, b) => a + b, 0),
        length: r.ids.length,
        ...(r.finished ? {} : { truncated: true }),
        image,
      }
    })
  }

  #checkpoint(): string {
    const name = `checkpoint_step_${this.#step}`
    this.#writer.checkpoint(this.#step, name)
    const buffer = this.#buffer ? { groups: this.#buffer.groups.map(storeGroup), next: this.#buffer.used } : null
    const path = saveRun(this.config.output, this.run_.learner, {
      version: 1,
      step: this.#step,
      fingerprint: fingerprintOf(this.config),
      loader: this.#records.loader.state(),
      position: this.#writer.position(),
      actionScale: this.run_.actionScale,
      balance: { ...this.run_.balance },
      norms: { ...this.#norms },
      entropy: this.run_.entropy,
      buffer,
      flat: this.#flat,
    })
    prune(this.config.output, this.config.saveTotalLimit)
    return path
  }

  async evaluate(name: string): Promise<Record<string, Interval> | null> {
    if (this.#held.length === 0) return null
    const context = { learner: this.run_.learner, config: this.config, actionScale: this.run_.actionScale }
    const scores = await evaluateAll(
      this.#held,
      this.config.evalBatch,
      (batch) => tidy(() => evaluateBatch(context, batch)),
      (done) => this.#host.progress({ kind: 'eval', text: name, step: done, total: this.#held.length }),
      () => this.#host.stopping(),
    )
    if (!scores) return null
    const result = summariseScores(scores, this.config.seed)
    this.#writer.eval(this.#step, name, scores.length, result)
    return result
  }

  async close(): Promise<void> {
    if (this.#buffer) release(this.#buffer.items)
    this.#writer.close()
    await this.#records.close()
    disposeAll(this.run_.learner)
  }
}

function disposeAll(learner: Learner): void {
  learner.dispose()
  for (const t of learner.loaded.model.parameters().values()) t.dispose()
}

/** Null when it was stopped before the last record: figures over a part would look like figures over all. */
export async function evaluateAll(
  examples: readonly Example[],
  batchSize: number,
  evaluate: (batch: readonly Example[]) => RecordScores[],
  onProgress: (done: number) => void,
  stopping: () => boolean = () => false,
): Promise<RecordScores[] | null> {
  const scores: RecordScores[] = []
  for (let at = 0; at < examples.length; at += batchSize) {
    scores.push(...evaluate(examples.slice(at, at + batchSize)))
    onProgress(scores.length)
    await new Promise((done) => setImmediate(done))
    if (stopping() && scores.length < examples.length) return null
  }
  return scores
}

/** Everything the stored features depend on: the checkpoint's files (by size and time of change) and the preprocessing. */
export function featureFingerprint(config: RunConfig, { loaded }: Pick<Learner, 'loaded'>): string {
  const { dir, cfg } = loaded
  const files = openWeights(dir).files.map((path) => {
    const { size, mtimeMs } = statSync(path)
    return [basename(path), size, mtimeMs]
  })
  return JSON.stringify({ dir, files, dtype: deviceOf(config).dtype, maxTiles: config.maxTiles, raw: cfg.raw })
}
