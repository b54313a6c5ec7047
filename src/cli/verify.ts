import { Command } from 'commander'
import { type CheckRow, groupBy, log, Mismatch, messageOf, refuseAt } from '../core/index.ts'
import { findGolden, type Golden } from '../verify/index.ts'
import { type CertificateOptions, certificatePage, certify } from './certificate.ts'
import { choice, count, deviceOption, whole } from './model.ts'
import { aligned, exponential } from './table.ts'

type Place = Partial<Pick<Options, 'device' | 'kernels'>>

interface Options extends Omit<CertificateOptions, 'model'> {
  against?: 'python'
  model?: string
  all?: boolean
  json?: boolean
}

interface Result extends Golden {
  pass: boolean
  rows: CheckRow[]
}

export function command(): Command {
  return new Command('verify')
    .description(
      'recompute golden data of the reference implementations and compare every tensor; or compare a model folder with the public Python code',
    )
    .argument('[paths...]', 'golden files or folders, or folders that contain them')
    .addOption(deviceOption('where to recompute: cpu, cuda or cuda:N'))
    .addOption(choice('--kernels <which>', 'off: PyTorch ops instead of our kernels', ['auto', 'off'], 'auto'))
    .option('--all', 'list every passing row')
    .addOption(choice('--against <what>', 'compute --model with transformers, PEFT and TRL too', ['python']))
    .option('--model <dir>', 'model folder to compare')
    .option('--reference <dir>', 'folder that Python reads instead of --model')
    .option('--layers <n>', 'only the first layers of the language model', count)
    .option('--seed <n>', 'of the random inputs (default: 0)', whole)
    .option('--python <path>', 'Python with torch and transformers (default: $ROUNDTRIP_PYTHON, then python3)')
    .option('--trust-remote-code', 'let Python run the code in the model folder')
    .option('--json', 'print one JSON object instead of tables')
    .action(run)
}

const certificateFlags = ['model', 'reference', 'layers', 'seed', 'python', 'trustRemoteCode'] as const

/** Golden data and the comparison with Python take different flags. */
function requireOneUse(paths: readonly string[], options: Options): void {
  const expected = options.against ? 'only flags of --against python' : '--against python with it'
  const flag = (name: string) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`
  const given = options.against ? (options.all ? 'all' : undefined) : certificateFlags.find((name) => name in options)
  if (given) throw new Mismatch({ where: 'verify', field: flag(given), expected, got: 'the flag' })
  const places = options.against ? 'none with --against python, which takes --model' : 'golden files or folders'
  if (paths.length > 0 === Boolean(options.against)) refuseAt('verify')('paths', places, paths[0] ?? 'nothing')
}

async function run(paths: string[], options: Options): Promise<void> {
  requireOneUse(paths, options)
  if (options.against) return printCertificate(options)
  const sets = paths.flatMap((path) => {
    const { found, others } = findGolden(path)
    for (const other of others) log.debug(`${other}: not golden data`)
    return found
  })
  const { runInEngineThread } = await import('../engine/index.ts')
  const results: Result[] = []
  for (const set of sets) {
    log.info(`${set.path} (${set.kind})`)
    const { device, kernels } = options
    const result = (await runInEngineThread(import.meta.url, 'verifyOne', { ...set, device, kernels })) as Result
    results.push(result)
    if (!options.json) process.stdout.write(`${table(result, options.all ?? false)}\n`)
  }
  finish(results, options)
}

async function printCertificate({ model, json, ...options }: Options): Promise<void> {
  if (model === undefined)
    throw new Mismatch({ where: 'verify', field: '--model', expected: 'a model folder', got: 'nothing' })
  const certificate = await certify({ model, ...options })
  process.stdout.write(`${json ? JSON.stringify(certificate) : certificatePage(certificate)}\n`)
  if (!certificate.pass) process.exitCode = 1
}

function finish(results: readonly Result[], options: Options): void {
  const pass = results.every((r) => r.pass)
  if (options.json) process.stdout.write(`${JSON.stringify({ pass, results })}\n`)
  else {
    const rows = results.flatMap((r) => r.rows)
    const failed = rows.filter((r) => !r.pass).length
    process.stdout.write(`${pass ? 'PASS' : 'FAIL'}: ${rows.length} quantities, ${failed} outside their limit\n`)
  }
  if (!pass) process.exitCode = 1
}

/** Runs in the engine thread. */
export async function verifyOne({ device = 'cpu', kernels = 'auto', ...set }: Golden & Place): Promise<Result> {
  const { useDevice, verifyGolden } = await import('../verify/index.ts')
  const { useKernels } = await import('../kernels/index.ts')
  useDevice(device)
  useKernels(kernels)
  try {
    const rows = await verifyGolden(set)
    return { ...set, pass: rows.length > 0 && rows.every((r) => r.pass), rows }
  } catch (error) {
    const row = { name: 'error', abs: Number.NaN, rel: Number.NaN, limit: 'no error', pass: false }
    return { ...set, pass: false, rows: [{ ...row, detail: messageOf(error) }] }
  }
}

const most = 12

/** Rows of a kind share the word their names begin with; a long run of passing ones becomes one line with its worst. */
function table({ path, kind, rows, pass }: Result, all: boolean): string {
  const groups = groupBy(rows, ({ name }) => /^[A-Za-z_]+/.exec(name)?.[0] ?? name)
  const lines = [...groups].flatMap(([key, group]) => {
    const passing = group.filter((r) => r.pass)
    if (all || passing.length <= most) return group.map(cells)
    return [...group.filter((r) => !r.pass).map(cells), summary(key, passing)]
  })
  const head = ['quantity', 'worst abs', 'worst rel', 'limit', '']
  return [`${path} (${kind}): ${pass ? 'pass' : 'FAIL'}`, aligned([head, ...lines], { widest: 72, indent: '  ' })].join(
    '\n',
  )
}

function cells(row: CheckRow): string[] {
  const verdict = row.pass ? 'pass' : `FAIL${row.detail ? `  ${row.detail}` : ''}`
  return [row.name, exponential(row.abs), exponential(row.rel), row.limit, verdict]
}

function summary(key: string, rows: readonly CheckRow[]): string[] {
  const worst = (of: (r: CheckRow) => number) => {
    const values = rows.map(of).filter((v) => !Number.isNaN(v))
    return values.length > 0 ? Math.max(...values) : Number.NaN
  }
  const limits = [...new Set(rows.map((r) => r.limit))]
  const name = `${key} (${rows.length} rows)`
  return [
    name,
    exponential(worst((r) => r.abs)),
    exponential(worst((r) => r.rel)),
    limits.slice(0, 2).join(' or '),
    'pass',
  ]
}
