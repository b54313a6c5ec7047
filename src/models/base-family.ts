// What families have in common: an opened folder with the interface of a family, and the half of it that points at pixels.

import type { LlmConfig, PromptedModel, PromptIds } from '../llm/index.ts'
import type { Mask } from '../mask/index.ts'
import type { Module } from '../nn/index.ts'
import { type Tensor, tidyNoGrad } from '../tensor/index.ts'
import { type ChatTemplate, encodeAnswer, type Question, type Tokenizer } from '../text/index.ts'
import type { DrawnMask, GroundedFamily } from './family.ts'

interface OpenedFolder<M extends Module> {
  readonly dir: string
  readonly cfg: { readonly raw: unknown; readonly llm: LlmConfig }
  readonly model: M
}

export abstract class OpenedFamily<M extends Module & PromptedModel<never>, L extends OpenedFolder<M>> {
  readonly loaded: L
  abstract readonly tokenizer: Tokenizer
  protected abstract readonly template: ChatTemplate
  /** Tokens of the image in the prompt. */
  protected abstract imageTokens(features: object): number

  constructor(loaded: L) {
    this.loaded = loaded
  }

  get dir(): string {
    return this.loaded.dir
  }

  get config(): unknown {
    return this.loaded.cfg.raw
  }

  get module(): M {
    return this.loaded.model
  }

  get model(): M {
    return this.loaded.model
  }

  get placement() {
    return this.model.placement
  }

  get sizes() {
    const { head_dim, num_hidden_layers, num_key_value_heads } = this.loaded.cfg.llm
    return {
      cacheBytesPerToken: (bytes: number) => 2 * num_hidden_layers * num_key_value_heads * head_dim * bytes,
      imageTokens: (features: object) => this.imageTokens(features),
    }
  }

  completion(text: string, options: { words?: boolean } = {}): Int32Array {
    return encodeAnswer(text, this.template, this.tokenizer, options)
  }
}

type Asks = 'tokenizer' | 'segId' | 'captionSuppressIds' | 'describe' | 'segment'
type Draws = 'segPrompts' | 'drawMasks' | 'finishMasks'
type Part<F extends object, P extends PromptIds, K extends Asks | Draws> = Pick<GroundedFamily<object, F, P>, K>

/** More images at a time are not faster, and the memory of an encoder grows with them. */
const imagesTogether = 4

/** Describes regions and draws masks, with the prompter and the mask decoder of the opened folder. */
export abstract class OpenedGroundedFamily<
  F extends object,
  P extends PromptIds,
  M extends Module & PromptedModel<P> & Part<F, P, Draws>,
  L extends OpenedFolder<M> & { readonly prompter: Part<F, P, Asks> & { readonly template: ChatTemplate } },
> extends OpenedFamily<M, L> {
  get tokenizer(): Tokenizer {
    return this.loaded.prompter.tokenizer
  }

  /** Encodes several images at a time on a GPU, one after the other on the CPU. Without gradient. */
  protected inParts<I, R>(inputs: readonly I[], encode: (some: readonly I[]) => R[]): R[] {
    const size = this.model.placement.device === 'cpu' ? 1 : imagesTogether
    const starts = Array.from({ length: Math.ceil(inputs.length / size) }, (_, i) => i * size)
    return starts.flatMap((at) => tidyNoGrad(() => encode(inputs.slice(at, at + size))))
  }

  protected get template(): ChatTemplate {
    return this.loaded.prompter.template
  }

  get stopWords(): readonly string[] {
    return this.template.stopWords
  }

  get segId(): number {
    return this.loaded.prompter.segId
  }

  get captionSuppressIds(): readonly number[] {
    return this.loaded.prompter.captionSuppressIds
  }

  describe(features: F, mask: Mask | readonly Mask[], question?: string): P & { thin: boolean } {
    return this.loaded.prompter.describe(features, mask, question)
  }

  segment(features: F, phrase: string | { question: Question }): P {
    return this.loaded.prompter.segment(features, phrase)
  }

  segPrompts(states: Tensor): Tensor {
    return this.model.segPrompts(states)
  }

  drawMasks(features: F | readonly F[], prompts: Tensor, choice?: readonly number[]): DrawnMask {
    return this.model.drawMasks(features, prompts, choice)
  }

  finishMasks(features: F | readonly F[], logits: Tensor): Mask[] {
    return this.model.finishMasks(features, logits)
  }
}
