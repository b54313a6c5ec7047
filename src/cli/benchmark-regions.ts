// `roundtrip eval --benchmark` for region benchmarks: questions and captions about regions, boxes, clicks.
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { AskJudge, OtherBenchmarkName, OtherScores, RegionBenchmark } from '../benchmarks/index.ts'
import type { Given } from '../config/index.ts'
import { atomicWrite, log, sha256 } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { portHost, runHosted, type ScoredSettings } from '../host/index.ts'
import type { RunConfig } from '../run/index.ts'
import { type BenchmarkRequest, missing, rowsFile } from './benchmark.ts'
import { answerHeader, type ModelChoice, openTrained, reportTo } from './benchmark-model.ts'
import { evaluationTable } from './table.ts'

interface Work {
  request: BenchmarkRequest
  config: RunConfig
  choice: ModelChoice
}

interface Answered {
  finished: boolean
  header: Record<string, unknown>
}

export async function openOne(request: BenchmarkRequest, ask: AskJudge | null): Promise<RegionBenchmark> {
  const { openRegionBenchmark } = await import('../benchmarks/index.ts')
  return openRegionBenchmark(request.data, request.benchmark as OtherBenchmarkName, {
    images: request.images,
    ask,
    judgePrompt: request.judgePrompt === null ? null : readFileSync(request.judgePrompt, 'utf8'),
  })
}

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
  mkdirSync(out, { recursive: true })
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
export async function runOther(
  request: BenchmarkRequest,
  settings: ScoredSettings,
  choice: ModelChoice,
  flags: Given['flags'],
): Promise<boolean> {
  const { config } = settings
  const benchmark = await openOne(request, request.benchmark === 'dlc-bench' ? await judgeOf(settings, request) : null)
  let by: Record<string, unknown> = { predictions: request.predictions }
  if (request.predictions === null) {
    if (config.model === '') throw missing('--model', 'a model folder, or --predictions FILE')
    const answered = await answer({ request, config, choice })
    if (!answered.finished) return false
    by = answered.header
  }
  const scores = await scoreOne(request, benchmark, config, by)
  print(request, scores, flags.has('json'))
  return true
}

/** Metrics from the predictions, or from the rows that a model left; written beside them. */
export async function scoreOne(
  request: BenchmarkRequest,
  benchmark: RegionBenchmark,
  config: RunConfig,
  by: Record<string, unknown>,
): Promise<OtherScores[]> {
  const file = request.predictions ?? rowsFile(request)
  const scores = await benchmark.score(file, { seed: config.seed, splits: request.splits })
  if (benchmark.warning) log.warn(benchmark.warning)
  const judge = request.benchmark === 'dlc-bench' ? { judge: config.rewards.judge.model } : {}
  const { source, warning } = benchmark
  write(request, scores, { by: { ...by, ...judge }, source, seed: config.seed, warning })
  return scores
}

async function answer(input: Work): Promise<Answered> {
  const label = input.request.benchmark
  return (await runHosted({ module: import.meta.url, work: 'otherWork', input, label })) as Answered
}

/** Runs in the engine thread. */
export async function otherWork({ request, config, choice }: Work, port: EnginePort): Promise<Answered> {
  const benchmark = await openOne(request, null)
  const host = portHost(port)
  const trained = await openTrained(config, choice)
  const header = answerHeader(request, config, choice, trained, benchmark.source)
  mkdirSync(request.out, { recursive: true })
  try {
    const finished = await benchmark.answer(trained.family, {
      ...{ rows: rowsFile(request), header, batch: config.evalBatch, mode: request.answers },
      ...{ maxNewTokens: config.rl.maxCompletionLength, maxTiles: config.maxTiles },
      host: { ...host, progress: reportTo(host, request.benchmark) },
    })
    return { finished, header }
  } finally {
    trained.close()
  }
}

function write(request: BenchmarkRequest, scores: readonly OtherScores[], facts: Record<string, unknown>): void {
  mkdirSync(request.out, { recursive: true })
  for (const { split, items, metrics, rows } of scores) {
    const head = JSON.stringify({ benchmark: request.benchmark, split, ...facts, items, metrics }, null, 2)
    const body = rows.map((row) => JSON.stringify(row)).join(',\n')
    const path = join(request.out, `eval-${request.benchmark}-${split}.json`)
    atomicWrite(path, `${head.replace(/\n\}$/, '')},\n  "rows": [\n${body}\n  ]\n}\n`)
  }
}

function print(request: BenchmarkRequest, scores: readonly OtherScores[], json: boolean): void {
  const table = scores.map(({ split, items, metrics }) => ({ benchmark: request.benchmark, split, items, metrics }))
  if (json) process.stdout.write(`${JSON.stringify({ table })}\n`)
  else {
    const columns = scores.map(
      ({ split, items, metrics }) => [`${request.benchmark} ${split}, ${items} items`, metrics] as const,
    )
    process.stdout.write(
      `${evaluationTable(Object.fromEntries(columns), Math.min(...scores.map(({ items }) => items)))}\n`,
    )
  }
}
