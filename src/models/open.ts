// Which family a folder holds, told by its config.json, and the groups of weights that can train in any of them.
import { join } from 'node:path'
import { type OpenOptions, readJsonObject } from '../checkpoint/index.ts'
import { Mismatch } from '../core/index.ts'
import type { Family, FolderReport } from './family.ts'
import { inspectQwenVL, QwenVLFamily } from './qwen2_5_vl/index.ts'
import { inspectSa2VA, Sa2VAFamily } from './sa2va/index.ts'

interface Entry {
  open(dir: string, options: OpenOptions): Family
  inspect(dir: string, loraRank: number): FolderReport
}

/** By `model_type` of config.json. */
const families: Readonly<Record<string, Entry>> = {
  sa2va_chat: { open: Sa2VAFamily.open, inspect: inspectSa2VA },
  qwen2_5_vl: { open: QwenVLFamily.open, inspect: inspectQwenVL },
}

/** The names of every family's trainable groups. */
export const trainGroupNames = ['mlp1', 'lora', 'text_hidden_fcs', 'mask_decoder', 'prompt_encoder'] as const
export type TrainGroup = (typeof trainGroupNames)[number]

function familyOf(dir: string): Entry {
  const where = join(dir, 'config.json')
  const { model_type } = readJsonObject(where)
  const entry = Object.hasOwn(families, String(model_type)) ? families[String(model_type)] : undefined
  if (entry) return entry
  const expected = Object.keys(families).join(' or ')
  throw new Mismatch({ where, field: 'model_type', expected, got: model_type ?? 'nothing' })
}

/** A model folder as the hub has it: config.json, weights, tokenizer. */
export function openFamily(dir: string, options: OpenOptions = {}): Family {
  return familyOf(dir).open(dir, options)
}

/** What a folder holds, without reading a weight. */
export function inspectFolder(dir: string, loraRank: number): FolderReport {
  return familyOf(dir).inspect(dir, loraRank)
}

/** The dtype config.json names for the weights. */
export function storedDtype(dir: string): 'float32' | 'bfloat16' {
  return readJsonObject(join(dir, 'config.json')).torch_dtype === 'float32' ? 'float32' : 'bfloat16'
}
