// What a run would do, without doing it: everything is opened, the first record is sampled and scored, nothing is written.
import { count } from '../nn/index.ts'
import { cuda, memory, resetPeak } from '../tensor/index.ts'
import { measureActionScale } from './action-scale.ts'
import { type GroupCount, Learner } from './learner.ts'
import { featureTensors, openRecords, readEvalRecords, release, workItems } from './records.ts'
import type { RunConfig } from './run-config.ts'
import { deviceOf } from './run-folder.ts'
import { type Group, learn, type Run, sampleGroups } from './step.ts'
import { StepReport } from './step-report.ts'
import { captionToMask, type WorkItem } from './tasks/index.ts'
import { type Host, openModel, runOf, totalSteps } from './trainer.ts'

export interface DryRunRow {
  loop: string
  id: string
  reference: string
  k: number
  text: string
  answer: string | null
  parts: Record<string, number | null>
  total: number | null
  advantage: number
  tokens: number
  finished: boolean
}

export interface DryRun {
  model: { dir: string; device: string; dtype: string; tensors: number; values: number }
  groups: GroupCount[]
  records: { format: string; all: number; train: number; held: number }
  steps: { total: number; recordsPerStep: number; completionsPerStep: number }
  action: { kind: string; noise: number } | null
  /** Bytes: what the weights and the optimizer take is exact; the last is what the first record needed at most. */
  memory: { frozen: number; trained: number; features: number; cache: number; peak: number }
  rows: DryRunRow[]
  gradNorms: Partial<Record<string, number>>
}

export async function dryRun(config: RunConfig, host: Host): Promise<DryRun> {
  host.progress({ kind: 'phase', text: `1 model ${config.model}` })
  const learner = new Learner(openModel(config), config)
  host.progress({ kind: 'phase', text: `2 records ${config.dataPath}` })
  const records = await openRecords(config)
  try {
    const held = await readEvalRecords(config)
    const run = runOf(config, learner, host)
    host.progress({ kind: 'phase', text: '3 first record: sample, score, differentiate' })
    const items = workItems(learner, config, [await records.loader.next()], null)
    const action = openAction(run, items)
    resetPeak()
    const groups = await sampleGroups(run, items, 0)
    const report = new StepReport()
    learn(run, groups, 0, report)
    const { gradientAccumulationSteps, numGenerations } = config.rl
    const recordsPerStep = config.batchSize * gradientAccumulationSteps
    const found: DryRun = {
      model: { dir: config.model, ...deviceOf(config), ...sizeOf(learner) },
      groups: learner.counts(),
      records: {
        format: records.source.format,
        all: records.source.length,
        train: records.loader.epochLength,
        held: held.length,
      },
      steps: {
        total: totalSteps(config, records.loader.epochLength),
        recordsPerStep,
        completionsPerStep: recordsPerStep * numGenerations * run.tasks.length,
      },
      action,
      memory: memoryOf(config, learner, items[0]!, groups),
      rows: groups.flatMap(rowsOf),
      gradNorms: report.groupNorms,
    }
    release(items)
    return found
  } finally {
    await records.close()
    learner.dispose()
  }
}

function openAction(run: Run, items: readonly WorkItem[]): DryRun['action'] {
  const { action } = run.config.loop2
  const acts = run.tasks.includes(captionToMask) && action !== 'text'
  run.actionScale = acts ? measureActionScale(run, items) : 1
  return acts ? { kind: action, noise: run.actionScale } : null
}

function sizeOf(learner: Learner): { tensors: number; values: number } {
  const { tensors, elements } = count(learner.loaded.model.parameters().values())
  return { tensors, values: elements }
}

function memoryOf(config: RunConfig, learner: Learner, item: WorkItem, groups: readonly Group[]): DryRun['memory'] {
  const all = count(learner.loaded.model.parameters().values()).bytes
  const trained = count(learner.params().values())
  const start = count(learner.start.values()).bytes
  const { llm } = learner.loaded.cfg
  const { device, dtype } = deviceOf(config)
  const grid = learner.loaded.prompter.grid ** 2 * item.features.tiles
  const length = grid + config.rl.maxCompletionLength + 64 // 64: the words of the question
  const rows = config.batchSize * config.rl.numGenerations
  const perToken = 2 * llm.num_hidden_layers * llm.num_key_value_heads * llm.head_dim * (dtype === 'float32' ? 4 : 2)
  const records =
    groups.length === 0 ? 0 : config.batchSize * (config.rl.stepsPerGeneration ?? config.rl.gradientAccumulationSteps)
  return {
    frozen: all - trained.bytes,
    // weight, gradient, two moments, EMA copy; and the start values where there is a KL term
    trained: 5 * trained.bytes + start,
    features: records * count(featureTensors(item.features)).bytes,
    cache: rows * length * perToken,
    peak: device.startsWith('cuda') ? cuda.memory().peak : memory().peakBytes,
  }
}

function rowsOf(group: Group): DryRunRow[] {
  return group.rollouts.map((r, k) => ({
    loop: group.task.name,
    id: group.item.example.id,
    reference: group.item.example.caption,
    k,
    text: r.text,
    answer: group.answered[k]?.answerText ?? null,
    parts: group.scores[k]!.parts,
    total: group.scores[k]!.total,
    advantage: group.advantages[k]!,
    tokens: r.ids.length,
    finished: r.finished,
  }))
}
