// A Sa2VA of random weights and records for it: the 4B shape in bfloat16 on CUDA, elsewhere the tiny shape in float32, which shows that a bench runs.
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Example } from '../../src/data/index.ts'
import { generate, layerMatrices } from '../../src/llm/index.ts'
import { maskFromDense } from '../../src/mask/index.ts'
import { type Loaded, Prompter, parseSa2VAConfig, Sa2VA, Sa2VAFamily } from '../../src/models/index.ts'
import { type Linear, type Module, replaceTensor, storeInt8, tensorAt } from '../../src/nn/index.ts'
import { cuda, noGrad, ones, randn, tidy } from '../../src/tensor/index.ts'
import { chatTemplate, loadTokenizer } from '../../src/text/index.ts'
import { configOf, type ShapeName, tokenizerOf } from '../../tools/lib/checkpoint-shapes.ts'

export const onCard = cuda.count() > 0
export const placement = onCard
  ? { device: 'cuda:0', dtype: 'bfloat16' as const }
  : { device: 'cpu', dtype: 'float32' as const }

/** Waits for the GPU, then the clock. */
export function now(): number {
  cuda.synchronize()
  return performance.now()
}

export const peakGiB = (): number => (onCard ? cuda.memory(0).peak / 2 ** 30 : 0)
export const reservedGiB = (): number => (onCard ? cuda.memory(0).reserved / 2 ** 30 : 0)
export const resetPeak = (): void => {
  if (onCard) cuda.resetPeak()
}

/** The substitute tokenizer has a token for each letter; with few of them a prompt has about 1,100 tokens. */
export const question = '<image>What is it?'

/** Layers add little to the embeddings, so that what is said next follows from the last token alone, whatever the image. */
function spread(name: string): number {
  if (/embed_tokens/.test(name)) return 1
  return /(o_proj|down_proj)\.weight$/.test(name) ? 0.001 : 0.02
}

/** Normal numbers of the given spread where `placement` says; ones in vectors. */
export function drawWeights<M extends Module>(model: M, spread: (name: string) => number): M {
  const { device, dtype } = placement
  for (const slot of model.slots()) {
    const shape = [...tensorAt(slot).shape]
    const value = () => (shape.length === 1 ? ones(shape, { device }) : randn(shape, { device }).mul(spread(slot.name)))
    replaceTensor(
      slot,
      noGrad(() => tidy(() => value().to(dtype))),
    )
  }
  return model
}

export function randomModel(shape: ShapeName = '4b'): Loaded {
  const raw = configOf(onCard ? shape : 'tiny', placement.dtype)
  const cfg = parseSa2VAConfig(raw)
  const model = drawWeights(new Sa2VA(cfg), spread)
  const dir = mkdtempSync(join(tmpdir(), 'roundtrip-random-'))
  writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(tokenizerOf(cfg.llm.vocab_size)))
  writeFileSync(join(dir, 'config.json'), JSON.stringify(raw))
  return { dir, cfg, model, prompter: new Prompter(cfg, loadTokenizer(dir), chatTemplate(cfg.template)) }
}

/** As loading does it. */
export function storeLayersInt8(model: Sa2VA): void {
  const isMatrix = layerMatrices(model.decoder)
  for (const slot of model.slots()) if (isMatrix(slot)) storeInt8(slot.owner as Linear, placement.dtype)
}

/** Tiles side by side and a thumbnail; with three of them a prompt of about 1,100 tokens at the full shape. */
export function randomExample(i: number, tiles = 3): Example {
  const side = onCard ? 448 : 112
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

/** With random weights no answer holds [SEG]; the first token of the greedy answer takes its part, so that every phase runs. */
export function speakingFamily(loaded: Loaded, example: Example, maxTiles = 3): Sa2VAFamily {
  const family = new Sa2VAFamily(loaded)
  const id = noGrad(() =>
    tidy(() => {
      const features = family.encode([family.prepare(example.image, { maxTiles })])[0]!
      const prompt = loaded.prompter.segment(features, example.caption)
      const options = { maxNewTokens: 2, stopStrings: [], segId: -1 }
      return generate(loaded.model, loaded.prompter.tokenizer, [prompt], options)[0]!.ids[0]!
    }),
  )
  const prompter = new Proxy(loaded.prompter, {
    get: (target, key) => {
      if (key === 'segId') return id
      const value = Reflect.get(target, key, target) as unknown
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
  return new Sa2VAFamily({ ...loaded, prompter })
}
