import { copyFileSync, mkdirSync, readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import {
  loadWeights,
  type OpenOptions,
  openWeights,
  readHeader,
  type TensorSource,
  toTorchDType,
  type WeightFolder,
  writeSafetensors,
  writeWeights,
} from '../../checkpoint/index.ts'
import { log, Mismatch } from '../../core/index.ts'
import { Linear, mergedWeight, type Slot } from '../../nn/index.ts'
import { type DType, type Tensor, tidy } from '../../tensor/index.ts'
import { chatTemplate, loadTokenizer } from '../../text/index.ts'
import { videoOnlyNames } from '../sam2/index.ts'
import { readSa2VAConfig, type Sa2VAConfig } from './config.ts'
import { Prompter } from './inputs.ts'
import { Sa2VA } from './model.ts'

const sam = /^grounding_encoder\.sam2_model\./
/** Only used with point, box or mask prompts; a checkpoint may lack them. */
const promptOnly = [/\.sam_prompt_encoder\.(point_embeddings|mask_downscaling)\./]

export interface Loaded {
  dir: string
  cfg: Sa2VAConfig
  model: Sa2VA
  prompter: Prompter
}

/** Names of the checkpoint that belong to video and stay unread. */
export function isVideoOnly(name: string): boolean {
  return sam.test(name) && videoOnlyNames.some((p) => p.test(name.replace(sam, '')))
}

/** Stored by some writers and never read: the head of a model that shares its embeddings, tables of the rotary embedding. */
function isSpare(name: string, cfg: Sa2VAConfig): boolean {
  if (cfg.llm.tie_word_embeddings && /^language_model\.(lm_head|output)\.weight$/.test(name)) return true
  return /\.rotary_emb\.inv_freq$/.test(name)
}

/** A Sa2VA folder as the hub has it: config.json, weights, tokenizer. */
export function openSa2VA(dir: string, options: OpenOptions = {}): Loaded {
  const cfg = readSa2VAConfig(dir)
  const folder = openWeights(dir)
  tieIfHeadIsMissing(cfg, folder)
  const tokenizer = loadTokenizer(dir)
  const prompter = new Prompter(cfg, tokenizer, chatTemplate(cfg.template))
  if (tokenizer.vocabSize > cfg.llm.vocab_size) {
    throw new Mismatch({
      where: dir,
      field: 'tokenizer',
      expected: `at most vocab_size ${cfg.llm.vocab_size} tokens`,
      got: tokenizer.vocabSize,
    })
  }
  const model = new Sa2VA(cfg)
  const unused = { test: (name: string) => isVideoOnly(name) || isSpare(name, cfg) } as RegExp
  try {
    loadWeights(model, folder, { ...options, unused: [unused], optional: promptOnly })
  } catch (error) {
    for (const t of model.parameters().values()) t.dispose()
    throw error
  }
  return { dir, cfg, model, prompter }
}

function tieIfHeadIsMissing(cfg: Sa2VAConfig, folder: WeightFolder): void {
  const head =
    cfg.llm.architectures[0] === 'InternLM2ForCausalLM'
      ? 'language_model.output.weight'
      : 'language_model.lm_head.weight'
  if (cfg.llm.tie_word_embeddings || folder.has(head)) return
  log.warn(`${folder.path}: ${head} is missing; the embedding matrix serves as the head`)
  cfg.llm.tie_word_embeddings = true
}

/**
 * A full folder with the model's weights, loadable by the Python code. Adapters are merged in what is written, not in the model.
 * Every other file and every tensor the model does not hold (video modules) is copied; names, dtypes and shards are the source's.
 */
export function exportSa2VA(loaded: Loaded, out: string, maxShardBytes?: number): string[] {
  const source = openWeights(loaded.dir)
  mkdirSync(out, { recursive: true })
  requireEmpty(out)
  const slots = new Map(loaded.model.slots().map((slot) => [slot.name, slot]))
  const entries = source.names.map((name) => entryOf(name, slots.get(name), source))
  const inShards = source.files.every((file) => file.endsWith('.safetensors')) && maxShardBytes === undefined
  const files = inShards ? writeShards(source, entries, out) : writeWeights(out, entries, { maxShardBytes })
  copyOthers(loaded.dir, out)
  return files
}

function requireEmpty(out: string): void {
  const old = readdirSync(out).find((name) => /\.(safetensors|bin|pt|pth)$|\.index\.json$|^config\.json$/.test(name))
  if (old) throw new Mismatch({ where: out, expected: 'a folder without a model', got: old })
}

const weightFile = /\.(safetensors|bin|pt|pth)$|\.index\.json$/

function copyOthers(from: string, out: string): void {
  for (const file of readdirSync(from, { withFileTypes: true })) {
    if (file.isFile() && !weightFile.test(file.name)) copyFileSync(join(from, file.name), join(out, file.name))
  }
}

/** The same files with the same tensors in each; the index is the source's own. */
function writeShards(source: WeightFolder, entries: readonly TensorSource[], out: string): string[] {
  const files = source.files.map((file) => {
    const inside = entries.filter((entry) => source.entry(entry.name).file === file)
    writeSafetensors(join(out, basename(file)), inside, readHeader(file).metadata)
    return basename(file)
  })
  const index = 'model.safetensors.index.json'
  if (files.length === 1 && files[0] === 'model.safetensors') return files
  copyFileSync(join(source.path, index), join(out, index))
  return [...files, index]
}

/** The tensor to write for a weight of the model, made when its turn comes. */
function currentWeight({ owner, key }: Slot): Tensor {
  if (owner instanceof Linear && key === 'weight') return mergedWeight(owner)
  return (owner as Record<string, Tensor>)[key]!.detach()
}

function entryOf(name: string, slot: Slot | undefined, source: WeightFolder): TensorSource {
  const { dtype, shape } = source.entry(name)
  const torch = toTorchDType(dtype)
  if (!slot || !torch) return { name, dtype, shape, data: () => source.read(name) }
  const data = () => {
    const array = tidy(() =>
      currentWeight(slot)
        .to(torch as DType)
        .to('cpu')
        .contiguous()
        .array(),
    )
    return new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
  }
  return { name, dtype, shape, data }
}
