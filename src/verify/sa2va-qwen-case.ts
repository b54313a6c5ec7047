// A golden folder of Sa2VA on a Qwen-VL, opened: what its checks share.
import type { RgbImage } from '../image/index.ts'
import { teacherForce } from '../llm/index.ts'
import type { LoadedSa2VAQwen, QwenGroundedFeatures, QwenImageInput } from '../models/index.ts'
import type { Tensor } from '../tensor/index.ts'
import { storedTensor } from './compare.ts'
import type { GradLoss } from './grounded-gradients.ts'

export interface QwenGolden {
  question: string
  answer: string
  token_ids: Record<string, number>
  full_grid_of_2000x1500?: number[][]
  smart_resize_cases?: ResizeCase[]
  grad_loss: GradLoss
  grad_norms: Record<string, number>
}

export interface ResizeCase {
  width: number
  height: number
  resized_hw: number[]
  first_resized_hw: number[]
  twice_resized_hw: number[]
}

export interface QwenCase {
  loaded: LoadedSa2VAQwen
  golden: QwenGolden
  want: Map<string, Tensor>
  picture: RgbImage
  image: QwenImageInput
}

export const get = (c: QwenCase, name: string): Tensor => storedTensor(c.want, name)
export const numbers = (c: QwenCase, name: string): number[] => get(c, name).numbers()

/** The answer of the golden set, read after its prompt, and the state of its [SEG]. */
export function readAnswer(c: QwenCase, features: QwenGroundedFeatures) {
  const { model, prompter } = c.loaded
  const prompt = prompter.segment(features, { question: c.golden.question })
  const ids = Int32Array.from(numbers(c, 'seg.answer_ids'))
  // one more token, so that the last one of the answer is read too and its state exists
  const pass = teacherForce(model, prompt, [Int32Array.from([...ids, 0])])
  return { prompt, ids, pass, seg: ids.indexOf(prompter.segId) }
}
