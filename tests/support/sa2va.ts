// Miniature models for tests: the golden folder's tokenizer and sizes with other switches and random weights.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { JsonObject } from '../../src/core/index.ts'
import type { RgbImage } from '../../src/image/index.ts'
import { type Mask, maskFromDense } from '../../src/mask/index.ts'
import { parseSa2VAConfig, type Sa2VAConfig } from '../../src/models/sa2va/config.ts'
import { type Features, Prompter, prepareImage } from '../../src/models/sa2va/inputs.ts'

export type { Prompt } from '../../src/models/sa2va/inputs.ts'

import { Sa2VA } from '../../src/models/sa2va/model.ts'
import { initRandom, linears, type Module } from '../../src/nn/index.ts'
import { type DType, tensor, tidy } from '../../src/tensor/index.ts'
import { chatTemplate, loadTokenizer } from '../../src/text/index.ts'

export const goldenFolder = join(import.meta.dirname, '../fixtures/golden/sa2va-tiny')

export interface Tiny {
  cfg: Sa2VAConfig
  model: Sa2VA
  prompter: Prompter
  dispose(): void
}

/** The golden folder's config.json with some keys changed. */
export function tinyConfig(top: JsonObject = {}, llm: JsonObject = {}, vision: JsonObject = {}): JsonObject {
  const raw = JSON.parse(readFileSync(join(goldenFolder, 'config.json'), 'utf8')) as JsonObject
  return {
    ...raw,
    ...top,
    llm_config: { ...(raw.llm_config as JsonObject), ...llm },
    vision_config: { ...(raw.vision_config as JsonObject), ...vision },
  }
}

export function tinyModel(raw: JsonObject = tinyConfig(), options: { seed?: number; dtype?: DType } = {}): Tiny {
  const cfg = parseSa2VAConfig(raw)
  const model = new Sa2VA(cfg)
  initRandom(model, { seed: options.seed ?? 1, std: 0.2, dtype: options.dtype })
  const prompter = new Prompter(cfg, loadTokenizer(goldenFolder), chatTemplate(cfg.template))
  const dispose = () => {
    for (const t of model.parameters().values()) t.dispose()
  }
  return { cfg, model, prompter, dispose }
}

/** A picture that differs from pixel to pixel, the same for the same sizes. */
export function picture(width: number, height: number): RgbImage {
  const data = new Uint8Array(width * height * 3)
  for (let i = 0; i < data.length; i++) data[i] = (i * 37 + (i >> 5) * 11 + ((i * i) >> 7)) & 255
  return { width, height, data }
}

export function box(width: number, height: number, x0: number, y0: number, x1: number, y1: number): Mask {
  const dense = new Uint8Array(width * height)
  for (let y = y0; y < y1; y++) dense.fill(1, y * width + x0, y * width + x1)
  return maskFromDense(dense, height, width)
}

export function encode(tiny: Tiny, width: number, height: number): Features {
  return tiny.model.encode(prepareImage(picture(width, height), tiny.cfg))
}

export function freeFeatures({ vision, sam }: Features): void {
  for (const t of [vision, sam.level0, sam.level1, sam.level2]) t.dispose()
}

/** Fills every LoRA B with sines over the divisor: it starts at zero, which would hide what an adapter does. */
export function fillAdapters(model: Module, divisor: number): void {
  for (const [, { lora_B }] of linears(model)) {
    const b = lora_B?.weight
    if (!b) continue
    const values = Float32Array.from({ length: b.numel }, (_, i) => Math.sin(i) / divisor)
    tidy(() => void b.copy_(tensor(values, b.shape)))
  }
}
