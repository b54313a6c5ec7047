import {
  exportModel,
  loadWeights,
  mergedFolder,
  openWeights,
  releasedLoraScale,
  type WeightFolder,
} from '../../checkpoint/index.ts'
import { log, Mismatch } from '../../core/index.ts'
import { type DecoderOpenOptions, formsOf, type PromptedModel, type PromptIds } from '../../llm/index.ts'
import type { Module } from '../../nn/index.ts'
import { type Rounding, type Sam2Config, videoOnlyNames } from '../../sam/index.ts'
import { cuda, type DType } from '../../tensor/index.ts'
import { loadTokenizer, type Tokenizer, templateOf } from '../../text/index.ts'
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

export interface Sa2VAOpenOptions extends DecoderOpenOptions {
  /** Of the mask decoder with bfloat16 weights; `once` where absent. */
  rounding?: Rounding
}

export function withRounding(sam: Sam2Config, rounding: Rounding | undefined, dtype: DType | undefined): Sam2Config {
  if (rounding !== 'bf16-ref' || dtype === 'bfloat16') return { ...sam, rounding }
  const expected = 'dtype bfloat16: nothing is rounded in another'
  throw new Mismatch({ where: 'model', field: 'rounding bf16-ref', expected, got: dtype ?? 'the stored dtype' })
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

const releasedName =
  /^((vision_model|mlp1|language_model|text_hidden_fcs|grounding_encoder)\.|model\.(model|lm_head)\.)/

/** The weights under the names of a released folder, whatever names they have: adapters of an unmerged one are merged when read. */
export function openModelWeights(dir: string): WeightFolder {
  return mergedFolder(openWeights(dir), (name) => releasedName.test(name), releasedLoraScale)
}

/** A Sa2VA folder as the hub has it: config.json, weights, tokenizer. */
export function openSa2VA(dir: string, options: Sa2VAOpenOptions = {}): Loaded {
  const { rounding, ...load } = options
  if (options.device?.startsWith('cuda')) cuda.use(options.device)
  const cfg = readSa2VAConfig(dir)
  cfg.sam = withRounding(cfg.sam, rounding, options.dtype)
  const folder = openModelWeights(dir)
  tieIfHeadIsMissing(cfg, folder)
  const tokenizer = loadTokenizer(dir)
  const prompter = new Prompter(cfg, tokenizer, templateOf(dir, cfg.template))
  requireVocabulary(dir, tokenizer, cfg.llm)
  const model = new Sa2VA(cfg)
  fillModel(model, folder, load, (name) => isSpare(name, cfg))
  return { dir, cfg, model, prompter }
}

/** The model has a row for every token. */
export function requireVocabulary(dir: string, tokenizer: Tokenizer, { vocab_size }: { vocab_size: number }): void {
  if (tokenizer.vocabSize <= vocab_size) return
  const expected = `at most vocab_size ${vocab_size} tokens`
  throw new Mismatch({ where: dir, field: 'tokenizer', expected, got: tokenizer.vocabSize })
}

/** Weights of a folder into a model of meta tensors; one that cannot be filled leaves nothing behind. */
export function fillModel(
  model: Module & Pick<PromptedModel<PromptIds>, 'decoder' | 'placement'>,
  folder: WeightFolder,
  options: DecoderOpenOptions,
  isSpare: (name: string) => boolean,
): void {
  const { frozenWeights, ...load } = options
  const unused = { test: (name: string) => isVideoOnly(name) || isSpare(name) } as RegExp
  try {
    const formOf = formsOf(model.decoder, frozenWeights)
    loadWeights(model, folder, { ...load, formOf, unused: [unused], optional: promptOnly })
  } catch (error) {
    for (const t of model.parameters().values()) t.dispose()
    throw error
  }
  model.decoder.computeIn(options.dtype ?? model.placement.dtype)
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

/** A full folder with the model's weights, loadable by the Python code: exportModel says what it holds. */
export function exportSa2VA(loaded: { dir: string; model: Module }, out: string, maxShardBytes?: number): string[] {
  return exportModel(loaded.model, loaded.dir, out, { maxShardBytes, open: openModelWeights })
}
