// `roundtrip train` as users run it: the command in a separate process, JPEG pictures of 1024 x 1024, both loops, batch 4, K 4. Wall time
// from step to step and its phases from the run's log, and the GPU's idle share. The Sa2VA-4B shape with random bfloat16 weights, whose
// answers are letters and whose masks are noise, the worst case for run lengths; without a GPU the miniature.
// ROUNDTRIP_BENCH_STEPS: steps that count (5).
import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import sharp from 'sharp'
import { packageRoot } from '../src/core/index.ts'
import { encodeRle } from '../src/mask/index.ts'
import { makeScene, sceneExample } from '../src/scenes/index.ts'
import type { TimingLine } from '../src/tracking/index.ts'
import { type BenchRow, median, row } from './bench.ts'
import { onGpu } from './gpu/random-model.ts'

const counted = Number(process.env.ROUNDTRIP_BENCH_STEPS ?? 5)
/** Kernels are compiled and memory is allocated. */
const warmUps = 3
const size = onGpu ? 1024 : 112

export async function writeRecords(folder: string, length = 8): Promise<string> {
  const lines = Array.from({ length }, async (_, i) => {
    const { id, image, mask, caption } = sceneExample(makeScene(1, i, { size }))
    const picture = sharp(image.data, { raw: { width: size, height: size, channels: 3 } })
    writeFileSync(join(folder, `${i}.jpg`), await picture.jpeg().toBuffer())
    return JSON.stringify({ id, image: `${i}.jpg`, mask: encodeRle(mask), caption })
  })
  writeFileSync(join(folder, 'records.jsonl'), `${(await Promise.all(lines)).join('\n')}\n`)
  return join(folder, 'records.jsonl')
}

/** Runs a program of this package; its messages go to stderr. */
export function start(words: readonly string[]) {
  const child = spawn(process.execPath, [...process.execArgv, ...words], {
    cwd: packageRoot(),
    stdio: ['ignore', 2, 2],
  })
  return new Promise<void>((done, failed) =>
    child.on('close', (code) => (code === 0 ? done() : failed(new Error(`${words[0]} ended with ${code}`)))),
  )
}

export async function modelFolder(folder: string): Promise<string> {
  if (!onGpu) return join(packageRoot(), 'assets', 'miniature')
  await start([join('tools', `make-checkpoint${import.meta.filename.slice(-3)}`), folder, '--shape', '4b', '--speaks'])
  return folder
}

/** While some work runs: when, and what percentage of the time before it, the GPU had a kernel. None without nvidia-smi. */
async function watchGpu(work: () => Promise<void>): Promise<{ at: number; busy: number }[]> {
  const samples: { at: number; busy: number }[] = []
  const words = ['--query-gpu=utilization.gpu', '--format=csv,noheader,nounits', '--id=0', '--loop-ms=100']
  const child = spawn('nvidia-smi', words).on('error', () => undefined)
  child.stdout.on('data', (text: Buffer) => samples.push({ at: Date.now(), busy: Number.parseFloat(text.toString()) }))
  await work().finally(() => child.kill())
  return samples
}

/** Batch 4, K 4. */
export const settings = {
  ...{ batchSize: 4, maxTiles: 3, evalRecords: 0, saveSteps: 0, optim: { learningRate: 1e-12 } },
  rl: { numGenerations: 4, maxCompletionLength: onGpu ? 128 : 16 },
}

/** Clocks of the steps that are done. */
export function stepsOf(output: string): TimingLine[] {
  const log = readFileSync(join(output, 'timing.jsonl'), 'utf8').trim().split('\n')
  return log.map((line) => JSON.parse(line) as TimingLine).filter(({ t }) => t === 'step')
}

export async function run(): Promise<BenchRow[]> {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-train-'))
  try {
    const [recipe, output] = [join(folder, 'recipe.json'), join(folder, 'run')]
    const [model, dataPath] = [await modelFolder(join(folder, 'model')), await writeRecords(folder)]
    writeFileSync(recipe, JSON.stringify({ model, dataPath, output, ...settings, maxSteps: warmUps + counted }))
    const samples = await watchGpu(() => start(['bin/roundtrip.mjs', 'train', '--recipe', recipe]))
    return rowsOf(stepsOf(output).slice(warmUps - 1), samples)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Of the steps after the first. */
function rowsOf(steps: readonly TimingLine[], samples: readonly { at: number; busy: number }[]): BenchRow[] {
  const [first, last] = [steps[0]!, steps.at(-1)!]
  const wall = steps.slice(1).map(({ time }, i) => time - steps[i]!.time)
  const own = (name: string) => median(steps.slice(1).map(({ metrics }) => (metrics?.[name] ?? 0) * 1000))
  const phases = Object.keys(last.metrics ?? {}).filter((name) => name.startsWith('seconds/'))
  const busy = samples.filter(({ at }) => at > first.time && at <= last.time).map((one) => one.busy)
  const idle = 100 - busy.reduce((a, b) => a + b, 0) / busy.length
  return [
    row('train, wall time of a step', median(wall), null, 'ms'),
    row('  slowest of them', Math.max(...wall), null, 'ms'),
    ...['step_time', ...phases].map((name) => row(`  ${name}`, own(name), null, 'ms')),
    ...(busy.length > 0 ? [row('  GPU idle', idle, 8, '%')] : []),
  ]
}
