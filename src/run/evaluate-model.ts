// Evaluation of a folder, without a run: records are read as they come, none is kept.
import { log } from '../core/index.ts'
import { type Example, openLoader, splitIndices } from '../data/index.ts'
import { type Evaluator, openKind, type RecordScore, type TaskKind } from '../tasks/index.ts'
import type { Interval } from '../tracking/index.ts'
import type { RunConfig } from './config.ts'
import { disposeModel, openModel } from './device.ts'
import { evaluateAll } from './evaluate-all.ts'
import { Encoder, preparationOf } from './features.ts'
import type { Host } from './host.ts'
import { loadTrained } from './load-trained.ts'
import { checkSources } from './records.ts'
import { openRunSource } from './sources.ts'
import { countTrained } from './trained-records.ts'

/** What to evaluate. */
export interface EvaluateModelOptions {
  /** Checkpoint, run or adapter folder on top of the model; null: the model as it is. */
  adapter: string | null
  ema: boolean
  /** At most this many records; null: all. */
  records: number | null
  /** Folder of the run that trained the adapter, to compare its records with; null: none is known. */
  run?: string | null
}

/** Held-out metrics of a model, and the scores of each record. */
export interface ModelEvaluation {
  model: string
  adapter: string | null
  records: number
  /** Those of the records that the run trained on; null: not known. */
  trainedOn: number | null
  metrics: Record<string, Interval>
  scores: RecordScore[]
  stopped: boolean
}

/** Sees the records of each batch with their scores. */
export type Seen = (scores: readonly RecordScore[], examples: readonly Example[], evaluator: Evaluator) => unknown

export async function evaluateModel(
  config: RunConfig,
  options: EvaluateModelOptions,
  host: Pick<Host, 'progress' | 'stopping'>,
  seen: Seen = () => undefined,
): Promise<ModelEvaluation> {
  const kind = (await openKind(config.task)) as TaskKind<RunConfig>
  await checkSources(config, kind.recordRules?.(config) ?? {})
  const family = openModel(config)
  const evaluator = kind.evaluator(family, config) // before trained weights are placed: it may compare them with the start
  const adapter = options.adapter ? loadTrained(family, options.adapter, { ema: options.ema }) : null
  const encoder = new Encoder(family, config, { encodes: !kind.readsImages })
  const data = { ...config.data, seed: config.data.seed ?? config.seed }
  const source = await openRunSource(config.dataPath, data)
  const order = { ...data, shuffle: false, curriculum: 'none' as const }
  const preparation = preparationOf(family, config, kind)
  const loader = openLoader(source, order, undefined, preparation, kind.recordRules?.(config))
  let total = Math.min(options.records ?? Number.POSITIVE_INFINITY, loader.epochLength)
  const scores: RecordScore[] = []
  const part = splitIndices(source, order).subarray(0, total)
  const evaluated = { path: config.dataPath, data, indices: part }
  const trainedOn = options.run ? await countTrained(options.run, evaluated) : null
  if (options.run) warnOfTrained(options.run, trainedOn, part.length)
  try {
    const records = loader[Symbol.asyncIterator]()
    while (scores.length < total && !host.stopping()) {
      const batch = []
      while (batch.length < Math.min(config.evalBatch, total - scores.length)) {
        const next = await records.next()
        if (next.done)
          total = scores.length + batch.length // the others cannot be used
        else batch.push(next.value)
      }
      if (batch.length === 0) break
      const found = await evaluateAll(
        batch,
        batch.length,
        (part) => encoder.with(part, (items) => evaluator.score(items)),
        () => undefined,
      )
      await seen(found ?? [], batch, evaluator)
      scores.push(...(found ?? []).map(({ shown: _, ...score }) => score))
      host.progress({ kind: 'eval', text: '', step: scores.length, total })
    }
  } finally {
    await loader.close()
    await source.close()
    kind.close?.(family)
    disposeModel(family)
  }
  const metrics = evaluator.summary(scores, config.seed)
  const stopped = scores.length < total
  return { model: config.model, adapter, records: scores.length, trainedOn, metrics, scores, stopped }
}

function warnOfTrained(run: string, count: number | null, all: number): void {
  if (count === null) log.warn(`${run}: its data cannot be opened: not known which records it trained on`)
  else if (count > 0) log.warn(`${run} trained on ${count} of the ${all} records: their metrics are not held out`)
}
