// Region benchmarks (boxes, captions, questions, clicks) with one interface: open, answer with a model, score.
import { Mismatch } from '../core/index.ts'
import type { GroundedFamily } from '../models/index.ts'
import type { Interval } from '../tracking/index.ts'
import { type AnswerOptions, answerWith } from './answer.ts'
import type { BenchmarkRecord } from './benchmark.ts'
import { describeWith } from './describe.ts'
import { type AskJudge, openDlcBench } from './dlc-bench.ts'
import { openGarVqa } from './gar-vqa.ts'
import { type RegionBenchmarkName, regionBenchmarks } from './names.ts'
import { openRefL4, readBoxes, refL4Warning, scoreRefL4 } from './ref-l4.ts'
import { openRegionCaptions } from './region-captions.ts'
import type { RowsRun } from './rows.ts'
import { type AnswerSource, answerBenchmark } from './run.ts'
import { countTextWarning, readAnswers, type TextBenchmark } from './text-benchmark.ts'
import { answerItems } from './text-run.ts'

export function isRegionBenchmark(name: string): name is RegionBenchmarkName {
  return (regionBenchmarks as readonly string[]).includes(name)
}

export interface AnswerSettings extends RowsRun, Omit<AnswerOptions, 'rows'> {
  batch: number
}

export interface RegionScores {
  split: string
  items: number
  metrics: Readonly<Record<string, Interval>>
  rows: readonly Readonly<Record<string, unknown>>[]
}

export interface RegionBenchmark {
  name: RegionBenchmarkName
  /** The file that says what is asked. */
  source: string
  warning: string | null
  /** False: stopped before the last answer. */
  answer(family: GroundedFamily, settings: AnswerSettings): Promise<boolean>
  /** From a file of predictions, or from the rows of `answer`. */
  score(file: string, options: { seed: number; splits: readonly string[] | null }): Promise<RegionScores[]>
}

export interface RegionOptions {
  images: string | null
  ask: AskJudge | null
  /** Wording of the judge's request; null: ours. */
  judgePrompt: string | null
}

/** Answers the sentences of records with masks. */
export function answerMasks(benchmark: AnswerSource, records: readonly BenchmarkRecord[]): RegionBenchmark['answer'] {
  return (family, settings) => {
    const answer = answerWith(family, { ...settings, rows: settings.batch })
    return answerBenchmark({ ...settings, benchmark, records, answer })
  }
}

export async function openRegionBenchmark(
  data: string,
  name: RegionBenchmarkName,
  options: RegionOptions,
): Promise<RegionBenchmark> {
  if (name === 'gar-vqa') return textBenchmark(openGarVqa(data))
  if (name === 'refcocog-captions') return textBenchmark(openRegionCaptions(data, options.images))
  if (name === 'dlc-bench') {
    const { images, ask, judgePrompt } = options
    return textBenchmark(openDlcBench(data, { images, ask, prompt: judgePrompt ?? undefined }))
  }
  if (name === 'ref-l4') return boxBenchmark(data, options)
  const { openClicks } = await import('./click-run.ts')
  return openClicks(data)
}

function textBenchmark(benchmark: TextBenchmark): RegionBenchmark {
  return {
    name: benchmark.name as RegionBenchmarkName,
    source: benchmark.source,
    warning: countTextWarning(benchmark),
    answer: (family, settings) => answerItems({ ...settings, benchmark, describe: describeWith(family, settings) }),
    score: async (file, { seed, splits }) => {
      onlySplit(splits, 'all')
      const scores = await benchmark.score(readAnswers(file, benchmark.items), { seed })
      return [{ split: 'all', items: benchmark.items.length, ...scores }]
    },
  }
}

function onlySplit(splits: readonly string[] | null, only: string): void {
  const other = splits?.find((split) => split !== only)
  if (other !== undefined) throw new Mismatch({ where: 'flags', field: '--split', expected: only, got: other })
}

async function boxBenchmark(data: string, { images }: RegionOptions): Promise<RegionBenchmark> {
  const benchmark = await openRefL4(data, images)
  const { rows, records, source, name } = benchmark
  const known = ['val', 'test', 'all']
  return {
    name,
    source,
    warning: refL4Warning(rows),
    answer: answerMasks(benchmark, records),
    score: async (file, { seed, splits }) => {
      const boxes = readBoxes(file)
      const filled = known.filter((split) => split === 'all' || rows.some((row) => row.split === split))
      return (splits ?? filled).map((split) => {
        if (!filled.includes(split))
          throw new Mismatch({ where: 'flags', field: '--split', expected: filled.join(', '), got: split })
        const scores = scoreRefL4(rows, boxes, split, { seed })
        return { split, items: scores.rows.length, ...scores }
      })
    },
  }
}
