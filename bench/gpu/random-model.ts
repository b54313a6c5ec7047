// A Sa2VA with random weights, and records for it: the 4B shape in bfloat16 on CUDA. Without a GPU the tiny shape in float32 only shows
// that a bench runs.
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Example } from '../../src/data/index.ts'
import { formsOf, generate } from '../../src/llm/index.ts'
import { maskFromDense } from '../../src/mask/index.ts'
import { type Loaded, Prompter, parseSa2VAConfig, Sa2VA, Sa2VAFamily } from '../../src/models/index.ts'
import {
  type FrozenForm,
  type Linear,
  type Module,
  replaceTensor,
  type Slot,
  storeQuantized,
  tensorAt,
} from '../../src/nn/index.ts'
import { cuda, ones, randn, tidyNoGrad } from '../../src/tensor/index.ts'
import { chatTemplate, loadTokenizer } from '../../src/text/index.ts'
import { configOf, type ShapeName, tokenizerOf } from '../../tools/lib/checkpoint-shapes.ts'

export const onGpu = cuda.count() > 0
export const placement = onGpu
  ? { device: 'cuda:0', dtype: 'bfloat16' as const }
  : { device: 'cpu', dtype: 'float32' as const }

/** Milliseconds, after the GPU has finished its work. */
export function now(): number {
  cuda.synchronize()
  return performance.now()
}

export const peakGiB = (): number => (onGpu ? cuda.memory(0).peak / 2 ** 30 : 0)
export const reservedGiB = (): number => (onGpu ? cuda.memory(0).reserved / 2 ** 30 : 0)
export const resetPeak = (): void => {
  if (onGpu) cuda.resetPeak()
}

/** Short: the substitute tokenizer has one token per letter. A prompt has about 1,100 tokens, nearly all of the image. */
export const question = '<image>What is it?'

/** Standard deviation of a weight. Layers add little to the embeddings, so the next token depends on the last one, not on the image. */
function spread(name: string): number {
  if (/embed_tokens/.test(name)) return 1
  return /(o_proj|down_proj)\.weight$/.test(name) ? 0.001 : 0.02
}

/** Normal numbers with the given standard deviation on the device of `placement`, stored as `formOf` says, one by one; ones in vectors. */
export function drawWeights<M extends Module>(
  model: M,
  spread: (name: string) => number,
  formOf: (slot: Slot) => FrozenForm = () => 'exact',
): M {
  const { device, dtype } = placement
  for (const slot of model.slots()) {
    const shape = [...tensorAt(slot).shape]
    const value = () => (shape.length === 1 ? ones(shape, { device }) : randn(shape, { device }).mul(spread(slot.name)))
    const form = formOf(slot)
    tidyNoGrad(() => {
      if (form === 'exact') replaceTensor(slot, value().to(dtype))
      else storeQuantized(slot.owner as Linear, form, dtype, value().to(dtype))
    })
  }
  return model
}

/** Rewards that differ within a group. */
export const rankRewards = {
  score: async (_task: string, groups: readonly (readonly object[])[]) => ({
    rows: groups.map((g) => g.map((_, k) => ({ total: k / 4, parts: { rank: k / 4 }, counted: [], dropped: [] }))),
    metrics: {},
  }),
}

export function randomModel(shape: ShapeName = '4b', form: FrozenForm = 'exact'): Loaded {
  const raw = configOf(onGpu ? shape : 'tiny', placement.dtype)
  const cfg = parseSa2VAConfig(raw)
  const model = new Sa2VA(cfg)
  drawWeights(model, spread, formsOf(model.decoder, form))
  const dir = mkdtempSync(join(tmpdir(), 'roundtrip-random-'))
  writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(tokenizerOf(cfg.llm.vocab_size)))
  writeFileSync(join(dir, 'config.json'), JSON.stringify(raw))
  return { dir, cfg, model, prompter: new Prompter(cfg, loadTokenizer(dir), chatTemplate(cfg.template)) }
}

/** An image of `tiles` tiles side by side; with a thumbnail, three of them give a prompt of about 1,100 tokens at the full shape. */
export function randomExample(i: number, tiles = 3): Example {
  const side = onGpu ? 448 : 112
  const [width, height] = [tiles * side, side]
  const data = Uint8Array.from(
    { length: width * height * 3 },
    (_, at) => (at * 31 + i * 17 + ((at / 97) | 0) * 13) & 255,
  )
  const left = Math.floor(width / 12) * (i + 1)
  const bits = Uint8Array.from({ length: width * height }, (_, at) => {
    const [x, y] = [at % width, Math.floor(at / width)]
    return Number(y >= height / 4 && y < height / 2 && x >= left && x < left + width / 3)
  })
  const caption = 'the red circle to the left of the large blue square near the top edge of the picture'
  return {
    id: `random:${i}`,
    image: { width, height, data },
    mask: maskFromDense(bits, height, width),
    caption,
    meta: {},
  }
}

/** Random weights never write [SEG]. The first token of the greedy answer is used as [SEG], so that every phase runs. */
export function speakingFamily(loaded: Loaded, example: Example, maxTiles = 3): Sa2VAFamily {
  const family = new Sa2VAFamily(loaded)
  const id = tidyNoGrad(() => {
    const features = family.encode([family.prepare(example.image, { maxTiles })])[0]!
    const prompt = loaded.prompter.segment(features, example.caption)
    const options = { maxNewTokens: 2, stopStrings: [], segId: -1 }
    return generate(loaded.model, loaded.prompter.tokenizer, [prompt], options)[0]!.ids[0]!
  })
  const prompter = new Proxy(loaded.prompter, {
    get: (target, key) => {
      if (key === 'segId') return id
      const value = Reflect.get(target, key, target) as unknown
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
  return new Sa2VAFamily({ ...loaded, prompter })
}
