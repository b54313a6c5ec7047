// A golden folder of a plain Qwen-VL, opened: what its checks share.
import type { RgbImage } from '../image/index.ts'
import { teacherForce } from '../llm/index.ts'
import type { ChatOptions, LoadedQwenVL, PatchedImage, QwenFeatures, QwenPrompt } from '../models/index.ts'
import type { Tensor } from '../tensor/index.ts'
import type { ChatTurn } from '../text/index.ts'
import { storedTensor } from './compare.ts'

export interface QwenVLGolden {
  text: string
  system?: string
  question?: string
  text_no_system?: string
  processor_maxdiff?: number
  messages_two?: ChatTurn[]
  template_cases?: { messages: ChatTurn[]; options: ChatOptions; text: string }[]
  tokenizer_cases?: unknown[]
  grad_norms: Record<string, number>
  lora?: Record<string, { loss: number; grad_norms: Record<string, number> }>
}

export interface PlainQwenCase {
  dir: string
  loaded: LoadedQwenVL
  golden: QwenVLGolden
  want: Map<string, Tensor>
  picture: RgbImage
  image: PatchedImage
}

export const get = (c: PlainQwenCase, name: string): Tensor => storedTensor(c.want, name)
export const numbers = (c: PlainQwenCase, name: string): number[] => get(c, name).numbers()

export const flat = (axes: readonly ArrayLike<number>[]) => axes.flatMap((axis) => Array.from(axis))

/** The stored ids: what every model quantity was computed from, whatever our own prompt looks like. */
export function promptOf(c: PlainQwenCase, features: QwenFeatures): QwenPrompt {
  return { ids: Int32Array.from(numbers(c, 'input_ids')), images: [features] }
}

export function answerLogps(c: PlainQwenCase, prompt: QwenPrompt): Tensor {
  const answer = Int32Array.from(numbers(c, 'answer_ids'))
  return teacherForce(c.loaded.model, prompt, [answer]).logProbs().logps
}
