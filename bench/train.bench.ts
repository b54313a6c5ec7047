// `roundtrip train` as users run it: the command in a separate process, JPEG pictures of 1024 x 768, masks as polygons, both loops, batch 4,
// K 4. Wall time from step to step and its phases from the run's log, and the GPU's idle share. The Sa2VA-4B shape with random bfloat16
// weights, whose answers are letters and whose masks are noise, the worst case for run lengths; without a GPU the miniature.
// ROUNDTRIP_BENCH_STEPS: steps that count (5); ROUNDTRIP_BENCH_MODEL: another folder.
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import sharp from 'sharp'
import { packageRoot } from '../src/core/index.ts'
import { resize } from '../src/image/index.ts'
import { makeScene } from '../src/scenes/index.ts'
import { type BenchRow, median, row } from './bench.ts'
import { onGpu } from './gpu/random-model.ts'

const counted = Number(process.env.ROUNDTRIP_BENCH_STEPS ?? 5)
/** Kernels are compiled and memory is allocated. */
const warmUps = 3
const [width, height] = onGpu ? [1024, 768] : [160, 120]
const ending = import.meta.filename.slice(-3)
const node = (...words: string[]) => [...process.execArgv, ...words]
const inherit = { cwd: packageRoot(), stdio: ['ignore', 'inherit', 'inherit'] as const }

/** A closed curve around the middle whose radius varies. */
function blob(i: number): number[] {
  return Array.from({ length: 60 }, (_, k) => {
    const angle = (k * Math.PI) / 30
    const radius = (height / 4) * (1 + 0.3 * Math.sin(3 * angle + i) + 0.1 * Math.sin(11 * angle))
    return [width * (0.4 + 0.02 * i) + radius * Math.cos(angle), height / 2 + radius * Math.sin(angle)]
  }).flat()
}

async function writeRecords(folder: string): Promise<string> {
  const lines = Array.from({ length: 8 }, async (_, i) => {
    const { image, caption } = makeScene(1, i, { size: onGpu ? 768 : 112 })
    const picture = sharp(resize(image, width, height, 'bilinear').data, { raw: { width, height, channels: 3 } })
    writeFileSync(join(folder, `${i}.jpg`), await picture.jpeg().toBuffer())
    return JSON.stringify({
      id: `r${i}`,
      image: `${i}.jpg`,
      mask: { polygons: [blob(i)], size: [height, width] },
      caption,
    })
  })
  const path = join(folder, 'records.jsonl')
  writeFileSync(path, `${(await Promise.all(lines)).join('\n')}\n`)
  return path
}

function modelFolder(folder: string): string {
  const given = process.env.ROUNDTRIP_BENCH_MODEL ?? (onGpu ? '' : join(packageRoot(), 'assets', 'miniature'))
  if (given) return given
  const words = [join(packageRoot(), 'tools', `make-checkpoint${ending}`), folder, '--shape', '4b', '--speaks']
  execFileSync(process.execPath, node(...words), { ...inherit, stdio: ['ignore', 'inherit', 'inherit'] })
  return folder
}

/** Percent of time without a kernel in the samples between two times (milliseconds since 1970); null without nvidia-smi. */
function watchGpu(): (from: number, to: number) => number | null {
  const samples: { at: number; busy: number }[] = []
  const words = ['--query-gpu=utilization.gpu', '--format=csv,noheader,nounits', '--id=0', '--loop-ms=100']
  const child = onGpu ? spawn('nvidia-smi', words) : null
  child?.stdout.on('data', (text: Buffer) => samples.push({ at: Date.now(), busy: Number.parseFloat(text.toString()) }))
  child?.on('error', () => undefined)
  return (from, to) => {
    child?.kill()
    const busy = samples.filter(({ at }) => at > from && at <= to).map((one) => one.busy)
    return busy.length > 0 ? 100 - busy.reduce((a, b) => a + b) / busy.length : null
  }
}

interface TimingLine {
  t: string
  time: number
  metrics?: Record<string, number>
}

async function trained(model: string, data: string, output: string): Promise<TimingLine[]> {
  const size = ['--batchSize', '4', '--maxSteps', String(warmUps + counted), '--maxTiles', '3']
  const rest = [
    '--rl.numGenerations',
    '4',
    '--rl.maxCompletionLength',
    onGpu ? '128' : '16',
    '--optim.learningRate',
    '1e-12',
  ]
  const none = ['--evalRecords', '0', '--saveSteps', '0']
  const words = node('bin/roundtrip.mjs', 'train', '--model', model, '--data', data, '--output', output)
  const child = spawn(process.execPath, [...words, ...size, ...rest, ...none], {
    ...inherit,
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const code = await new Promise((done) => void child.on('close', done))
  if (code !== 0) throw new Error(`train ended with ${code}`)
  const lines = readFileSync(join(output, 'timing.jsonl'), 'utf8').trim().split('\n')
  return lines.map((line) => JSON.parse(line) as TimingLine).filter((line) => line.t === 'step')
}

export async function run(): Promise<BenchRow[]> {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-train-'))
  try {
    const [data, model] = [await writeRecords(folder), modelFolder(join(folder, 'model'))]
    const idle = watchGpu()
    const steps = (await trained(model, data, join(folder, 'run'))).slice(warmUps - 1)
    const wall = steps.slice(1).map((step, i) => step.time - steps[i]!.time)
    const own = (name: string) => median(steps.slice(1).map((step) => (step.metrics?.[name] ?? 0) * 1000))
    const names = Object.keys(steps.at(-1)!.metrics ?? {}).filter((name) => /^seconds\//.test(name))
    const unused = idle(steps[0]!.time, steps.at(-1)!.time)
    return [
      row('train, wall time of a step', median(wall), null, 'ms'),
      row('  slowest of them', Math.max(...wall), null, 'ms'),
      row('  step_time of the log', own('step_time'), null, 'ms'),
      ...names.map((name) => row(`  ${name.slice('seconds/'.length)}`, own(name), null, 'ms')),
      ...(unused === null ? [] : [row('  GPU idle', unused, 8, '%')]),
    ]
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
