import { flagsOf, type Given } from '../config/index.ts'
import { counted, Mismatch } from '../core/index.ts'
import { requirePaths, runWork } from '../host/index.ts'
import { type EvaluateModelOptions, settingsToEvaluate } from '../run/index.ts'
import { benchmarkFlags, missing, runBenchmarks } from './benchmark.ts'
import { runCompare, takeCompare } from './benchmark-compare.ts'
import { type Mode, requireRead } from './command-settings.ts'
import { runOfCheckpoint } from './exported-card.ts'
import { type RunCommand, type RunSettings, readRunSettings, runCommand } from './settings.ts'
import { respell } from './spelling.ts'
import { evaluationTable } from './table.ts'

const flags = flagsOf({
  'adapter DIR': 'checkpoint of a run, run folder or PEFT adapter, put on the model',
  ema: "the checkpoint's EMA copy instead of its policy",
  'records N': 'at most this many records, as --evalRecords N (default: all)',
  json: 'print one JSON object, scores of every record included',
}).concat(benchmarkFlags)

export const help: RunCommand = {
  name: 'eval',
  about:
    'Held-out metrics, greedy, with bootstrap 95 % intervals: --model DIR --data PATH. --adapter RUN takes data and held-out part from the run. --benchmark NAME: a published benchmark in its own protocols.',
  flags,
  example: '--model assets/miniature --data scenes:40 --evalRecords 8',
}

export const command = () => runCommand(help, run)

/** `--records N`, or `--evalRecords N` as train spells it; null: all. */
export function recordsOf({ config, flags, typed }: RunSettings): number | null {
  const text = flags.get('records')?.[0] ?? (typed.has('evalRecords') ? String(config.evalRecords) : undefined)
  if (text === undefined) return null
  const n = Number(text)
  if (Number.isInteger(n) && n > 0) return n
  throw new Mismatch({ where: 'flags', field: '--evalRecords', expected: 'a whole number from 1', got: text })
}

/** The run that trained what --adapter names. */
function runOfAdapter(flags: ReadonlyMap<string, readonly string[]>): string | null {
  const adapter = flags.get('adapter')?.[0]
  return adapter === undefined ? null : (runOfCheckpoint(adapter)?.run ?? null)
}

/** A benchmark has its own splits and images, which the settings of records name too. */
const benchmarkSpelling = { 'data.split': 'split', 'data.refSplit': 'split', 'data.imageRoot': 'images' }

function modeOf(flags: Given['flags']): Mode {
  if (flags.has('compare')) return 'eval --compare'
  if (!flags.has('benchmark')) return 'eval'
  return flags.has('predictions') ? 'eval --predictions' : 'eval --benchmark'
}

/** Of all benchmarks only dlc-bench asks a judge. */
function refuseJudge({ flags, typed }: RunSettings): void {
  const names = flags.get('benchmark')?.[0]
  if (names === undefined || names.split(',').includes('dlc-bench')) return
  const setting = [...typed].find((path) => path.startsWith('rewards.judge.'))
  const field = flags.has('judge-prompt') ? 'judge-prompt' : setting
  if (field === undefined) return
  const expected = '--benchmark dlc-bench beside it: no other asks a judge'
  throw new Mismatch({ where: 'eval --benchmark', field: `--${field}`, expected, got: names })
}

function readEval(argv: readonly string[]): RunSettings {
  const isBenchmark = argv.some((word) => /^--benchmark(=|$)/.test(word))
  const words = isBenchmark ? respell(argv, benchmarkSpelling) : argv
  const ofRun = (given: Given) => {
    const run = given.flags.has('benchmark') ? null : runOfAdapter(given.flags)
    return run ? settingsToEvaluate(run, given.paths.has('dataPath')) : {}
  }
  return readRunSettings(words, flags, {}, ofRun)
}

async function run(argv: readonly string[]): Promise<void> {
  const compare = takeCompare(argv)
  const settings = readEval(compare?.rest ?? argv)
  const { config, flags: given } = settings
  if (compare) given.set('compare', compare.files)
  requireRead(modeOf(given), settings, config)
  refuseJudge(settings)
  if (given.has('ema') && !given.has('adapter')) throw missing('--adapter', 'the checkpoint whose EMA copy --ema names')
  if (compare)
    return runCompare({
      files: compare.files,
      protocol: given.get('protocol')?.[0] ?? null,
      seed: config.seed,
      out: given.get('out')?.[0] ?? '.',
      json: given.has('json'),
    })
  if (given.has('benchmark')) return runBenchmarks(settings, given)
  requirePaths(config)
  const options: EvaluateModelOptions = {
    adapter: given.get('adapter')?.[0] ?? null,
    ema: given.has('ema'),
    records: recordsOf(settings),
    run: runOfAdapter(given),
  }
  const found = await runWork('evaluate', { config, options }, { label: 'evaluation' })
  if (given.has('json')) process.stdout.write(`${JSON.stringify(found)}\n`)
  else {
    const name = counted(found.records, 'record')
    process.stdout.write(`${evaluationTable({ [name]: found.metrics }, found.records)}\n`)
    if (found.stopped) process.stderr.write('stopped early: the metrics are over the records read so far\n')
  }
}
