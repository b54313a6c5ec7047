// Opening a folder as the family it holds, and the groups of weights that can train in any of them.
import { statSync } from 'node:fs'
import { basename } from 'node:path'
import { openWeights } from '../checkpoint/index.ts'
import { Mismatch } from '../core/index.ts'
import type { DecoderOpenOptions } from '../llm/index.ts'
import { type Rounding, samFiles, samFolder } from '../sam/index.ts'
import { buildPrompt, folderTemplate, imagePlaceholder, renderTemplate, templateOf } from '../text/index.ts'
import { familyOf, type ModelFamily } from './families.ts'
import type { Family, FolderReport } from './family.ts'
import { MobileSamFamily } from './mobilesam/family.ts'
import { chatText, inspectQwenVL, QwenVLFamily, readQwenVLConfig, systemTurn } from './qwen_vl/index.ts'
import { inspectSa2VA, readSa2VAConfig, Sa2VAFamily } from './sa2va/index.ts'
import { inspectSa2VAQwen, type RegionPrompt, readSa2VAQwenConfig, Sa2VAQwenFamily } from './sa2va-qwen/index.ts'

/** What whoever opens a model may choose, besides device and dtype. */
export interface FamilyOptions extends DecoderOpenOptions {
  /** How a region is shown to a model on Qwen-VL; the family's own way if absent. */
  region?: RegionPrompt
  /** Of the mask decoder with bfloat16 weights. */
  rounding?: Rounding
}

interface Entry {
  open(dir: string, options: FamilyOptions): Family
  inspect(dir: string, loraRank: number): FolderReport
  dtype(dir: string): string
  /** The prompt of a question about one picture. */
  prompt(dir: string, question: string): string
}

const onQwen: Entry = {
  open: Sa2VAQwenFamily.open,
  inspect: inspectSa2VAQwen,
  dtype: (dir) => readSa2VAQwenConfig(dir).torch_dtype,
  prompt: (dir, question) => chatText(question, [1], systemTurn(dir, readSa2VAQwenConfig(dir).base)),
}

const plainQwen: Entry = {
  open: QwenVLFamily.open,
  inspect: inspectQwenVL,
  dtype: (dir) => readQwenVLConfig(dir).torch_dtype,
  prompt: (dir, question) => chatText(question, [1], systemTurn(dir, readQwenVLConfig(dir).base)),
}

const families: Record<ModelFamily, Entry> = {
  'sa2va-internvl': {
    open: openOnInternVL,
    inspect: inspectSa2VA,
    dtype: (dir) => readSa2VAConfig(dir).torch_dtype,
    prompt: (dir, question) => {
      const template = templateOf(dir, readSa2VAConfig(dir).template)
      return buildPrompt({ template, numTiles: 1, tokensPerTile: 1, text: `${imagePlaceholder}\n${question}` })
    },
  },
  'sa2va-qwen2_5_vl': onQwen,
  'sa2va-qwen3_vl': onQwen,
  mobilesam: { open: MobileSamFamily.open, inspect: noReport, dtype: () => 'float32', prompt: noReport },
  qwen2_5_vl: plainQwen,
  qwen3_vl: plainQwen,
}

function noReport(dir: string): never {
  const expected = 'a folder with a language model'
  throw new Mismatch({ where: dir, expected, got: 'MobileSAM', hint: 'train --task segment reports what learns' })
}

function openOnInternVL(dir: string, { region, ...options }: FamilyOptions): Family {
  if (region === undefined || region === 'cells') return Sa2VAFamily.open(dir, options)
  const expected = 'cells: Sa2VA on InternVL was trained with region tokens'
  throw new Mismatch({ where: dir, field: 'region', expected, got: region })
}

const entryOf = (dir: string): Entry => families[familyOf(dir)]

/** A model folder as the hub has it: config.json, weights, tokenizer. */
export function openFamily(dir: string, options: FamilyOptions = {}): Family {
  return entryOf(dir).open(dir, options)
}

/** What a folder holds, without reading a weight. */
export function inspectFolder(dir: string, loraRank: number): FolderReport {
  return entryOf(dir).inspect(dir, loraRank)
}

/** The files that hold a model's weights. */
export function weightFiles(dir: string): readonly string[] {
  const folder = samFolder(dir)
  return folder === null ? openWeights(dir).files : samFiles(folder)
}

/** Their names, sizes and times of change: stored features depend on them. */
export function weightStates(dir: string): [name: string, size: number, changed: number][] {
  return weightFiles(dir).map((path) => {
    const { size, mtimeMs } = statSync(path)
    return [basename(path), size, mtimeMs]
  })
}

/** A prompt with one token for the picture, and what rendered it: the family's template, or that of a folder of another family. */
export function promptOf(dir: string, question: string): { by: string; prompt: string } {
  const own = folderTemplate(dir)
  const family = own ? knownFamily(dir) : familyOf(dir)
  if (!own || family) return { by: family!, prompt: families[family!].prompt(dir, question) }
  const parts = [{ type: 'image' }, { type: 'text', text: question }]
  const content = /image/.test(own.text) ? parts : question
  return { by: own.file, prompt: renderTemplate(dir, own, [{ role: 'user', content }]) }
}

function knownFamily(dir: string): ModelFamily | null {
  try {
    return familyOf(dir)
  } catch (error) {
    if (error instanceof Mismatch) return null
    throw error
  }
}

/** The dtype config.json names for the weights. */
export function storedDtype(dir: string): 'float32' | 'bfloat16' {
  return entryOf(dir).dtype(dir) === 'float32' ? 'float32' : 'bfloat16'
}
