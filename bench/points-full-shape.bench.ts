// One step of the point task at the full shape of Qwen2.5-VL-3B and SAM2-large, random bf16 weights on CUDA: two records of 840 x 840,
// K 8, 96 new tokens. Time by phase, and peak GPU memory against 80 GiB. Without a GPU the size of the miniatures, which only shows that
// the bench runs.
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type JsonObject, readJsonObject } from '../src/core/index.ts'
import type { Example } from '../src/data/index.ts'
import { resize } from '../src/image/index.ts'
import { maskFromDense, toDense } from '../src/mask/index.ts'
import { besideWeights, parseQwenVLConfig, QwenVL, QwenVLFamily } from '../src/models/index.ts'
import { type Draw, type Sample, sampleAndScore, step } from '../src/rl/index.ts'
import { Encoder, Learner, resolveRun, runOf } from '../src/run/index.ts'
import { Sam2Model, Sam2Predictor, sam2Config } from '../src/sam/index.ts'
import { makePointScene } from '../src/scenes/index.ts'
import { OpenItems, PlacePoints, type PointSetup, resolvePoints, type WorkItem } from '../src/tasks/index.ts'
import { cuda, tidy, tidyNoGrad } from '../src/tensor/index.ts'
import { type BenchRow, median, row } from './bench.ts'
import { drawWeights, now, onGpu, placement, rankRewards } from './gpu/random-model.ts'
import { filledTokenizer, policy, policyConfig, qwen3b } from './qwen-3b.ts'

const { device, dtype } = placement
const side = onGpu ? 840 : 112
const spread = () => 0.02

function randomPolicy(): QwenVLFamily {
  const { text, vision } = onGpu ? qwen3b : { text: {}, vision: {} }
  const eyes = { ...(policyConfig['vision_config'] as JsonObject), ...vision }
  const config = { ...policyConfig, ...text, vision_config: eyes, torch_dtype: dtype }
  const cfg = parseQwenVLConfig(config)
  const dir = mkdtempSync(join(tmpdir(), 'roundtrip-points-'))
  writeFileSync(join(dir, 'tokenizer.json'), filledTokenizer(Number((config as JsonObject)['vocab_size'])))
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config))
  const model = drawWeights(new QwenVL(cfg), spread)
  model.decoder.computeIn(dtype)
  return new QwenVLFamily({ ...besideWeights(dir, cfg), model })
}

function randomSam(): Sam2Predictor {
  const small = readJsonObject(join(policy, '../sam2/config.json'))['grounding_encoder_config']
  return new Sam2Predictor(drawWeights(new Sam2Model(sam2Config(onGpu ? {} : small)), spread))
}

/** Random weights write no readable answer; fixed points replace it, so that SAM2 has K masks to draw. */
class Placing extends PlacePoints {
  override sample(items: readonly WorkItem[], draw: Draw): Sample[][] {
    const place = (k: number) => Math.floor(((k + 1) * side) / 10)
    return super
      .sample(items, draw)
      .map((group) => group.map((s, k) => ({ ...s, text: `[[${place(k)},${place(k)}]]`, finished: true })))
  }
}

function exampleAt(index: number): Example {
  const { record } = makePointScene(1, index)
  const from = toDense(record.mask)
  const scale = record.image.width / side
  const dense = Uint8Array.from({ length: side * side }, (_, i) => {
    const [x, y] = [i % side, Math.floor(i / side)].map((v) => Math.floor(v * scale)) as [number, number]
    return from[y * record.image.width + x]!
  })
  const image = resize(record.image, side, side, 'bilinear')
  return { id: record.id, image, mask: maskFromDense(dense, side, side), caption: record.query, meta: {} }
}

/** Prepared images to tokens, with the way to the GPU; 90 ms is the limit on an H200. */
function towerRow(policy: QwenVLFamily): BenchRow {
  const images = [0, 1, 2, 3].map((i) => policy.prepare(exampleAt(i).image))
  const times = [0, 1, 2, 3, 4, 5].map(() => {
    const from = now()
    tidy(() => void policy.encode(images))
    return now() - from
  })
  return row(`vision tower, 4 images of ${side} x ${side}`, median(times.slice(1)), onGpu ? 90 : null, 'ms')
}

export async function run(): Promise<BenchRow[]> {
  const config = resolveRun({
    model: 'random',
    task: 'points',
    dataPath: 'neighbours:2',
    device,
    train: ['lora'],
    lora: { rank: onGpu ? 64 : 8, alpha: onGpu ? 128 : 16 },
    checkpointing: onGpu,
    points: { sam: 'random', imageSize: side, wording: 'short' },
    rl: { numGenerations: 8, maxCompletionLength: onGpu ? 96 : 12, epsilonHigh: 0.28, beta: 0.005 },
  })
  const policy = randomPolicy()
  const setup: PointSetup = {
    policy: policy as unknown as PointSetup['policy'],
    sam: randomSam(),
    config: resolvePoints(config.points),
    maxNewTokens: config.rl.maxCompletionLength,
  }
  const learner = new Learner(policy, config)
  const encoder = new Encoder(policy, config, { store: null, encodes: false }) // the task reads its images itself
  const open = new OpenItems(setup, 8)
  const task = new Placing(setup, config, open)
  const seconds: Record<string, number> = {}
  const clocked = async <T>(name: string, work: () => T | Promise<T>): Promise<T> => {
    const from = now()
    const out = await work()
    seconds[name] = (now() - from) / 1000
    return out
  }
  const bench = runOf(config, [task], learner, encoder, rankRewards)
  for (let number = 0; number < 2; number++) {
    if (onGpu) cuda.resetPeak()
    const items = encoder.items([exampleAt(2 * number), exampleAt(2 * number + 1)])
    await clocked('SAM2 and vision tower, 2 images', () => tidyNoGrad(() => void open.all(items)))
    const batch = { draw: { seed: 0, step: number }, pieces: [items] }
    const groups = await clocked('sample 2 x 8 answers, draw their masks', () => sampleAndScore(bench, batch))
    await clocked('learn', () => step(bench, { ...batch, groups }, 1e-5))
    encoder.release(items)
  }
  const rows = [towerRow(policy), ...Object.entries(seconds).map(([name, s]) => row(name, s, null, 's'))]
  const total = Object.values(seconds).reduce((a, b) => a + b, 0)
  rows.push(
    row('one step', total, null, 's'),
    row('times SAM2 read an image, in 2 steps of 2', setup.sam.encodes, 4, 'images'),
  )
  if (onGpu) rows.push(row('peak device memory', cuda.memory(0).peak / 2 ** 30, 80, 'GiB'))
  return rows
}
