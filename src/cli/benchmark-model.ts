// A benchmark answered by a model in the engine thread; rows go to a file as they come.
import { existsSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type {
  AnswerSettings,
  AskJudge,
  BenchmarkHost,
  RegionBenchmark,
  RegionBenchmarkName,
} from '../benchmarks/index.ts'
import { hashFile, isFolder, makeFolder, namesIn, readTextFile, sha256 } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { portHost, runHosted } from '../host/index.ts'
import type { Family } from '../models/index.ts'
import type { Host, RunConfig } from '../run/index.ts'
import { builtInKind, openKind, requireGrounded, type TaskKind } from '../tasks/index.ts'
import type { BenchmarkRequest } from './benchmark.ts'
import { missing, openRequest, rowsFile } from './benchmark.ts'

export interface ModelChoice {
  adapter: string | null
  ema: boolean
}

interface Work {
  request: BenchmarkRequest
  config: RunConfig
  choice: ModelChoice
}

interface Answered {
  finished: boolean
  header: Record<string, unknown>
  device: Record<string, unknown>
}

/** Null: stopped before the last answer; the rows that are there are kept. */
export async function answerWithModel(input: Work): Promise<Answered | null> {
  if (input.config.model === '') throw missing('--model', 'a model folder, or --predictions FILE')
  const label = input.request.benchmark
  const answered = (await runHosted({ module: import.meta.url, work: 'benchmarkWork', input, label })) as Answered
  return answered.finished ? answered : null
}

/** Runs in the engine thread. */
export async function benchmarkWork({ request, config, choice }: Work, port: EnginePort): Promise<Answered> {
  const kind = await openKind(config.task)
  const { source, answer } = await openAnswering(request, kind, config)
  const host = portHost(port)
  const trained = await openTrained(config, choice)
  const header = answerHeader(request, config, choice, trained, source)
  makeFolder(request.out)
  try {
    const finished = await answer(trained.family, {
      ...{ rows: rowsFile(request), header, batch: config.evalBatch, mode: request.answers },
      ...{ maxNewTokens: config.rl.maxCompletionLength, maxTiles: config.maxTiles },
      host: { ...host, progress: reportTo(host, request.benchmark) },
    })
    return { finished, header, device: trained.device }
  } finally {
    kind.close?.(trained.family)
    trained.close()
  }
}

interface Answering {
  source: string | null
  /** False: stopped before the last answer. */
  answer(family: Family, settings: AnswerSettings): Promise<boolean>
}

/** What a model is asked: regions, or the sentences of the splits. Some tasks answer sentences in their own way. */
async function openAnswering(request: BenchmarkRequest, kind: TaskKind<never>, config: RunConfig): Promise<Answering> {
  const { answerBenchmark, answerMasks, isRegionBenchmark } = await import('../benchmarks/index.ts')
  const drawing = ({ source, answer }: Pick<RegionBenchmark, 'answer'> & { source: string | null }): Answering => ({
    source,
    answer: (family, settings) => answer(requireGrounded(family), settings),
  })
  if (isRegionBenchmark(request.benchmark)) return drawing(await openRegions(request, null))
  const { benchmark, records } = await openRequest(request)
  if (!kind.answers) return drawing({ source: benchmark.source, answer: answerMasks(benchmark, records) })
  return {
    source: benchmark.source,
    answer: (family, settings) => {
      const answer = kind.answers!(family, config as never, settings.batch)
      return answerBenchmark({ ...settings, benchmark, records, answer })
    },
  }
}

export async function openRegions(request: BenchmarkRequest, ask: AskJudge | null): Promise<RegionBenchmark> {
  const { openRegionBenchmark } = await import('../benchmarks/index.ts')
  return openRegionBenchmark(request.data, request.benchmark as RegionBenchmarkName, {
    images: request.images,
    ask,
    judgePrompt: request.judgePrompt === null ? null : readTextFile(request.judgePrompt),
  })
}

/** A status line for the open sentences; it also shows how many an earlier run answered. */
function reportTo(host: Pick<Host, 'progress'>, name: string): BenchmarkHost['progress'] {
  return (done, total, before) => {
    const text = before > 0 ? `${name}, ${before} answers kept` : name
    host.progress({ kind: 'eval', text, step: done, total })
  }
}

/** Everything that decides the answers. */
function answerHeader(
  request: BenchmarkRequest,
  config: RunConfig,
  choice: ModelChoice,
  { adapter, device }: Trained,
  source: string | null,
): Record<string, unknown> {
  const isFile = source !== null && existsSync(source) && statSync(source).isFile()
  return {
    ...{ benchmark: request.benchmark, refs: isFile ? hashFile(source) : source },
    ...{ model: resolve(config.model), modelFiles: fingerprint(config.model) },
    ...{ adapter, adapterFiles: adapter && fingerprint(adapter), ema: choice.ema },
    ...{ answers: request.answers, maxNewTokens: config.rl.maxCompletionLength, maxTiles: config.maxTiles, ...device },
    ...ofTask(config),
  }
}

/** Settings of a task that answers in its own way, and the files of its segmenter. */
function ofTask({ task, ...config }: RunConfig): Record<string, unknown> {
  const paths = builtInKind(task)?.reads?.benchmark
  if (!paths) return {}
  const settings = config[task as 'points' | 'reason'] as Record<string, unknown> & { sam: string }
  const names = paths.map((path) => path.slice(task.length + 1))
  const own = Object.fromEntries(names.map((name) => [name, settings[name]]))
  return { task, ...own, sam: resolve(settings.sam), samFiles: fingerprint(settings.sam) }
}

interface Trained {
  family: Family
  /** The folder that was read. */
  adapter: string | null
  device: { device: string; dtype: string }
  close(): void
}

async function openTrained(config: RunConfig, { adapter, ema }: ModelChoice): Promise<Trained> {
  const { deviceOf, disposeModel, loadTrained, openModel } = await import('../run/index.ts')
  const family = openModel(config)
  const path = adapter === null ? null : resolve(loadTrained(family, adapter, { ema }))
  return { family, adapter: path, device: deviceOf(config), close: () => disposeModel(family) }
}

/** Names, sizes and times of the files: weights that were changed since are other weights. `path`: a folder or a file. */
function fingerprint(path: string): string {
  const names = isFolder(path) ? namesIn(path) : existsSync(path) ? [''] : []
  const facts = names.map((name) => {
    const { size, mtimeMs } = statSync(join(path, name))
    return [name, size, mtimeMs]
  })
  return sha256(JSON.stringify(facts)).slice(0, 16)
}
