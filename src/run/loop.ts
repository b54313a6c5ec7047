// The loop of any run: open, resume, evaluate, step, save, stop. What a step does is in train.ts or sft.ts.
import { join } from 'node:path'
import { checkpointName, prune } from '../checkpoint/index.ts'
import type { Example } from '../data/index.ts'
import { alone, requireSameSettings, requireSameValues, type World } from '../distributed/index.ts'
import { learningRateAt } from '../optim/index.ts'
import { Stopped } from '../rl/index.ts'
import { openKind, type TaskKind } from '../tasks/index.ts'
import type { EvalEvent, Interval, Metrics } from '../tracking/index.ts'
import type { RunConfig } from './config.ts'
import { disposeModel, openModel, placeNotices } from './device.ts'
import { evaluateAll } from './evaluate-all.ts'
import { EvaluationLog } from './evaluation-log.ts'
import { Encoder, preparationOf } from './features.ts'
import type { Settings } from './flat-settings.ts'
import { checkFolder, openSharedFolder, type ResumedRun, type RunLog, requireTrackers } from './folder.ts'
import { type LoopHost, quiet, type RunResult } from './host.ts'
import { decidingSettings } from './identity.ts'
import { Learner, type LearnerOptions } from './learner.ts'
import type { RunLock } from './lock.ts'
import { describeMemoryError } from './memory-retry.ts'
import { type Notice, Notices } from './notices.ts'
import { checkSources, describeRejects, openRecords, type Records, recordFacts, splitText } from './records.ts'
import { retrySave, saveTimeoutOf } from './retry-save.ts'
import {
  idleProcesses,
  reportDisk,
  reportEnvironment,
  reportNote,
  reportStep,
  reportTrainables,
  reportTrainer,
  totalSteps,
} from './start-up.ts'
import { loadRun, type RunState, saveRun } from './state.ts'

/** Everything a run has open. */
export interface Opened {
  readonly config: RunConfig
  readonly host: LoopHost
  readonly kind: TaskKind<RunConfig>
  readonly learner: Learner
  readonly encoder: Encoder
  readonly records: Records
  readonly heldOut: readonly Example[]
  readonly writer: RunLog
  readonly lock: RunLock
  readonly world: World
  readonly notices: Notices
  /** Optimizer steps of the run. */
  readonly total: number
}

/** Results of a step: metrics for the log, clocks for the timing file, a few fields for the status line. */
export interface StepLog {
  metrics: Metrics
  timing: Metrics
  fields: Record<string, number>
}

/** What a checkpoint keeps of the work, besides weights and positions. */
export type WorkState = Pick<RunState, 'tasks' | 'entropy' | 'generation' | 'flat' | 'noneLearns' | 'costs'>

/** What is done in a step. */
export interface Work {
  /** Facts of the start event. */
  readonly facts: Readonly<Record<string, unknown>>
  /** Before the first step of a new run. */
  begin(): Promise<void>
  step(step: number, learningRate: number): Promise<StepLog>
  /** Weights as they are evaluated: dropout takes no part. */
  evaluating<R>(fn: () => R): R
  evaluated?(event: EvalEvent): void
  state(): Promise<WorkState>
  restore(state: RunState): Promise<void>
  close(): void
}

export interface LoopOptions extends LearnerOptions {
  /** Passes over each record, for the length of the run. */
  passes: number
  /** Settings of this kind of run that decide its numbers. */
  settings?: Settings
  /** Records of a step that its processes share. */
  together: number
  /** What the run learns from, a line each. */
  goal(kind: TaskKind<RunConfig>): readonly string[]
  /** What a user should know about the settings. */
  notices?(kind: TaskKind<RunConfig>): Notice[]
  work(opened: Opened): Work
}

/** Runs the work to its end, or to where it is stopped; `finish` sees the trained model before it is freed. */
export async function runLoop(
  config: RunConfig,
  host: LoopHost,
  options: LoopOptions,
  finish: (opened: Opened, result: RunResult) => void = () => undefined,
): Promise<RunResult> {
  const loop = await RunLoop.open(config, host, options)
  try {
    const result = await loop.run()
    finish(loop.opened, result)
    return result
  } finally {
    await loop.close()
  }
}

class RunLoop {
  readonly opened: Opened
  readonly #work: Work
  readonly #settings: Settings
  readonly #evaluations: EvaluationLog
  #step = 0
  #resumed: ResumedRun | null = null
  #rejected = 0

  private constructor(opened: Opened, work: Work, settings: Settings) {
    this.opened = opened
    this.#work = work
    this.#settings = settings
    this.#evaluations = new EvaluationLog(opened.kind.evaluator(opened.learner.family, opened.config), opened)
  }

  static async open(config: RunConfig, given: LoopHost, options: LoopOptions): Promise<RunLoop> {
    const world = options.world ?? alone
    const host = world.rank === 0 ? given : quiet(given)
    const kind = (await openKind(config.task)) as TaskKind<RunConfig>
    kind.check(config)
    const goal = options.goal(kind)
    if (world.rank === 0) checkFolder(config) // before minutes of loading
    await checkSources(config, kind.recordRules?.(config) ?? {})
    reportEnvironment(config, host)
    reportStep(host, 'model', config.model)
    const { everything, dropout } = options
    const learner = new Learner(openModel(config, world), config, { everything, dropout, world })
    let records: Records | null = null
    try {
      reportTrainables(learner, config, host)
      reportStep(host, 'records', config.dataPath)
      records = await openRecords(config, {
        preparation: preparationOf(learner.family, config, kind),
        rules: kind.recordRules?.(config),
        chooser: kind.chooser?.(learner.family, config),
      })
      return await RunLoop.#assemble(config, host, options, { kind, learner, records }, goal)
    } catch (error) {
      await records?.close()
      kind.close?.(learner.family)
      disposeLearner(learner)
      throw error
    }
  }

  static async #assemble(
    config: RunConfig,
    host: LoopHost,
    options: LoopOptions,
    parts: Pick<Opened, 'kind' | 'learner' | 'records'>,
    [goal, ...more]: readonly string[],
  ): Promise<RunLoop> {
    const { heldOut, loader, source } = parts.records
    const total = totalSteps(config, loader.epochLength, options.passes)
    reportNote(host, `${source.length} records (${source.format}): ${splitText(parts.records, config)}`)
    const world = options.world ?? alone
    reportStep(host, 'rewards', goal ?? 'none')
    for (const line of more) reportNote(host, line)
    reportTrainer(config, total, world.size, host)
    const settings = decidingSettings(config, total, options.settings, world.size)
    await requireSameSettings(world, { ...settings, ...recordFacts(parts.records) })
    const { gradientAccumulationSteps, stepsPerGeneration } = config.rl
    const pieces = Math.max(gradientAccumulationSteps, stepsPerGeneration ?? 1)
    const encoder = new Encoder(parts.learner.family, config, {
      keeps: pieces === 1,
      encodes: !parts.kind.readsImages,
      frozen: !options.everything,
    })
    const notices = new Notices(host)
    const { notices: idle } = idleProcesses(world.size, Math.min(options.together, loader.epochLength))
    const known = [...placeNotices(), ...parts.records.notices, ...(options.notices?.(parts.kind) ?? [])]
    if (world.rank === 0) known.push(...idle)
    for (const notice of known) notices.report(notice)
    const { lock, writer, resumed } = await openSharedFolder(config, settings, world)
    notices.open(writer, !resumed)
    reportStep(host, 'folder', resumed ? `${config.output}: resume ${resumed.path}` : `${config.output}: a new run`)
    reportDisk(parts.learner, config, host)
    const opened: Opened = { config, host, ...parts, encoder, heldOut, writer, lock, notices, total, world }
    try {
      const loop = new RunLoop(opened, options.work(opened), settings)
      if (resumed) await loop.#restore(resumed)
      await requireSameValues(world, parts.learner.params(), 'weights at the start')
      return loop
    } catch (error) {
      await writer.close()
      lock.release()
      throw error
    }
  }

  async #restore(resumed: ResumedRun): Promise<void> {
    const [{ learner, records, world }, { path, state }] = [this.opened, resumed]
    if (world.rank === 0) this.#evaluations.restore()
    this.#resumed = resumed
    loadRun(path, learner)
    this.#step = state.step
    records.loader.restore(state.loader)
    this.#rejected = Object.values(records.loader.rejects).reduce((a, b) => a + b, 0)
    await this.#work.restore(state)
  }

  async run(): Promise<RunResult> {
    const { config, host, records, writer, total } = this.opened
    const fresh = this.#resumed === null
    if (fresh) {
      writer.start({ total, ...records.facts, ...this.#work.facts })
      await this.#work.begin()
    } else if (this.#resumed?.facts.total !== total) writer.start({ total }, this.#step)
    const before = fresh ? await this.#evaluate('before') : (this.#resumed?.before ?? null)
    if (fresh && !(await this.#stopping())) await this.#checkpoint()
    let saved: string | null = null
    let since = 0
    reportStep(host, 'training', `step ${this.#step} of ${total}`)
    while (this.#step < total && !(await this.#stopping())) {
      if (!(await this.#unlessStopped(() => this.#oneStep()))) break
      since++
      if (config.evalSteps > 0 && this.#step % config.evalSteps === 0 && this.#step < total)
        await this.#evaluate(`step ${this.#step}`)
      if (config.saveSteps > 0 && this.#step % config.saveSteps === 0) {
        saved = await this.#checkpoint()
        since = 0
      }
      await host.yieldToLoop()
    }
    const stopped = this.#step < total
    reportStep(host, 'saving', join(config.output, checkpointName(this.#step)))
    if (since > 0) saved = await this.#checkpoint()
    const after = stopped ? null : await this.#evaluate('after')
    writer.stop(this.#step, stopped ? 'stopped' : 'done')
    if (stopped) await requireTrackers(this.opened, this.#step)
    return { step: this.#step, stopped, before, after, evaluated: this.opened.heldOut.length, checkpoint: saved }
  }

  /** False when the step was given up because the run is to end. */
  async #unlessStopped(step: () => Promise<void>): Promise<boolean> {
    try {
      await step()
      return true
    } catch (error) {
      if (error instanceof Stopped) return false
      throw error
    }
  }

  /** Any process's wish stops all of them at the same place. */
  async #stopping(): Promise<boolean> {
    const { host, world, writer } = this.opened
    return (await world.agree([host.stopping() || writer.trackerAway !== null]))[0]!
  }

  async #oneStep(): Promise<void> {
    const { config, host, notices, total, world, writer } = this.opened
    world.note(this.#step + 1, 'step')
    const learningRate = learningRateAt(this.#step, config.optim, total)
    notices.at(this.#step + 1)
    const { metrics, timing, fields } = await this.#work.step(this.#step, learningRate).catch(describeMemoryError)
    this.#step++
    this.opened.lock.touch()
    this.#reportRejects()
    writer.step(this.#step, metrics, timing)
    if (this.#step % config.logSteps === 0 || this.#step === total)
      host.progress({ kind: 'step', step: this.#step, total, fields })
  }

  /** Records that could not be used since the last step, with their places, and the reasons of all. */
  #reportRejects(): void {
    const { loader } = this.opened.records
    const count = Object.values(loader.rejects).reduce((a, b) => a + b, 0)
    const fresh = count - this.#rejected
    this.#rejected = count
    if (fresh === 0) return
    const text = describeRejects(loader, fresh)
    this.opened.notices.report({ kind: 'bad-record', text, count: fresh })
  }

  /** Rank 0 writes and the others wait. Weights that differ between processes are never written. */
  async #checkpoint(): Promise<string> {
    const { config, host, learner, notices, records, world, writer } = this.opened
    world.note(this.#step, 'checkpoint')
    await requireSameValues(world, learner.params(), `step ${this.#step}`)
    writer.checkpoint(this.#step, checkpointName(this.#step))
    const work = await this.#work.state()
    const optimizer = await learner.optimizerState(world)
    const save = () => {
      const settings = this.#settings
      const place = { loader: records.loader.state(), position: writer.position() }
      const state: RunState = { version: 2, step: this.#step, settings, ...place, ...work }
      saveRun(config.output, learner, state, () => optimizer.tensors)
      prune(config.output, config.saveTotalLimit)
    }
    const stopping = () => host.stopping()
    const report = (notice: Notice) => notices.report(notice)
    const seconds = saveTimeoutOf(config, world.size)
    const write = async () => world.rank === 0 && retrySave(save, { seconds, stopping, report })
    try {
      await learner.whileWhole('ema', world, () => learner.whileWhole('reference', world, write))
    } finally {
      optimizer.release()
    }
    await world.barrier()
    return join(config.output, checkpointName(this.#step))
  }

  async #evaluate(name: string): Promise<Record<string, Interval> | null> {
    const { config, encoder, heldOut, host, world } = this.opened
    if (heldOut.length === 0) return null
    world.note(this.#step, `evaluation ${name}`)
    const scores = await evaluateAll(
      heldOut,
      config.evalBatch,
      (batch) => this.#work.evaluating(() => encoder.again(batch, (items) => this.#evaluations.evaluator.score(items))),
      (done) => host.progress({ kind: 'eval', text: name, step: done, total: heldOut.length }),
      () => host.stopping(),
      world,
    )
    if (!scores) return null
    const metrics = await this.#evaluations.write(this.#step, name, scores)
    this.#work.evaluated?.({ t: 'eval', step: this.#step, name, records: scores.length, metrics })
    return metrics
  }

  async close(): Promise<void> {
    const { encoder, kind, learner, lock, records, writer } = this.opened
    this.#work.close()
    encoder.close()
    await writer.close()
    lock.release()
    await records.close()
    kind.close?.(learner.family)
    disposeLearner(learner)
  }
}

export function disposeLearner(learner: Learner): void {
  learner.dispose()
  disposeModel(learner.family)
}
