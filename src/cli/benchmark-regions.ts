// `roundtrip eval --benchmark` for region benchmarks: questions and captions about regions, boxes, clicks.
import { join } from 'node:path'
import type { AskJudge, RegionBenchmark, RegionScores } from '../benchmarks/index.ts'
import type { Given } from '../config/index.ts'
import { atomicWrite, log, makeFolder, sha256 } from '../core/index.ts'
import type { ScoredSettings } from '../host/index.ts'
import type { RunConfig } from '../run/index.ts'
import { type BenchmarkRequest, rowsFile } from './benchmark.ts'
import { answerWithModel, type ModelChoice, openRegions } from './benchmark-model.ts'
import { evaluationTable } from './table.ts'

/**
 * One request a question: temperature 0, at most 300 tokens, one user message. Replies are kept beside the results, so that a
 * judge that fails half-way is not asked everything again.
 */
async function judgeOf({ config, fromFiles }: ScoredSettings, { out }: BenchmarkRequest): Promise<AskJudge> {
  const { judge } = config.rewards
  if (!judge.enabled) throw (await import('../benchmarks/index.ts')).noJudge()
  const { JudgeClient, JudgeStats, judgeTarget, requireOwnWord } = await import('../rewards/index.ts')
  requireOwnWord(judgeTarget(judge), fromFiles)
  const { JsonLines, readLines } = await import('../tracking/index.ts')
  makeFolder(out)
  const lines = new JsonLines(join(out, 'eval-dlc-bench-judge.jsonl'))
  const known = new Map([...readLines(lines.path)].map(({ value }) => [value?.['key'], String(value?.['reply'])]))
  const client = new JudgeClient(judge, new JudgeStats())
  return async (user: string): Promise<string> => {
    const key = sha256(JSON.stringify([judge.model, user]))
    const before = known.get(key)
    if (before !== undefined && !before.includes('[key]')) return before // older versions replaced short keys in replies
    const reply = await client.complete({ system: '', user, maxTokens: 300, temperature: 0 })
    if (client.redact(reply) === reply) lines.append({ key, reply })
    known.set(key, reply)
    return reply
  }
}

/** False: stopped; the rows that are there are kept. */
export async function runRegions(
  request: BenchmarkRequest,
  settings: ScoredSettings,
  choice: ModelChoice,
  flags: Given['flags'],
): Promise<boolean> {
  const { config } = settings
  const ask = request.benchmark === 'dlc-bench' ? await judgeOf(settings, request) : null
  const benchmark = await openRegions(request, ask)
  const { predictions } = request
  const answered = predictions === null ? await answerWithModel({ request, config, choice }) : null
  if (predictions === null && !answered) return false
  const scores = await scoreOne(request, benchmark, config, answered?.header ?? { predictions })
  print(request, scores, flags.has('json'))
  return true
}

/** Metrics from the predictions, or from the rows that a model left; written beside them. */
export async function scoreOne(
  request: BenchmarkRequest,
  benchmark: RegionBenchmark,
  config: RunConfig,
  by: Record<string, unknown>,
): Promise<RegionScores[]> {
  const file = request.predictions ?? rowsFile(request)
  const scores = await benchmark.score(file, { seed: config.seed, splits: request.splits })
  if (benchmark.warning) log.warn(benchmark.warning)
  const judge = request.benchmark === 'dlc-bench' ? { judge: config.rewards.judge.model } : {}
  const { source, warning } = benchmark
  write(request, scores, { by: { ...by, ...judge }, source, seed: config.seed, warning })
  return scores
}

function write(request: BenchmarkRequest, scores: readonly RegionScores[], facts: Record<string, unknown>): void {
  makeFolder(request.out)
  for (const { split, items, metrics, rows } of scores) {
    const head = JSON.stringify({ benchmark: request.benchmark, split, ...facts, items, metrics }, null, 2)
    const body = rows.map((row) => JSON.stringify(row)).join(',\n')
    const path = join(request.out, `eval-${request.benchmark}-${split}.json`)
    atomicWrite(path, `${head.replace(/\n\}$/, '')},\n  "rows": [\n${body}\n  ]\n}\n`)
  }
}

function print(request: BenchmarkRequest, scores: readonly RegionScores[], json: boolean): void {
  const table = scores.map(({ split, items, metrics }) => ({ benchmark: request.benchmark, split, items, metrics }))
  const columns = table.map(({ benchmark, split, items, metrics }) => [
    `${benchmark} ${split}, ${items} items`,
    metrics,
  ])
  const fewest = Math.min(...scores.map(({ items }) => items))
  const text = json ? JSON.stringify({ table }) : evaluationTable(Object.fromEntries(columns), fewest)
  process.stdout.write(`${text}\n`)
}
