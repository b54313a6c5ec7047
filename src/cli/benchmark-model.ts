// A benchmark answered by a model in the engine thread; rows go to a file as they come.
import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { BenchmarkHost } from '../benchmarks/index.ts'
import { hashFile, sha256 } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { portHost, runHosted } from '../host/index.ts'
import type { GroundedFamily } from '../models/index.ts'
import type { Host, RunConfig } from '../run/index.ts'
import type { Answers, BenchmarkRequest } from './benchmark.ts'
import { openRequest, rowsFile } from './benchmark.ts'

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

/** Null: stopped before the last sentence. */
export async function answerWithModel(
  request: BenchmarkRequest,
  config: RunConfig,
  choice: ModelChoice,
): Promise<Answers | null> {
  const start = performance.now()
  const input: Work = { request, config, choice }
  const answered = (await runHosted({
    module: import.meta.url,
    work: 'benchmarkWork',
    input,
    label: request.benchmark,
  })) as Answered
  if (!answered.finished) return null
  const { buildRecord } = await import('../engine/index.ts')
  const { describeEnvironment } = await import('../tracking/index.ts')
  return {
    file: rowsFile(request),
    by: answered.header,
    seconds: (performance.now() - start) / 1000,
    environment: describeEnvironment({ torch: buildRecord()?.torchVersion ?? null, ...answered.device }),
  }
}

/** Runs in the engine thread. */
export async function benchmarkWork({ request, config, choice }: Work, port: EnginePort): Promise<Answered> {
  const { answerBenchmark, answerWith } = await import('../benchmarks/index.ts')
  const { benchmark, splits } = await openRequest(request)
  const host = portHost(port)
  const trained = await openTrained(config, choice)
  const header = answerHeader(request, config, choice, trained, benchmark.source)
  mkdirSync(request.out, { recursive: true })
  try {
    const finished = await answerBenchmark({
      benchmark,
      records: benchmark.records.filter((r) => splits.some((split) => benchmark.inSplit(split, r))),
      rows: rowsFile(request),
      header,
      batch: config.evalBatch,
      answer: answerWith(trained.family, {
        mode: request.answers,
        maxNewTokens: config.rl.maxCompletionLength,
        maxTiles: config.maxTiles,
        rows: config.evalBatch,
      }),
      host: { ...host, progress: reportTo(host, request.benchmark) },
    })
    return { finished, header, device: trained.device }
  } finally {
    trained.close()
  }
}

/** A status line for the open sentences; it also shows how many an earlier run answered. */
export function reportTo(host: Pick<Host, 'progress'>, name: string): BenchmarkHost['progress'] {
  return (done, total, before) => {
    const text = before > 0 ? `${name}, ${before} answers kept` : name
    host.progress({ kind: 'eval', text, step: done, total })
  }
}

/** Everything that decides the answers. */
export function answerHeader(
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
  }
}

export interface Trained {
  family: GroundedFamily
  /** The folder that was read. */
  adapter: string | null
  device: { device: string; dtype: string }
  close(): void
}

export async function openTrained(config: RunConfig, { adapter, ema }: ModelChoice): Promise<Trained> {
  const { deviceOf, disposeModel, loadTrained, openModel } = await import('../run/index.ts')
  const { requireGrounded } = await import('../tasks/index.ts')
  const family = requireGrounded(openModel(config))
  const path = adapter === null ? null : resolve(loadTrained(family, adapter, { ema }))
  return { family, adapter: path, device: deviceOf(config), close: () => disposeModel(family) }
}

/** Names, sizes and times of the files: weights that were changed since are other weights. */
function fingerprint(folder: string): string {
  const names = existsSync(folder) ? readdirSync(folder).sort() : []
  const facts = names.map((name) => {
    const { size, mtimeMs } = statSync(join(folder, name))
    return [name, size, mtimeMs]
  })
  return sha256(JSON.stringify(facts)).slice(0, 16)
}
