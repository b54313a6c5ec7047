import { defaultPatterns, type FolderReport } from '../family.ts'
import { architectureOfQwen } from '../qwen_vl/index.ts'
import { describeSam, groundingParts, reportOf } from '../sa2va/index.ts'
import { readSa2VAQwenConfig, type Sa2VAQwenConfig } from './config.ts'
import { isAdapted, qwenGroups } from './family.ts'

const parts: readonly [string, RegExp][] = [
  ['visual', /^model\.model\.visual\./],
  ['language_model', /^model\.(model\.language_model|lm_head)\./],
  ...groundingParts,
]

/** Reads config.json and the headers of the weight files. */
export function inspectSa2VAQwen(dir: string, rank: number): FolderReport {
  const cfg = readSa2VAQwenConfig(dir)
  const isTarget = (name: string) => name.startsWith('model.') && isAdapted(name.slice('model.'.length))
  const trained = defaultPatterns(qwenGroups)
  return reportOf(dir, { parts, trained, isTarget, rank, llm: cfg.llm, architecture: architectureOf(cfg) })
}

function architectureOf(cfg: Sa2VAQwenConfig): Record<string, string> {
  return {
    ...architectureOfQwen(cfg),
    masks: describeSam(cfg.sam),
    prompt: `the processor's chat template, pictures of ${cfg.min_pixels} to ${cfg.max_pixels} pixels`,
    dtype: cfg.torch_dtype,
  }
}
