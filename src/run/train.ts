// Reinforcement learning as a run: batches, the step, its log.

import { Mismatch } from '../core/index.ts'
import { alone, type World } from '../distributed/index.ts'
import { type JudgeCount, judgeCount, judgedTasks, judgeMetrics, sumStates } from '../rewards/index.ts'
import { grpoWarnings, type Run, StepReport, Stopped, step } from '../rl/index.ts'
import { maskLogits } from '../sam/index.ts'
import type { TaskKind, WorkItem } from '../tasks/index.ts'
import { type Alarm, AlarmWatch, alarmPrefix, alarmText, type EvalEvent, type Metrics } from '../tracking/index.ts'
import { balanceOf, followNorm } from './balance.ts'
import { Batches, type NextBatch } from './batches.ts'
import type { RunConfig } from './config.ts'
import type { Host, RunResult } from './host.ts'
import { JudgeWatch } from './judge-watch.ts'
import { type Opened, runLoop, type StepLog, type Work, type WorkState } from './loop.ts'
import { memoryMetrics } from './memory-metrics.ts'
import { type Retry, withinMemory } from './memory-retry.ts'
import type { Notice } from './notices.ts'
import { overProcesses, type StepShare } from './over-processes.ts'
import { runOf, type Scoring } from './run-parts.ts'
import { SampleLog } from './samples.ts'
import { endlessRun, SkippedUpdates } from './skipped-updates.ts'
import { recordsTogether, rewardLines } from './start-up.ts'
import type { RunState } from './state.ts'
import { flatRewards } from './verdict.ts'

/** Trains to the end of the run, or until the host stops it; a run folder that holds a run is resumed. `finish` sees the trained model. */
export async function train(
  config: RunConfig,
  host: Host,
  finish?: (opened: Opened, result: RunResult) => void,
  world: World = alone,
): Promise<RunResult> {
  let work: TrainWork | undefined
  const options = {
    passes: config.rl.numIterations,
    together: recordsTogether(config),
    goal: (kind: TaskKind<RunConfig>) => rewardLines(kind, config),
    notices: (kind: TaskKind<RunConfig>) => settingNotices(config, kind),
    world,
    work: (opened: Opened) => {
      work = new TrainWork(opened, host)
      return work
    },
  }
  const result = await runLoop(config, host, options, finish)
  const judge = work?.judged
  return judge ? { ...result, judge } : result
}

/** Settings that work and may not do what was meant. */
function settingNotices(config: RunConfig, kind: TaskKind<RunConfig>): Notice[] {
  const { dropout } = config.lora
  const texts = [...grpoWarnings(config.rl), ...kind.rewards(config).notices.map((text) => `rewards: ${text}`)]
  if (dropout)
    // 0 is what happens
    texts.push(`lora.dropout ${dropout} acts in sft alone: reinforcement learning scores without dropout`)
  return texts.map((text) => ({ kind: 'settings', text }))
}

/** Abort with an error after this many steps without learning: continuing would look like success. */
const flatInRow = 20

/** Parts of a step that add up to its time: what none of them measured (reading records, counting) is `other`. */
function phases(seconds: Readonly<Record<string, number>>, spent: number): Record<string, number> {
  const measured = Object.values(seconds).reduce((sum, s) => sum + s, 0)
  const all = { ...seconds, other: Math.max(0, spent - measured) }
  return Object.fromEntries(Object.entries(all).map(([name, s]) => [`seconds/${name}`, s]))
}

class TrainWork implements Work {
  readonly #opened: Opened
  readonly #run: Run
  readonly #batches: Batches
  readonly #scoring: Scoring
  readonly #memory: Retry
  readonly #judge = new JudgeWatch()
  readonly #alarms = new AlarmWatch()
  readonly #samples: SampleLog
  #norms: Record<string, number>
  #measured: Record<string, RunState['tasks'][string]['state']>
  #flat = 0
  #noneLearns = 0
  readonly #skipped: SkippedUpdates
  #nan = maskLogits.nan
  #sentBefore = 0
  #sampledBefore = { processor: 0, worked: 0 }

  constructor(opened: Opened, host: Pick<Host, 'score'>) {
    this.#opened = opened
    const { config, encoder, kind, learner, records } = opened
    const tasks = kind.build(learner.family, config)
    this.#scoring = { step: 0, judge: null, judged: judgedTasks(kind.rewards(config).tasks) }
    this.#skipped = new SkippedUpdates('train', opened)
    this.#samples = new SampleLog(opened)
    const report = (text: string) => opened.notices.report({ kind: 'memory', text })
    this.#memory = { alone: opened.world.size === 1, report }
    this.#run = {
      ...runOf(config, tasks, learner, encoder, host, this.#scoring, opened.world),
      meanwhile: (groups) => this.#samples.prepare(groups, this.#scoring.step),
    }
    this.#batches = new Batches(this.#run, config, records, encoder, this.#memory)
    this.#norms = Object.fromEntries(tasks.map((t) => [t.name, 0]))
    this.#measured = Object.fromEntries(tasks.map((t) => [t.name, null]))
  }

  get facts() {
    return { tasks: this.#run.tasks.map(({ name, title }) => ({ name, title })) }
  }

  /** Of all processes, after the last step. */
  judged: JudgeCount | null = null

  /** Tasks measure what they need on held-out records; without any, on the first to train on. */
  async begin(): Promise<void> {
    const { heldOut, records, encoder, host } = this.#opened
    const tasks = this.#run.tasks
    if (tasks.some((t) => t.opens)) {
      const open = (items: readonly WorkItem[]) => {
        for (const task of tasks) this.#measured[task.name] = task.open(items)
      }
      if (heldOut.length > 0) encoder.again(heldOut.slice(0, 32), open)
      else {
        const place = records.loader.state()
        encoder.with([await records.loader.next()], open)
        records.loader.restore(place)
      }
    }
    const [first] = await this.#run.world.gather(this.#measured) // the same everywhere, also on devices that round differently
    this.#measured = first!
    if (this.#run.world.rank > 0)
      for (const task of tasks) if (this.#measured[task.name] !== null) task.reopen(this.#measured[task.name]!)
    for (const text of tasks.map((t) => t.describe())) if (text) host.progress({ kind: 'note', text: `  ${text}` })
  }

  /** A step that was stopped while it was scored leaves the data where it began. */
  async step(number: number, learningRate: number): Promise<StepLog> {
    const undo = this.#batches.mark()
    try {
      return await this.#step(number, learningRate)
    } catch (error) {
      if (error instanceof Stopped) undo()
      throw error
    }
  }

  async #step(number: number, learningRate: number): Promise<StepLog> {
    const startedAt = performance.now()
    const seconds: Record<string, number> = {}
    const { encoder } = this.#opened
    const { world } = this.#run
    const waited = [world.waited]
    const encodedBefore = encoder.seconds
    this.#scoring.step = number + 1
    const { batch, fresh, decoded } = await this.#batches.next(number, seconds)
    waited.push(world.waited)
    const [learnedAt, encodedAt] = [performance.now(), encoder.seconds]
    const { report, updated } = await this.#learn(number, batch, learningRate)
    waited.push(world.waited)
    const learning = (performance.now() - learnedAt) / 1000 - (encoder.seconds - encodedAt)
    if (world.sent > 0) seconds.reduce = report.reduceSeconds
    seconds.learn = learning - report.reduceSeconds - report.scoreSeconds
    seconds.score = report.scoreSeconds
    seconds.encode = encoder.seconds - encodedBefore
    this.#batches.release(batch.pieces as never)
    if (updated) this.#balance(report)
    const spent = (performance.now() - startedAt) / 1000
    const waits: Metrics =
      world.size > 1 ? { 'wait/sample': waited[1]! - waited[0]!, 'wait/learn': waited[2]! - waited[1]! } : {}
    const own = this.#measure({ step_time: spent, ...phases(seconds, spent), ...waits })
    const all = await world.gather({ ...own, samples: await this.#samples.share(fresh, number + 1) })
    const log = this.#log(report, learningRate, decoded, this.#overProcesses(all))
    this.#watchJudge()
    this.#raise(this.#alarms.afterStep(this.#samples.write(fresh, all)))
    this.#watchSpread(number + 1, report)
    return log
  }

  #watchJudge(): void {
    const warning = this.#judge.afterStep(this.judged)
    if (warning && this.#run.world.rank === 0) this.#opened.notices.report({ kind: 'judge', text: warning })
  }

  async #learn(number: number, batch: NextBatch['batch'], learningRate: number) {
    let report = new StepReport()
    try {
      const learned = (pieces: typeof batch.pieces) => {
        report = new StepReport()
        return step(this.#run, { ...batch, pieces }, learningRate, report)
      }
      await withinMemory(batch.pieces, learned, this.#memory)
      this.#checkGroups(number, report)
      this.#skipped.applied()
      return { report, updated: true }
    } catch (error) {
      this.#skipped.skip(number + 1, error)
      for (const task of this.#run.tasks) await batch.ready?.(task) // of those after the one that failed
      return { report, updated: false }
    }
  }

  /**
   * Abort if the gradient of a trainable group is exactly zero in the first steps. Not in step 1, where LoRA B is zero and A gets no
   * gradient; and only if every task had rewards that differ (else see #watchSpread).
   */
  #checkGroups(number: number, report: StepReport): void {
    if (!this.#opened.config.checkGroups || number < 1 || number > 9) return
    if (this.#run.tasks.some(({ name }) => report.flat(name))) return
    const dead = Object.entries(report.groupNorms)
      .filter(([, norm]) => norm === 0)
      .map(([group]) => group)
    if (dead.length === 0) return
    throw new Mismatch({
      where: 'train',
      field: dead.join(', '),
      expected: 'a gradient from the enabled losses',
      got: `exactly 0 in step ${number + 1}`,
      hint: 'leave the group out of `train`, or enable a loss that reaches it; a model that never says [SEG] draws no mask',
    })
  }

  /** Tasks with the larger gradient get the smaller weight; all start at 1. */
  #balance(report: StepReport): void {
    if (!this.#opened.config.adaptiveLoops) return
    for (const [name, norm] of report.taskNorms) this.#norms[name] = followNorm(this.#norms[name]!, norm)
    Object.assign(this.#run.balance, balanceOf(this.#norms))
  }

  #log(report: StepReport, learningRate: number, decoded: number, measured: Metrics): StepLog {
    const { useAdaptiveEntropy } = this.#opened.config.rl
    const { 'iou/nan': nan, ...clocks } = measured
    const metrics = {
      ...report.metrics(learningRate),
      'iou/nan': nan!,
      ...(useAdaptiveEntropy ? { entropy_coef: this.#run.entropy.coef } : {}),
    }
    const tokensPerSecond = decoded / clocks.step_time!
    const timing = { ...clocks, tokens_per_second: tokensPerSecond }
    const fields: Record<string, number> = {}
    for (const { name } of this.#run.tasks) fields[name] = report.rewardMean(name)
    fields.grad = report.gradNorm
    fields['tok/s'] = tokensPerSecond
    return { metrics, timing, fields }
  }

  /** Clocks, counts and memory of this process in this step; the judge's counts are those since the start. */
  #measure(clocks: Metrics): StepShare {
    const { encoder, learner } = this.#opened
    const { store } = encoder
    const sampled = this.#sampled()
    const nan = maskLogits.nan - this.#nan
    this.#nan = maskLogits.nan
    const mean = { ...clocks, ...sampled.mean }
    const sum = { 'iou/nan': nan, ...(store ? { 'features/hits': store.hits, 'features/misses': store.misses } : {}) }
    const max = { ...memoryMetrics(learner.family.placement.device), ...this.#sent(), ...sampled.max }
    return { measured: { mean, sum, max }, judge: this.#scoring.judge }
  }

  #overProcesses(all: readonly StepShare[]): Metrics {
    const judge = sumStates(all.map((one) => one.judge))
    this.judged = judge && judgeCount(judge)
    return { ...overProcesses(all.map((one) => one.measured)), ...(judge ? judgeMetrics(judge) : {}) }
  }

  /** Since the last step; with several processes also how evenly they shared the work. */
  #sampled(): { mean: Metrics; max: Metrics } {
    const before = this.#sampledBefore
    const now = { ...this.#batches.sampled }
    this.#sampledBefore = now
    const max = { 'processor_seconds/sample': now.processor - before.processor }
    if (this.#run.world.size === 1) return { mean: {}, max }
    const worked = now.worked - before.worked
    return { mean: { 'ranks/sample_mean': worked }, max: { ...max, 'ranks/sample_slowest': worked } }
  }

  /** Bytes since the last step; nothing without a group. */
  #sent(): Record<string, number> {
    const { sent } = this.#run.world
    const before = this.#sentBefore
    this.#sentBefore = sent
    return sent > 0 ? { bytes_sent: sent - before } : {}
  }

  /** Rewards without spread mean that a task cannot learn: a warning at the very start, an error while no task learns. */
  #watchSpread(done: number, report: StepReport): void {
    const asked = this.#run.tasks.map((t) => t.name).filter((name) => report.hasGroups(name))
    const flat = asked.filter((name) => report.flat(name))
    this.#flat = flat.length > 0 ? this.#flat + 1 : 0
    this.#noneLearns = flat.length > 0 && flat.length === asked.length ? this.#noneLearns + 1 : 0
    if (this.#noneLearns >= flatInRow) {
      const hint =
        'every advantage was 0; look at samples.jsonl: do the samples differ, and does the reward tell them apart?'
      throw endlessRun(
        'train',
        `${flatInRow} steps in a row in which the rewards of ${flat.join(' and ')} were all equal`,
        hint,
      )
    }
    if (this.#flat !== 3 || done !== 3) return
    this.#opened.notices.report({ kind: 'no-spread', text: flatRewards(flat, 'the first three steps') })
  }

  #raise(alarms: readonly Alarm[]): void {
    for (const alarm of alarms)
      this.#opened.notices.report({ ...alarm, kind: `${alarmPrefix}${alarm.kind}`, text: alarmText(alarm) })
  }

  evaluated(event: EvalEvent): void {
    this.#raise(this.#alarms.afterEvaluation(event))
  }

  evaluating<R>(fn: () => R): R {
    return this.#opened.learner.forSampling(fn)
  }

  async state(): Promise<WorkState> {
    const tasks = this.#run.tasks.map(({ name }) => {
      return [name, { balance: this.#run.balance[name]!, norm: this.#norms[name]!, state: this.#measured[name]! }]
    })
    return {
      tasks: Object.fromEntries(tasks),
      entropy: this.#run.entropy,
      generation: await this.#batches.state(),
      flat: this.#flat,
      noneLearns: this.#noneLearns,
      ...(this.#run.world.size > 1 ? { costs: this.#run.costs.state() } : {}),
    }
  }

  async restore({ tasks, entropy, generation, flat, noneLearns, costs }: RunState): Promise<void> {
    for (const task of this.#run.tasks) {
      const stored = tasks[task.name]
      if (!stored) continue
      this.#run.balance[task.name] = stored.balance
      this.#norms[task.name] = stored.norm
      this.#measured[task.name] = stored.state
      if (stored.state !== null) task.reopen(stored.state)
    }
    this.#run.entropy = entropy ?? this.#run.entropy
    this.#flat = flat
    this.#noneLearns = noneLearns ?? 0
    if (costs) this.#run.costs.restore(costs)
    if (generation) await this.#batches.restore(generation)
    if (this.#opened.world.rank === 0) this.#alarms.restore(this.#opened.config.output)
  }

  close(): void {
    this.#batches.close()
  }
}
