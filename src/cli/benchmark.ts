// `roundtrip eval --benchmark NAME`: predictions of a file, or answers of a model, scored as papers score them.
import { join } from 'node:path'
import type { BenchmarkRecord, BenchmarkResult, MaskBenchmark, Protocol, SplitSummary } from '../benchmarks/index.ts'
import { flagsOf, type Given } from '../config/index.ts'
import { log, Mismatch, makeFolder } from '../core/index.ts'
import type { ScoredSettings } from '../host/index.ts'
import type { RunConfig } from '../run/index.ts'
import { builtInKind } from '../tasks/index.ts'
import { aligned, percent } from './table.ts'

export const benchmarkFlags = flagsOf({
  'benchmark NAMES':
    'refcoco, refcoco+, refcocog, grefcoco, reasonseg (several with commas), dlc-bench, clicks, gar-vqa, ref-l4, refcocog-captions',
  'split NAMES': 'val, testA, testB, test, test-short, test-long (default: every published one)',
  'predictions FILE': 'score this JSONL file of masks instead of a model',
  'protocol NAMES':
    'union, sa2va, lisa, rela, rela-50, segzero (default: all that fit); generate or forced says how a model answers',
  'compat NAME': "the reported protocol beside this one alone: --compat sa2va replays Sa2VA's targets",
  'refs NAME': 'division of the refs file: unc, umd, google (default: the one papers report)',
  'images DIR': 'folder of the images (default: looked for beside the data)',
  'judge-prompt FILE': "dlc-bench: another wording of the judge's request, with {description}, {question}, {choices}",
  'out DIR': 'folder of the rows and of eval-BENCHMARK-SPLIT.json (default: here)',
  'compare A.json B.json': 'two results on the same sentences: change, intervals, and a page with masks',
})

export interface BenchmarkRequest {
  benchmark: string
  data: string
  splits: string[] | null
  predictions: string | null
  /** Null: all of the benchmark. */
  protocols: string[] | null
  answers: 'generate' | 'forced'
  refs: string | null
  images: string | null
  judgePrompt: string | null
  out: string
}

function words(given: Given['flags'], name: string): string[] | null {
  const value = given.get(name)?.[0]
  return value === undefined ? null : value.split(',').map((word) => word.trim())
}

const answerModes = ['generate', 'forced'] as const

/** One request a benchmark. `--protocol` holds two kinds of words: how a model answers, and how masks are scored. */
export function readRequests(config: RunConfig, flags: Given['flags']): BenchmarkRequest[] {
  const protocols = words(flags, 'protocol') ?? []
  const modes = protocols.filter((word) => (answerModes as readonly string[]).includes(word))
  const scoring = protocols.filter((word) => !modes.includes(word))
  const compat = flags.get('compat')?.[0]
  if (config.dataPath === '') throw missing('--data', 'the folder of the benchmark')
  return words(flags, 'benchmark')!.map((benchmark) => ({
    benchmark,
    data: config.dataPath,
    splits: words(flags, 'split'),
    predictions: flags.get('predictions')?.[0] ?? null,
    protocols: compat !== undefined ? [...scoring, 'reported', compat] : scoring.length > 0 ? scoring : null,
    answers: (modes[0] as BenchmarkRequest['answers'] | undefined) ?? 'generate',
    refs: flags.get('refs')?.[0] ?? null,
    images: flags.get('images')?.[0] ?? null,
    judgePrompt: flags.get('judge-prompt')?.[0] ?? null,
    out: flags.get('out')?.[0] ?? '.',
  }))
}

export function missing(field: string, expected: string, got = 'nothing'): Mismatch {
  return new Mismatch({ where: 'flags', field, expected, got })
}

function oneOf(field: string, value: string, known: readonly string[]): string {
  if (known.includes(value)) return value
  throw new Mismatch({ where: 'flags', field, expected: known.join(', '), got: value })
}

/** Splits that have records; a split that was asked for must have some. */
function splitsOf(benchmark: MaskBenchmark, asked: readonly string[] | null): string[] {
  const filled = benchmark.splits.filter((split) => benchmark.records.some((r) => benchmark.inSplit(split, r)))
  if (asked) return asked.map((split) => oneOf('--split', split, filled))
  if (filled.length > 0) return filled
  const expected = `records of ${benchmark.splits.join(', ')}`
  throw new Mismatch({ where: benchmark.source ?? benchmark.folder, field: 'split', expected, got: 'none' })
}

function chosenProtocols(all: readonly Protocol[], asked: readonly string[] | null): readonly Protocol[] {
  if (!asked) return all
  const names = asked.map((name) => (name === 'reported' ? all[0]!.name : name))
  for (const name of names) oneOf('--protocol', name, [...all.map((p) => p.name), ...answerModes])
  return all.filter((p) => names.includes(p.name))
}

/** What answers, and where its rows are: a file of predictions, or the rows a model has just written. */
export interface Answers {
  file: string
  by: Readonly<Record<string, unknown>>
  seconds: number | null
  environment: Readonly<Record<string, unknown>>
}

interface OpenRequest {
  request: BenchmarkRequest
  benchmark: MaskBenchmark
  splits: string[]
  /** Records of the splits. */
  records: readonly BenchmarkRecord[]
  protocols: readonly Protocol[]
}

/** Everything that can be wrong with the request is said here, before a model is read. */
export async function openRequest(request: BenchmarkRequest): Promise<OpenRequest> {
  const { openBenchmark, protocolsOf } = await import('../benchmarks/index.ts')
  const benchmark = openBenchmark(request.data, request.benchmark, { images: request.images, refs: request.refs })
  const protocols = chosenProtocols(protocolsOf(benchmark.name), request.protocols)
  const splits = splitsOf(benchmark, request.splits)
  const records = benchmark.records.filter((r) => splits.some((split) => benchmark.inSplit(split, r)))
  return { request, benchmark, splits, records, protocols }
}

/** Metrics of every split, written beside the rows. */
export async function scoreRequest(open: OpenRequest, answers: Answers, seed: number): Promise<BenchmarkResult[]> {
  const { readPredictions, resultFile, resultOf, scoreRecords, unknownPredictions, writeResult } = await import(
    '../benchmarks/index.ts'
  )
  const { request, benchmark, splits, records, protocols } = open
  const predictions = readPredictions(answers.file, benchmark.name)
  const unknown = unknownPredictions(benchmark, predictions)
  if (unknown.length > 0)
    log.warn(`${answers.file}: ${unknown.length} predictions of sentences that are not there, first ${unknown[0]}`)
  const scored = await scoreRecords(benchmark, records, predictions)
  const facts = { ...answers, seed, refs: request.refs, protocols }
  const results = splits.map((split) => resultOf(benchmark, split, scored, facts))
  makeFolder(request.out)
  for (const result of results) {
    if (result.warning) log.warn(result.warning)
    writeResult(resultFile(request.out, result.benchmark, result.split), result)
  }
  return results
}

function cell(summary: SplitSummary, metric: string): string {
  const value = summary.metrics[metric]
  if (value === undefined) return ''
  const { low, high } = summary.intervals[metric]!
  return Number.isNaN(low) ? percent(value) : `${percent(value)} [${percent(low)}, ${percent(high)}]`
}

/** One line a split and protocol; percent, with 95 % intervals resampled by image. */
export function benchmarkTable(results: readonly BenchmarkResult[]): string {
  const summaries = results.flatMap((r) => r.summaries)
  const metrics = [...new Set(summaries.flatMap((s) => Object.keys(s.metrics)))]
  const columns = ['benchmark', 'split', 'protocol', 'sentences', 'images', 'overlaps']
  const head = [...columns, ...metrics.map((metric) => `${metric} % [95 %]`)]
  const rows = summaries.map((s) => [
    ...[s.benchmark, s.split, s.protocol, String(s.sentences), String(s.images), String(s.overlapping)],
    ...metrics.map((metric) => cell(s, metric)),
  ])
  return aligned([head, ...rows])
}

/** Columns as papers print them, of the reported protocol. */
export async function publishedTable(results: readonly BenchmarkResult[]): Promise<string> {
  const { publishedColumns } = await import('../benchmarks/index.ts')
  const columns = publishedColumns(results.map((r) => r.summaries[0]!).filter((s) => s !== undefined))
  return aligned([columns.map((c) => c.name), columns.map((c) => percent(c.value))])
}

async function answersOf(open: OpenRequest, config: RunConfig, flags: Given['flags']): Promise<Answers | null> {
  const { predictions } = open.request
  const { describeEnvironment } = await import('../tracking/index.ts')
  if (predictions !== null)
    return { file: predictions, by: { predictions }, seconds: null, environment: describeEnvironment({ torch: null }) }
  const { answerWithModel } = await import('./benchmark-model.ts')
  const start = performance.now()
  const answered = await answerWithModel({ request: open.request, config, choice: choiceOf(flags) })
  if (!answered) return null
  const { buildRecord } = await import('../engine/index.ts')
  const environment = describeEnvironment({ torch: buildRecord()?.torchVersion ?? null, ...answered.device })
  const seconds = (performance.now() - start) / 1000
  return { file: rowsFile(open.request), by: answered.header, seconds, environment }
}

const choiceOf = (flags: Given['flags']) => ({ adapter: flags.get('adapter')?.[0] ?? null, ema: flags.has('ema') })

function stopped(request: BenchmarkRequest): void {
  process.stderr.write(`stopped: the rows are in ${rowsFile(request)}; the same command resumes\n`)
  process.exitCode = 130
}

/** Tasks that answer in their own way draw masks of sentences, without [SEG]. */
function requireSentences(task: string, { benchmark: got, answers }: BenchmarkRequest, isRegion: boolean): void {
  const expected = `refcoco, refcoco+, refcocog, grefcoco or reasonseg for task ${task}`
  if (isRegion) throw missing('--benchmark', expected, got)
  if (answers === 'forced') throw missing('--protocol', `generate for task ${task}`, answers)
}

export async function runBenchmarks(settings: ScoredSettings, flags: Given['flags']): Promise<void> {
  const { config } = settings
  const { isRegionBenchmark } = await import('../benchmarks/index.ts')
  const all = readRequests(config, flags)
  const others = all.filter(({ benchmark }) => isRegionBenchmark(benchmark))
  if (builtInKind(config.task)?.answers && !flags.has('predictions'))
    for (const request of all) requireSentences(config.task, request, others.includes(request))
  for (const request of others) {
    const { runRegions } = await import('./benchmark-regions.ts')
    if (!(await runRegions(request, settings, choiceOf(flags), flags))) return stopped(request)
  }
  const masks = all.filter((request) => !others.includes(request))
  if (masks.length > 0) await runMasks(await Promise.all(masks.map(openRequest)), config, flags)
}

async function runMasks(requests: readonly OpenRequest[], config: RunConfig, flags: Given['flags']): Promise<void> {
  const results: BenchmarkResult[] = []
  for (const request of requests) {
    const answers = await answersOf(request, config, flags)
    if (!answers) return stopped(request.request)
    results.push(...(await scoreRequest(request, answers, config.seed)))
  }
  const { tableRow } = await import('../benchmarks/index.ts')
  const table = results.flatMap((result) => result.summaries.map(tableRow))
  if (flags.has('json')) process.stdout.write(`${JSON.stringify({ table })}\n`)
  else process.stdout.write(`${benchmarkTable(results)}\n\n${await publishedTable(results)}\n`)
}

export function rowsFile({ out, benchmark }: BenchmarkRequest): string {
  return join(out, `eval-${benchmark}.jsonl`)
}
