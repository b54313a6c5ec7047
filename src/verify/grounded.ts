// What the checks of every grounded model share: its answer, the states of the answer, and the mask that SAM2 draws.
import type { CheckRow } from '../core/index.ts'
import { generate, type PromptedModel, type PromptIds, teacherForce } from '../llm/index.ts'
import type { GroundedFamily } from '../models/index.ts'
import type { Sam2Features, Sam2Model } from '../sam/index.ts'
import { resizeMaps, type Tensor } from '../tensor/index.ts'
import type { GoldenTensors } from './golden-tensors.ts'

export interface GroundedCase {
  family: GroundedFamily & { readonly model: PromptedModel<PromptIds> & { readonly sam: Sam2Model } }
  want: GoldenTensors
  /** What is asked for, with `<image>`. */
  segQuestion: string
}

export interface GroundedFeatures {
  sam: Sam2Features
  height: number
  width: number
}

export function greedyIds({ family }: GroundedCase, prompt: PromptIds, maxNewTokens: number): Int32Array {
  const { model, tokenizer, stopWords, segId } = family
  const [row] = generate(model, tokenizer, [prompt], { maxNewTokens, stopStrings: stopWords, segId })
  return row!.ids
}

/** The answer of the golden set, read after its prompt, and the state of its [SEG]. */
export function readAnswer({ family, want, segQuestion }: GroundedCase, features: GroundedFeatures) {
  const prompt = family.segment(features, { question: segQuestion })
  const ids = Int32Array.from(want.numbers('seg.answer_ids'))
  // one more token, so that the last one of the answer is read too and its state exists
  const pass = teacherForce(family.model, prompt, [Int32Array.from([...ids, 0])])
  return { prompt, ids, pass, state: pass.stateAt(0, ids.indexOf(family.segId)) }
}

/** Prompt, greedy answer, states and logits of the given answer. */
export function answerRows(c: GroundedCase, answer: ReturnType<typeof readAnswer>, maxNewTokens: number): CheckRow[] {
  const { prompt, ids, pass } = answer
  const states = pass.hidden.narrow(0, pass.rowOf(0, 0), ids.length) // [n, S]
  const before = pass.hidden.narrow(0, pass.rowOf(0, -1), ids.length) // the rows that predict the answer
  return [
    c.want.ids('seg.input_ids', prompt.ids),
    c.want.ids('seg.greedy_ids', greedyIds(c, prompt, maxNewTokens)),
    c.want.tensor('seg.hidden_answer', states),
    c.want.tensor('seg.logits_answer', c.family.model.decoder.logits(before)),
  ]
}

/** Logits of the mask of a [SEG] prompt: as the decoder draws them, at SAM2's size, at the picture's size. */
export function drawn({ family }: GroundedCase, features: GroundedFeatures, prompt: Tensor) {
  const low = family.drawMasks(features, prompt).logits.unsqueeze(1)
  const side = family.model.sam.config.image_size
  const atSam = resizeMaps(low, side, side)
  return { low, atSam, full: resizeMaps(atSam, features.height, features.width).squeeze(1) }
}

export function bitsOf(logits: Tensor): Uint8Array {
  return logits.sigmoid().gt(0.5).to('uint8').array() as Uint8Array
}

export function maskRows({ want }: GroundedCase, { atSam, full }: ReturnType<typeof drawn>): CheckRow[] {
  return [
    want.tensor('seg.video_res_masks', atSam),
    want.tensor('seg.final_logits', full),
    want.ids('seg.final_mask', bitsOf(full)),
  ]
}

/** The maps of the picture, and what the decoder draws from the golden [SEG] prompt. */
export function samRows({ family, want }: GroundedCase, features: GroundedFeatures, best: Tensor): CheckRow[] {
  const { sam } = family.model
  const { level0, level1, level2 } = features.sam
  const { conv_s0, conv_s1 } = sam.sam_mask_decoder
  const language = want.get('seg.embedding').unsqueeze(1)
  const { masks, ious, objScore } = sam.decode(features.sam, { language }, { multimask: true })
  return [
    want.tensor('sam.fpn0', conv_s0.forward(level0)),
    want.tensor('sam.fpn1', conv_s1.forward(level1)),
    want.tensor('sam.fpn2', level2),
    want.tensor('sam.lang_low_res_multi', masks),
    want.tensor('sam.lang_ious', ious),
    want.tensor('sam.lang_obj_score', objScore),
    want.tensor('sam.lang_low_res_best', best),
  ]
}
