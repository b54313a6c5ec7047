import { copyFileSync, existsSync, mkdirSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import {
  type LoadOptions,
  loadWeights,
  openWeights,
  TensorReader,
  tensorSource,
  type WeightFolder,
  writeWeights,
} from '../../checkpoint/index.ts'
import { atomicWriteJson, log, Mismatch } from '../../core/index.ts'
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

export interface OpenOptions extends Pick<LoadOptions, 'onProgress' | 'checkFinite'> {
  dtype?: DType
  device?: string
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
  loadWeights(model, folder, { ...options, unused: [unused], optional: promptOnly })
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
 * A full folder with the model's weights (LoRA merged before), loadable by the Python code: every other file and every tensor the
 * model does not hold (video modules) is copied, names and dtypes stay as the source had them.
 */
export function exportSa2VA(loaded: Loaded, out: string, maxShardBytes?: number): string[] {
  const source = openWeights(loaded.dir)
  const own = loaded.model.parameters()
  mkdirSync(out, { recursive: true })
  for (const file of readdirSync(loaded.dir, { withFileTypes: true })) {
    if (file.isFile() && !/\.(safetensors|bin|pt|pth)$|\.index\.json$|^config\.json$/.test(file.name))
      copyFileSync(join(loaded.dir, file.name), join(out, file.name))
  }
  atomicWriteJson(join(out, 'config.json'), loaded.cfg.raw)
  const reader = new TensorReader(source)
  try {
    const names = [...source.names].filter((name) => own.has(name) || isVideoOnly(name) || existsSync(loaded.dir))
    const entries = names.map((name) => entryOf(name, own.get(name), source, reader))
    return writeWeights(out, entries, { metadata: { format: 'pt' }, ...(maxShardBytes ? { maxShardBytes } : {}) })
  } finally {
    reader.close()
  }
}

function entryOf(name: string, own: Tensor | undefined, source: WeightFolder, reader: TensorReader) {
  const stored = source.entry(name)
  if (!own) return { name, dtype: stored.dtype, shape: stored.shape, data: () => source.read(name) }
  const like = reader.read(name)
  const entry = tensorSource(name, like)
  return {
    ...entry,
    data: () => {
      const array = tidy(() => own.to(like.dtype).to('cpu')).array()
      return new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
    },
  }
}
