// Evaluation of a folder, without a run: records are read as they come, none is kept.
import { openLoader, openSource } from '../data/index.ts'
import { tidy } from '../tensor/index.ts'
import { type Evaluation, evaluateBatch, type RecordScores, summariseScores } from './evaluate.ts'
import type { RunConfig } from './run-config.ts'
import { loadTrained } from './trained.ts'
import { evaluateAll, type Host, openModel } from './trainer.ts'

export interface EvaluateModelOptions {
  /** Checkpoint, run or adapter folder on top of the model; null: the model as it is. */
  adapter: string | null
  ema: boolean
  /** At most this many records; null: all. */
  records: number | null
}

export interface ModelEvaluation {
  model: string
  adapter: string | null
  records: number
  metrics: Evaluation
  scores: RecordScores[]
  stopped: boolean
}

export async function evaluateModel(
  config: RunConfig,
  options: EvaluateModelOptions,
  host: Pick<Host, 'progress' | 'stopping'>,
): Promise<ModelEvaluation> {
  const loaded = openModel(config)
  const adapter = options.adapter ? loadTrained(loaded, options.adapter, { ema: options.ema }) : null
  const context = { learner: { loaded }, config, actionScale: 1 }
  const source = await openSource(config.dataPath, config.data)
  const loader = openLoader(source, { ...config.data, shuffle: false, curriculum: 'none' })
  const total = Math.min(options.records ?? Number.POSITIVE_INFINITY, loader.epochLength)
  const scores: RecordScores[] = []
  try {
    const records = loader[Symbol.asyncIterator]()
    while (scores.length < total && !host.stopping()) {
      const batch = []
      while (batch.length < Math.min(config.evalBatch, total - scores.length)) {
        const next = await records.next()
        if (next.done) break
        batch.push(next.value)
      }
      if (batch.length === 0) break
      const found = await evaluateAll(
        batch,
        batch.length,
        (some) => tidy(() => evaluateBatch(context, some)),
        () => undefined,
      )
      scores.push(...(found ?? []))
      host.progress({ kind: 'eval', text: '', step: scores.length, total })
    }
  } finally {
    await loader.close()
    await source.close()
    for (const t of loaded.model.parameters().values()) t.dispose()
  }
  const metrics = summariseScores(scores, config.seed)
  return { model: config.model, adapter, records: scores.length, metrics, scores, stopped: scores.length < total }
}
