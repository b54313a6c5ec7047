// What a run would do, without doing it: everything is opened, the first record is sampled and scored, nothing is written.
import { isGrounded, isLanguage, type LanguageFamily } from '../models/index.ts'
import { count } from '../nn/index.ts'
import { type JudgeCount, judgeCount } from '../rewards/index.ts'
import { type Batch, type Group, type Run, sampleAndScore, step } from '../rl/index.ts'
import { openKind, type TaskKind, type WorkItem } from '../tasks/index.ts'
import { cuda, memory, resetPeak } from '../tensor/index.ts'
import type { RunConfig } from './config.ts'
import { deviceOf, openModel } from './device.ts'
import { Encoder } from './features.ts'
import { planOnGpu } from './gpu-plan.ts'
import type { Host } from './host.ts'
import { type GroupCount, Learner } from './learner.ts'
import type { Opened } from './loop.ts'
import { disposeLearner } from './loop.ts'
import { checkSources, openRecords, type Records, splitText } from './records.ts'
import { runOf, type Scoring } from './run-parts.ts'
import { idleProcesses, recordsTogether, totalSteps } from './start-up.ts'
import { lacksSpread, sampleUntilSpread, type Verdict, verdictOf } from './verdict.ts'

export interface DryRunRow {
  task: string
  id: string
  reference: string
  k: number
  text: string
  answer: string | null
  parts: Readonly<Record<string, number | null>>
  total: number | null
  advantage: number
  tokens: number
  finished: boolean
}

export interface DryRun {
  model: { dir: string; device: string; dtype: string; tensors: number; values: number }
  groups: GroupCount[]
  records: { format: string; all: number; train: number; heldOut: number; split: string }
  steps: { total: number; recordsPerStep: number; completionsPerStep: number; processes: number; idleProcesses: number }
  /** What a user should know before the start. */
  notices: string[]
  /** What the tasks measured at the start, as text. */
  measured: string[]
  /**
   * Bytes of one process: what the weights and the optimizer take is exact; `peak` is what the first record needed at most. The records of a batch
   * are learned from in one pass: `batch` is planned on a GPU (memory-plan.ts); elsewhere what one record needs on top is taken as often
   * as there are records.
   */
  memory: { frozen: number; trained: number; features: number; cache: number; peak: number; batch: number }
  rows: DryRunRow[]
  /** Captions that the judge scored; null: no judge is asked. */
  judge: JudgeCount | null
  gradNorms: Record<string, number>
  /** Whether this model can learn from these records, and why not. */
  verdict: Verdict
}

export async function dryRun(config: RunConfig, host: Host, processes = 1): Promise<DryRun> {
  const kind = (await openKind(config.task)) as TaskKind<RunConfig>
  await checkSources(config, kind.recordRules?.(config) ?? {})
  host.progress({ kind: 'phase', text: `1 model ${config.model}` })
  const learner = new Learner(openModel(config), config, { processes })
  let records: Records | null = null
  try {
    host.progress({ kind: 'phase', text: `2 records ${config.dataPath}` })
    records = await openRecords(config, { rules: kind.recordRules?.(config) })
    const encoder = new Encoder(learner.family, config)
    const scoring: Scoring = { step: 0, judge: null }
    const run = runOf(config, kind.build(learner.family, config), learner, encoder, host, scoring)
    host.progress({ kind: 'phase', text: '3 first record: sample, score, differentiate' })
    const items = encoder.items([await records.loader.next()])
    try {
      const found = await tryRecord({ config, learner, records, run, encoder, item: items[0]!, processes })
      return { ...found, judge: scoring.judge && judgeCount(scoring.judge) }
    } finally {
      encoder.release(items)
    }
  } finally {
    await records?.close()
    kind.close?.(learner.family)
    disposeLearner(learner)
  }
}

interface Trial extends Pick<Opened, 'config' | 'learner' | 'records' | 'encoder'> {
  run: Run
  item: WorkItem
  processes: number
}

/** One record through a whole step with learning rate 0. */
async function tryRecord(trial: Trial): Promise<Omit<DryRun, 'judge'>> {
  const { config, learner, records, run, encoder, item, processes } = trial
  encoder.inWork([item], () => {
    for (const task of run.tasks) if (task.opens) task.open([item])
  })
  resetPeak()
  const before = bytesOn(deviceOf(config).device).live
  const batch: Batch = { draw: { seed: config.seed, step: 0 }, pieces: [[item]] }
  const groups = await sampleAndScore(run, batch)
  const report = await step(run, { ...batch, groups }, 0)
  const { rl, batchSize } = config
  const recordsPerStep = batchSize * rl.gradientAccumulationSteps
  const { source, loader } = records
  const { idle, notices } = idleProcesses(processes, Math.min(recordsTogether(config), loader.epochLength))
  const verdictAfter = async (first: Group[]) => {
    let left = loader.epochLength - 1
    const next = async () => (left-- > 0 ? loader.next() : null)
    const all = await sampleUntilSpread(run, encoder, config.seed, next, first)
    return verdictOf(all, lacksSpread(first).length === 0 ? report.groupNorms : {})
  }
  return {
    model: { dir: config.model, ...deviceOf(config), ...sizeOf(learner) },
    groups: learner.counts(),
    records: {
      format: source.format,
      all: source.length,
      train: loader.epochLength,
      heldOut: records.facts.held_out ?? 0,
      split: splitText(records, config),
    },
    steps: {
      total: totalSteps(config, loader.epochLength, rl.numIterations),
      recordsPerStep,
      completionsPerStep: recordsPerStep * rl.numGenerations * run.tasks.length,
      processes,
      idleProcesses: idle,
    },
    notices: notices.map(({ text }) => text),
    measured: run.tasks.flatMap((task) => task.describe() ?? []),
    memory: memoryOf(trial, before),
    rows: groups.flatMap(rowsOf),
    gradNorms: report.groupNorms,
    verdict: await verdictAfter(groups),
  }
}

function sizeOf(learner: Learner): { tensors: number; values: number } {
  const { tensors, elements } = count(learner.family.module.parameters().values())
  return { tensors, values: elements }
}

/** In tensors now, and at most since the count began. */
function bytesOn(device: string): { live: number; peak: number } {
  if (!device.startsWith('cuda')) return { live: memory().bytes, peak: memory().peakBytes }
  const { allocated, peak } = cuda.memory()
  return { live: allocated, peak }
}

function memoryOf({ learner, item, processes, ...trial }: Trial, before: number): DryRun['memory'] {
  const config = { ...trial.config, batchSize: Math.ceil(trial.config.batchSize / processes) }
  const { family } = learner
  const all = count(family.module.parameters().values()).bytes
  const trained = count(learner.params().values())
  const start = count(learner.start.values()).bytes
  const { device } = deviceOf(config)
  const { peak } = bytesOn(device)
  const planned = device.startsWith('cuda') && isGrounded(family) ? planOnGpu(trial.config, family, processes) : null
  return {
    frozen: all - trained.bytes,
    // weight, gradient, two moments, EMA copy; and the start values if there is a KL term
    trained: 5 * trained.bytes + start,
    features: config.batchSize * count(Object.values(family.tensorsOf(item.features))).bytes,
    cache: isLanguage(family) ? cacheBytes(config, family, item) : 0,
    peak,
    batch: planned ?? before + config.batchSize * (peak - before),
  }
}

function cacheBytes(config: RunConfig, { sizes }: LanguageFamily, { features }: WorkItem): number {
  const { maxCompletionLength, numGenerations } = config.rl
  const length = sizes.imageTokens(features) + maxCompletionLength + 64 // 64: the words of the question
  return (
    config.batchSize * numGenerations * length * sizes.cacheBytesPerToken(deviceOf(config).dtype === 'float32' ? 4 : 2)
  )
}

function rowsOf(group: Group): DryRunRow[] {
  const { example } = group.item as WorkItem
  return group.samples.map((s, k) => ({
    task: group.task.name,
    id: example.id,
    reference: example.caption,
    k,
    text: s.text,
    answer: (group.replies[k] as { text?: string | null } | undefined)?.text ?? null,
    parts: group.scores[k]!.parts,
    total: group.scores[k]!.total,
    advantage: group.advantages[k]!,
    tokens: s.ids.length,
    finished: s.finished,
  }))
}
