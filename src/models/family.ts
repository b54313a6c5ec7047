// The interfaces every trainable model implements, each family in a folder here. No other room names a family.
import type { AdapterNames } from '../checkpoint/index.ts'
import type { Preparation, RgbImage } from '../image/index.ts'
import type { Placement, PromptedModel, PromptIds } from '../llm/index.ts'
import type { Mask } from '../mask/index.ts'
import type { Module } from '../nn/index.ts'
import type { ClickPrompt } from '../sam/index.ts'
import type { Tensor } from '../tensor/index.ts'
import type { Question, Tokenizer } from '../text/index.ts'

/** Groups that train by default, if the family has them. */
export const defaultTrainGroups = ['mlp1', 'lora', 'text_hidden_fcs', 'mask_decoder', 'prompt_encoder'] as const

/** The names of every family's trainable groups. */
export const trainGroupNames = [...defaultTrainGroups, 'embeddings', 'head'] as const
export type TrainGroup = (typeof trainGroupNames)[number]

/** Patterns of the default groups. */
export function defaultPatterns(groups: Readonly<Partial<Record<TrainGroup, readonly RegExp[]>>>): RegExp[] {
  return defaultTrainGroups.flatMap((group) => groups[group] ?? [])
}

/** Limits on the size of an image's input. */
export interface ImageLimits {
  /** Tiles at most; the model's own limit if absent. */
  maxTiles?: number
}

/** Which layers get LoRA adapters, and the names of their weights in files. */
export interface AdapterSite {
  readonly on: Module
  readonly targets: (path: string) => boolean
  /** Prefix of these paths in the names of the module. */
  readonly root: string
  /** Linear layers between image features and language model that can be adapted too, by their whole names. */
  readonly projector?: RegExp
  readonly names: AdapterNames
  /** A rank above it would not be low. */
  readonly width: number
}

/** Numbers for the memory estimate of a run. */
export interface FamilySizes {
  /** Bytes of keys and values that one token of one row takes, by the bytes of an element. */
  cacheBytesPerToken(bytesPerElement: number): number
  /** Tokens of the image in the prompt. */
  imageTokens(features: object): number
}

/**
 * A model that can train. Inputs (I) are plain data and may be computed in a decoding thread. Features (F) are the outputs of the
 * frozen encoders, shared by policy, EMA copy, reference and all samples.
 */
export interface Family<I = object, F extends object = object> {
  /** Such as `sa2va`. */
  readonly name: string
  /** The folder it was opened from. */
  readonly dir: string
  /** config.json as it was read. */
  readonly config: unknown
  /** Every weight, under the checkpoint's names. */
  readonly module: Module
  readonly placement: Placement
  /** What can train: patterns of weight names by group. A group that matches nothing is an error. */
  readonly groups: Readonly<Record<string, readonly RegExp[]>>
  prepare(image: RgbImage, limits?: ImageLimits): I
  /** The same for a decoding thread; absent: images are prepared where they are encoded. */
  preparation?(limits?: ImageLimits): Preparation
  /** Frozen features of images; the caller owns their tensors. */
  encode(inputs: readonly I[]): F[]
  /** The tensors of features, by name: the store writes them, release() frees them. */
  tensorsOf(features: F): Record<string, Tensor>
  /** The features of an image from stored tensors. */
  featuresOf(tensors: Readonly<Record<string, Tensor>>, image: Pick<RgbImage, 'height' | 'width'>): F
  /** A full folder with the weights as they are now; returns the files written. */
  export(dir: string, maxShardBytes?: number): string[]
}

/** A family that reads prompts (P) and answers with text. */
export interface LanguageFamily<I = object, F extends object = object, P extends PromptIds = PromptIds>
  extends Family<I, F> {
  /** For generation and teacher forcing. */
  readonly model: PromptedModel<P>
  readonly tokenizer: Tokenizer
  /** Texts that end an answer. */
  readonly stopWords: readonly string[]
  readonly adapter: AdapterSite
  readonly sizes: FamilySizes
  /** Images that may be encoded together have the same shape. */
  shapeOf(input: I): string
  /** Images of one shape in one pass, with a gradient if the caller enables it; `rows` are views of `all`. */
  encodeTogether(inputs: readonly I[]): { all: F; rows: F[] }
  /** The token ids of an answer, its end included. `words`: none of it can become a special token, such as a record's own caption. */
  completion(text: string, options?: { words?: boolean }): Int32Array
}

/** Low-res logits of the chosen mask, with the choice that must be reused when the same action is scored again. */
export interface DrawnMask {
  logits: Tensor // [B, h, w]
  choice: number[]
  /** How sure SAM2 is of each mask, without gradient: its predicted overlap, and the probability that there is an object. */
  confidence: Tensor // [B, 2], float32
}

/** A family that describes regions and draws masks from its answers: what the two round trips need. */
export interface GroundedFamily<I = object, F extends object = object, P extends PromptIds = PromptIds>
  extends LanguageFamily<I, F, P> {
  /** The token whose state becomes a mask. */
  readonly segId: number
  /** Ids a caption may not contain, for `suppressIds` of generate: [SEG] and the tokens of images and regions. */
  readonly captionSuppressIds: readonly number[]
  /** Describe one or several regions. `thin`: a mask was too small for the prompt's grid; its nearest cell is used. */
  describe(features: F, mask: Mask | readonly Mask[], question?: string): P & { thin: boolean }
  /** Find what a phrase means. */
  segment(features: F, phrase: string | { question: Question }): P
  /** States of [SEG] tokens [B, S] -> prompts of the mask decoder [B, d]. */
  segPrompts(states: Tensor): Tensor
  /** Prompts [B, d] -> logits of the best mask each, or of the given choices. `features`: one image for all, or one for each prompt. */
  drawMasks(features: F | readonly F[], prompts: Tensor, choice?: readonly number[]): DrawnMask
  /** Low-res logits [B, h, w] -> masks at the image's size. `features`: one image for all, or one for each row. */
  finishMasks(features: F | readonly F[], logits: Tensor): Mask[]
}

/** A family that is asked about an image and answers in its own pixels: what the point task needs. */
export interface VqaFamily<I = object, F extends object = object, P extends PromptIds = PromptIds>
  extends LanguageFamily<I, F, P> {
  /** One question about one image, up to the answer. */
  ask(features: F, question: string): P
  /** Size of the image as the model reads it, the frame of its coordinates. */
  frameOf(features: F): { width: number; height: number }
  /** Units of the coordinates it was trained to write: pixels of `frameOf`, or thousandths of the sides. */
  readonly coords: 'pixel' | 'thousand'
  /** Tokens that are never drawn: those of images, and rows that no token has. The first is the image's. */
  readonly imageIds: readonly number[]
}

/** A family that draws masks from clicks and boxes: what the task `segment` needs. */
export interface PromptableFamily<I = object, F extends object = object> extends Family<I, F> {
  /** Low-res logits [1, h, w] of the mask of a prompt in the image's pixels, and which output of the decoder it is. `choice`: that output. */
  drawPrompt(features: F, prompt: ClickPrompt, choice?: number): { logits: Tensor; choice: number }
  /** Low-res logits [B, h, w] -> masks at the image's size. */
  finishPrompts(features: F, logits: Tensor): Mask[]
}

export function isPromptable(family: Family): family is PromptableFamily {
  return 'drawPrompt' in family
}

/** Whether a model has a language model: adapters, a tokenizer, a key-value cache. */
export function isLanguage(family: Family): family is LanguageFamily {
  return 'tokenizer' in family
}

/** Whether a model answers questions about an image (Qwen-VL). */
export function isVqa(family: Family): family is VqaFamily {
  return 'ask' in family && 'frameOf' in family
}

/** Whether a model describes regions and draws masks (Sa2VA). */
export function isGrounded(family: Family): family is GroundedFamily {
  return 'drawMasks' in family && 'describe' in family
}

/** Weights that belong together. */
export interface WeightGroup {
  name: string
  tensors: number
  elements: number
  bytes: number
  /** Elements the default recipe trains; for the language model these are the adapters', which come on top. */
  trainable: number
  dtypes: Record<string, number>
}

/** What a folder holds, from config.json and the headers of its weight files. */
export interface FolderReport {
  path: string
  architecture: Record<string, string>
  files: { count: number; bytes: number }
  groups: WeightGroup[]
  lora: { rank: number; layers: number; elements: number }
  memory: Record<string, number>
}
