// Image preparation per core, beside Pillow + NumPy where the system's Python has them. Rates are per CPU second of the
// whole process, so decoding threads count and a busy machine matters little.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import sharp from 'sharp'
import { log, stream, streamId } from '../src/core/index.ts'
import { decodeImage, pixelValues, resize, samInput } from '../src/image/index.ts'
import { type BenchRow, row } from './bench.ts'

const python = '/usr/bin/python3'
const warmUps = 12
const rounds = 20
const names = [
  'decode, tile, normalise: 640 x 427 JPEG to 7 x 448',
  'bicubic: 640 x 427 to 1344 x 896',
  'SAM2 input: 640 x 427 to 1024',
]

const pillowScript = `
import json, sys, time
try:
    import numpy as np
    from PIL import Image
except ImportError:
    print('null')
    sys.exit(0)
mean = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
std = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]
def values(im):
    return (np.asarray(im).transpose(2, 0, 1).astype(np.float32) / np.float32(255) - mean) / std
def prepare():
    im = Image.open(sys.argv[1]).convert('RGB')
    sheet = im.resize((1344, 896), Image.BICUBIC)
    cut = [sheet.crop((x, y, x + 448, y + 448)) for y in (0, 448) for x in (0, 448, 896)]
    return np.stack([values(t) for t in cut + [im.resize((448, 448), Image.BICUBIC)]])
image = Image.open(sys.argv[1]).convert('RGB')
jobs = [prepare, lambda: image.resize((1344, 896), Image.BICUBIC), lambda: values(image.resize((1024, 1024), Image.BICUBIC))]
rates = []
for job in jobs:
    job()
    start = time.process_time()
    for _ in range(${rounds}):
        job()
    rates.append(${rounds} / (time.process_time() - start))
out = prepare()
print(json.dumps({'rates': rates, 'sum': float(out.astype(np.float64).sum())}))
`

interface PillowResult {
  rates: number[]
  /** Sum of all prepared values, to see that both sides did the same work. */
  sum: number
}

/** In place of a photograph: smooth colour noise. */
async function makeJpeg(): Promise<Uint8Array> {
  const random = stream(streamId.test, 'bench image')
  const small = Uint8Array.from({ length: 80 * 54 * 3 }, () => random.below(256))
  const large = resize({ width: 80, height: 54, data: small }, 640, 427, 'bicubic')
  return sharp(large.data, { raw: { width: 640, height: 427, channels: 3 } })
    .jpeg({ quality: 90 })
    .toBuffer()
}

function runPillow(jpeg: Uint8Array): PillowResult | null {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-bench-'))
  try {
    const path = join(folder, 'image.jpg')
    writeFileSync(path, jpeg)
    const done = spawnSync(python, ['-c', pillowScript, path], { encoding: 'utf8' })
    if (done.status === 0) return JSON.parse(done.stdout) as PillowResult | null
    log.warn(`no measurements of Pillow: ${done.error?.message ?? done.stderr.trim().split('\n').at(-1)}`)
    return null
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Calls per CPU second. */
async function rateOf(job: () => unknown): Promise<number> {
  for (let i = 0; i < warmUps; i++) await job()
  const before = process.cpuUsage()
  for (let i = 0; i < rounds; i++) await job()
  const { user, system } = process.cpuUsage(before)
  return (rounds * 1e6) / (user + system)
}

export async function run(): Promise<BenchRow[]> {
  const jpeg = await makeJpeg()
  const image = await decodeImage(jpeg)
  const prepare = async () => pixelValues(await decodeImage(jpeg)).data
  const jobs = [prepare, () => resize(image, 1344, 896, 'bicubic'), () => samInput(image)]
  const ours: number[] = []
  for (const job of jobs) ours.push(await rateOf(job))
  const other = runPillow(jpeg)
  const sum = (await prepare()).reduce((a, b) => a + b, 0)
  if (other && Math.abs(sum - other.sum) > 1e-9 * Math.abs(sum) + 1e-3)
    log.warn(`Pillow prepared other values: sum ${other.sum}, ours ${sum}`)
  return names.map((name, i) => row(name, ours[i]!, other?.rates[i], 'images/s/core'))
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) console.table(await run())
