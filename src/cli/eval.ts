import type { Command } from 'commander'
import type { CommandFlag, Given } from '../config/index.ts'
import { Mismatch } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { portHost, requirePaths, runHosted } from '../host/index.ts'
import { type EvaluateModelOptions, type ModelEvaluation, type RunConfig, settingsToEvaluate } from '../run/index.ts'
import { benchmarkFlags, runBenchmarks } from './benchmark.ts'
import { runCompare, takeCompare } from './benchmark-compare.ts'
import { runOfCheckpoint } from './exported-card.ts'
import { readRunSettings, runCommand } from './settings.ts'
import { evaluationTable } from './table.ts'

const flags: CommandFlag[] = [
  { name: 'adapter', value: 'DIR', doc: 'checkpoint of a run, run folder or PEFT adapter, put on the model' },
  { name: 'ema', doc: "the checkpoint's EMA copy instead of its policy" },
  { name: 'records', value: 'N', doc: 'at most this many records (default: all)' },
  { name: 'json', doc: 'print one JSON object, scores of every record included' },
  ...benchmarkFlags,
]

const about =
  'Held-out figures, greedy, with bootstrap 95 % intervals: --model DIR --data PATH. --adapter RUN takes data and held-out part from the run. --benchmark NAME: a published benchmark in its own protocols.'

export function command(): Command {
  return runCommand('eval', about, flags, run)
}

function recordsOf(text: string | undefined): number | null {
  if (text === undefined) return null
  const n = Number(text)
  if (Number.isInteger(n) && n > 0) return n
  throw new Mismatch({ where: 'flags', field: '--records', expected: 'a whole number from 1', got: text })
}

/** A flag that would do nothing is an error: --records belongs to records of ours, the rest to a benchmark. */
function refuseStray(given: ReadonlyMap<string, readonly string[]>): void {
  const others = benchmarkFlags.map((flag) => flag.name).filter((name) => name !== 'benchmark')
  const stray = given.has('benchmark') ? ['records'] : others
  const name = stray.find((flag) => given.has(flag))
  if (name === undefined) return
  const expected = given.has('benchmark') ? 'no --benchmark beside it' : '--benchmark NAME beside it'
  throw new Mismatch({ where: 'flags', field: `--${name}`, expected, got: given.get(name)?.[0] })
}

/** The run that trained what --adapter names. */
function runOfAdapter(flags: ReadonlyMap<string, readonly string[]>): string | null {
  const adapter = flags.get('adapter')?.[0]
  return adapter === undefined ? null : (runOfCheckpoint(adapter)?.run ?? null)
}

async function run(argv: readonly string[]): Promise<void> {
  const compare = takeCompare(argv)
  const ofRun = (given: Given) => {
    const run = given.flags.has('benchmark') ? null : runOfAdapter(given.flags)
    return run ? settingsToEvaluate(run, given.paths.has('dataPath')) : {}
  }
  const { config, flags: given, fromFiles } = readRunSettings(compare?.rest ?? argv, flags, {}, ofRun)
  if (compare)
    return runCompare({
      files: compare.files,
      protocol: given.get('protocol')?.[0] ?? null,
      seed: config.seed,
      out: given.get('out')?.[0] ?? '.',
      json: given.has('json'),
    })
  refuseStray(given)
  if (given.has('benchmark')) return runBenchmarks({ config, fromFiles }, given)
  requirePaths(config)
  const options: EvaluateModelOptions = {
    adapter: given.get('adapter')?.[0] ?? null,
    ema: given.has('ema'),
    records: recordsOf(given.get('records')?.[0]),
    run: runOfAdapter(given),
  }
  const input = { config, options }
  const found = (await runHosted({
    module: import.meta.url,
    work: 'evalWork',
    input,
    label: 'evaluation',
  })) as ModelEvaluation
  if (given.has('json')) process.stdout.write(`${JSON.stringify(found)}\n`)
  else {
    const name = `${found.records} records`
    process.stdout.write(`${evaluationTable({ [name]: found.metrics }, found.records)}\n`)
    if (found.stopped) process.stderr.write('stopped early: the figures are over the records read so far\n')
  }
}

/** Runs in the engine thread. */
export async function evalWork(
  input: { config: RunConfig; options: EvaluateModelOptions },
  port: EnginePort,
): Promise<ModelEvaluation> {
  const { evaluateModel } = await import('../run/index.ts')
  return evaluateModel(input.config, input.options, portHost(port))
}
