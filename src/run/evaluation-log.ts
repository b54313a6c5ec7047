// Each record of an evaluation as a line of evaluations.jsonl, in the form of a sample: its metrics are the parts of the reward. The
// records that changed most since the first round keep their images.
import type { Example } from '../data/index.ts'
import { encodePng } from '../image/index.ts'
import { type Evaluator, type RecordScore, recordRatios } from '../tasks/index.ts'
import { followWhole, type Interval, imageName, type Sample } from '../tracking/index.ts'
import type { RunLog } from './folder.ts'

/** Records that gained, and that lost, whose images are kept. */
const keptImages = 6

/** Metrics of one record; null: it is not part of the metric. */
export function recordMetrics(evaluator: Evaluator, score: RecordScore): Record<string, number | null> {
  const ratios = Object.entries(recordRatios(evaluator, score))
  return Object.fromEntries(ratios.map(([name, ratio]) => [name, ratio && ratio[1] !== 0 ? ratio[0] / ratio[1] : null]))
}

interface EvaluationOf {
  config: { seed: number; output: string }
  heldOut: readonly Example[]
  writer: Pick<RunLog, 'eval' | 'image'>
}

/** The evaluations of a run, written to its folder. */
export class EvaluationLog {
  readonly evaluator: Evaluator
  readonly #run: EvaluationOf
  /** The main metric of each record in the first round. */
  readonly #first = new Map<string, number>()

  constructor(evaluator: Evaluator, run: EvaluationOf) {
    this.evaluator = evaluator
    this.#run = run
  }

  /** Reads the first round of a resumed run. */
  restore(): void {
    const run = followWhole(this.#run.config.output)
    const { evaluations: all } = run
    for (let row = 0; row < all.count && all.step.at(row) === all.step.at(0); row++)
      this.#first.set(all.records.list[all.record.at(row)]!, all.total.at(row))
  }

  async write(step: number, name: string, scores: readonly RecordScore[]): Promise<Record<string, Interval>> {
    const { config, writer } = this.#run
    const metrics = this.evaluator.summary(scores, config.seed)
    const rows = this.#rows(step, name, scores)
    if (this.#first.size === 0) for (const { id, total } of rows) this.#first.set(id, total ?? Number.NaN)
    writer.eval(step, name, scores.length, metrics, await this.#withImages(rows))
    return metrics
  }

  #rows(step: number, name: string, scores: readonly RecordScore[]): Sample[] {
    return scores.map((score) => {
      const metrics = recordMetrics(this.evaluator, score)
      const total = metrics[this.evaluator.main ?? Object.keys(metrics)[0] ?? ''] ?? null
      const shown = (score.shown ?? []) as Sample['shown']
      return { step, loop: name, id: score.id, k: 0, shown, rewards: metrics, total, advantage: 0, logp: 0, length: 0 }
    })
  }

  async #withImages(rows: readonly Sample[]): Promise<Sample[]> {
    const change = ({ id, total }: Sample) => (total ?? Number.NaN) - (this.#first.get(id) ?? Number.NaN)
    const moved = rows.filter((row) => Math.abs(change(row)) > 0).sort((a, b) => change(b) - change(a))
    const wanted = new Set([...moved.slice(0, keptImages), ...moved.slice(-keptImages)].map(({ id }) => id))
    for (const { id, image } of this.#run.heldOut.filter((example) => wanted.has(example.id)))
      this.#run.writer.image(id, await encodePng(image))
    return rows.map((row) => (wanted.has(row.id) ? { ...row, image: imageName(row.id) } : row))
  }
}
