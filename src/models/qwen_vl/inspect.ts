import { openWeights, renamed } from '../../checkpoint/index.ts'
import type { FolderReport } from '../family.ts'
import { describeLlm, reportOf } from '../sa2va/index.ts'
import { type QwenParts, readQwenVLConfig } from './config.ts'
import { isAdaptedPath } from './family.ts'
import { generations } from './generations.ts'
import { readProcessor, releasedName } from './load.ts'

const parts: readonly [string, RegExp][] = [
  ['visual', /^visual\./],
  ['language_model', /^(model|lm_head)\./],
]

/** What a plain Qwen-VL folder holds, from its headers. */
export function inspectQwenVL(dir: string, rank: number): FolderReport {
  const cfg = readQwenVLConfig(dir)
  const { minPixels, maxPixels } = readProcessor(dir, cfg)
  const { coords } = generations[cfg.base]
  const architecture = {
    ...architectureOfQwen(cfg),
    prompt: `pictures of ${minPixels} to ${maxPixels} pixels; coordinates are written as ${coords}`,
    dtype: cfg.torch_dtype,
  }
  const facts = { parts, trained: [], isTarget: isAdaptedPath, rank, llm: cfg.llm, architecture }
  return reportOf(dir, facts, renamed(openWeights(dir), releasedName))
}

/** The Qwen-VL of a folder, plain or inside a Sa2VA. */
export function architectureOfQwen({ vision, llm, base }: QwenParts): Record<string, string> {
  const taps = vision.deepstack_visual_indexes
  const deepstack = base === 'qwen3_vl' ? `, deepstack from ${taps.join(', ')}` : ''
  return {
    vision: `${generations[base].label}, ${vision.depth} layers of ${vision.hidden_size}, patches of ${vision.patch_size}${deepstack}`,
    language: describeLlm(llm),
  }
}
