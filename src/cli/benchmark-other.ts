// `roundtrip eval --benchmark` for what is no mask of a sentence: questions and captions about regions, boxes, clicks.
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { OtherBenchmark, OtherBenchmarkName, OtherScores } from '../benchmarks/index.ts'
import type { Given } from '../config/index.ts'
import { atomicWrite, log } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import type { RunConfig } from '../run/index.ts'
import { type BenchmarkRequest, missing, rowsFile } from './benchmark.ts'
import { answerHeader, type ModelChoice, openTrained, reportTo } from './benchmark-model.ts'
import { portHost, runHosted } from './run-host.ts'
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

async function open(request: BenchmarkRequest, config: RunConfig): Promise<OtherBenchmark> {
  const { openOther } = await import('../benchmarks/index.ts')
  return openOther(request.data, request.benchmark as OtherBenchmarkName, {
    images: request.images,
    ask: await judgeOf(config),
    judgePrompt: request.judgePrompt === null ? null : readFileSync(request.judgePrompt, 'utf8'),
  })
}

/** One request a question, temperature 0, at most 300 tokens, one user message. */
async function judgeOf({ rewards: { judge } }: RunConfig) {
  if (!judge.enabled) return null
  const { JudgeClient, JudgeStats } = await import('../rewards/index.ts')
  const client = new JudgeClient(judge, new JudgeStats())
  return (user: string) => client.complete({ system: '', user, maxTokens: 300, temperature: 0 })
}

/** False: stopped; the rows that are there are kept. */
export async function runOther(
  request: BenchmarkRequest,
  config: RunConfig,
  choice: ModelChoice,
  flags: Given['flags'],
): Promise<boolean> {
  const benchmark = await open(request, config)
  let by: Record<string, unknown> = { predictions: request.predictions }
  if (request.predictions === null) {
    if (config.model === '') throw missing('--model', 'a model folder, or --predictions FILE')
    const answered = await answer({ request, config, choice })
    if (!answered.finished) return false
    by = answered.header
  }
  const file = request.predictions ?? rowsFile(request)
  const scores = await benchmark.score(file, { seed: config.seed, splits: request.splits })
  if (benchmark.warning) log.warn(benchmark.warning)
  const judge = request.benchmark === 'dlc-bench' ? { judge: config.rewards.judge.model } : {}
  write(request, scores, {
    by: { ...by, ...judge },
    source: benchmark.source,
    seed: config.seed,
    warning: benchmark.warning,
  })
  print(request, scores, flags.has('json'))
  return true
}

async function answer(input: Work): Promise<Answered> {
  const label = input.request.benchmark
  return (await runHosted({ module: import.meta.url, work: 'otherWork', input, label })) as Answered
}

/** Runs in the engine thread. */
export async function otherWork({ request, config, choice }: Work, port: EnginePort): Promise<Answered> {
  const benchmark = await open(request, config)
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
  for (const { split, items, figures, rows } of scores) {
    const head = JSON.stringify({ benchmark: request.benchmark, split, ...facts, items, figures }, null, 2)
    const body = rows.map((row) => JSON.stringify(row)).join(',\n')
    const path = join(request.out, `eval-${request.benchmark}-${split}.json`)
    atomicWrite(path, `${head.replace(/\n\}$/, '')},\n  "rows": [\n${body}\n  ]\n}\n`)
  }
}

function print(request: BenchmarkRequest, scores: readonly OtherScores[], json: boolean): void {
  const table = scores.map(({ split, items, figures }) => ({ benchmark: request.benchmark, split, items, figures }))
  if (json) process.stdout.write(`${JSON.stringify({ table })}\n`)
  else {
    const columns = scores.map(
      ({ split, items, figures }) => [`${request.benchmark} ${split}, ${items} items`, figures] as const,
    )
    process.stdout.write(`${evaluationTable(Object.fromEntries(columns))}\n`)
  }
}
