// Recomputes everything in a golden folder of Sa2VA on Qwen2.5-VL or Qwen3-VL: a miniature checkpoint with what the reference's
// wrapper computed from it. N prompt tokens, n answer tokens, S hidden size, P patches.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { CheckRow } from '../core/index.ts'
import { decodeImage, type RgbImage } from '../image/index.ts'
import { teacherForce } from '../llm/index.ts'
import {
  firstResize,
  prepareQwenImage,
  type QwenGroundedFeatures,
  type QwenImageInput,
  Sa2VAQwenFamily,
} from '../models/index.ts'
import { cat, int64Tensor, type Tensor, tidy, tidyNoGrad, zeros } from '../tensor/index.ts'
import { compareIds } from './compare.ts'
import { device } from './device.ts'
import { readGolden, withGolden } from './golden-tensors.ts'
import { type GradLoss, gradientRows, groundedLossRows, noGradient } from './gradients.ts'
import { answerRows, bitsOf, drawn, type GroundedCase, greedyIds, maskRows, readAnswer, samRows } from './grounded.ts'
import { positionsWith, ropeRows, statesAfter, towerRows } from './qwen-states.ts'
import { pictureRows, type ResizeCase } from './sa2va-qwen-pictures.ts'
import { verifyTokenizer } from './tokens.ts'

interface Golden {
  question: string
  answer: string
  token_ids: Record<string, number>
  full_grid_of_2000x1500?: number[][]
  smart_resize_cases?: ResizeCase[]
  grad_loss: GradLoss
  grad_norms: Record<string, number>
}

export interface QwenCase extends GroundedCase {
  family: Sa2VAQwenFamily
  golden: Golden
  picture: RgbImage
  image: QwenImageInput
}

export async function verifySa2VAQwen(dir: string): Promise<CheckRow[]> {
  const golden = readGolden<Golden>(dir)
  const picture = await decodeImage(readFileSync(join(dir, 'image.png')))
  const family = Sa2VAQwenFamily.open(dir, { dtype: 'float32', device: device() })
  const image = prepareQwenImage(picture, family.loaded.cfg, family.loaded.processor)
  return withGolden(join(dir, 'golden.safetensors'), family.module, (want) => {
    const c: QwenCase = { family, golden, want, picture, image, segQuestion: golden.question }
    return [...verifyTokenizer(dir), ...tidyNoGrad(() => forwardRows(c)), ...weightRows(c)]
  })
}

function forwardRows(c: QwenCase): CheckRow[] {
  const features = c.family.model.encode(c.image)
  return [
    ...idRows(c),
    ...pictureRows(c),
    ...visionRows(c, features),
    ...languageRows(c, features),
    ...segmentRows(c, features),
    ...drawnRows(c, features),
    ...twiceRows(c),
  ]
}

function idRows({ family, golden }: QwenCase): CheckRow[] {
  const got = Object.keys(golden.token_ids).map((name) => family.tokenizer.idOf(name) ?? -1)
  return [compareIds('token_ids', got, Object.values(golden.token_ids))]
}

function visionRows({ family, image, want }: QwenCase, features: QwenGroundedFeatures): CheckRow[] {
  return [
    ...towerRows(family.model.model.model.visual, family.loaded.cfg, image.patches, want),
    want.tensor('vis.image_embeds', features.tokens),
    ...features.deepstack.map((t, j) => want.tensor(`vis.deepstack${j}`, t)),
  ]
}

/** Prompt and answer as one row: what enters each layer, and what leaves the last. */
function languageRows(c: QwenCase, features: QwenGroundedFeatures): CheckRow[] {
  const { family, want } = c
  const { model } = family
  const prompt = family.segment(features, { question: c.segQuestion })
  const answer = want.numbers('seg.answer_ids')
  const { axes, next } = model.promptPositions(prompt)
  const { embeddings, additions } = model.promptInputs(prompt)
  const tail = model.decoder.embed(int64Tensor(answer, [1, answer.length], { device: device() }))
  const x = cat([embeddings, tail], { dim: 1 })
  const added = additions.map((t) => cat([t, zeros(tail.shape as number[], { device: device() })], { dim: 1 }))
  const full = positionsWith(axes, next, answer)
  const positions = int64Tensor(full.flat(), [3, 1, full[0]!.length], { device: device() })
  const { parts } = model.decoder.module
  const upTo = (n: number): Tensor => statesAfter(model.decoder, n, x, { positions, additions: added }).squeeze(0)
  const last = upTo(parts.layers.length)
  return [
    want.ids('seg.position_ids', positionsWith(axes, next, []).flat()),
    want.ids('seg.position_ids_full', full.flat()),
    want.ids('seg.rope_delta', [next - prompt.ids.length]),
    ...ropeRows(family.loaded.cfg.llm, positions, x, want, 'seg.'),
    ...parts.layers.map((_, i) => want.tensor(`seg.layer_in${i}`, upTo(i))),
    want.tensor('seg.hidden_before_norm', last),
    want.tensor('seg.hidden_after_norm', parts.norm.forward(last)),
    ...stateRows(c, last.narrow(0, prompt.ids.length + answer.indexOf(family.segId), 1)),
  ]
}

/** Both states at [SEG], and what the mask decoder would be given with the one that is not released. */
function stateRows({ family, want }: QwenCase, before: Tensor): CheckRow[] {
  const after = family.model.decoder.module.parts.norm.forward(before)
  const other = family.loaded.cfg.base === 'qwen3_vl' ? after : before
  return [
    want.tensor('seg.state_before_norm', before),
    want.tensor('seg.state_after_norm', after),
    want.tensor('seg.embedding_of_other_state', family.segPrompts(other)),
  ]
}

function segmentRows(c: QwenCase, features: QwenGroundedFeatures): CheckRow[] {
  const { family, want } = c
  const answer = readAnswer(c, features)
  const logps = teacherForce(family.model, answer.prompt, [answer.ids]).logProbs().logps.flatten()
  return [
    ...answerRows(c, answer, greedyLength(c, 'seg')),
    want.tensor('seg.answer_logps', logps),
    want.tensor('seg.state_released', answer.state),
    want.tensor('seg.embedding', family.segPrompts(answer.state)),
  ]
}

const greedyLength = ({ want }: QwenCase, part: string) => Math.max(24, want.get(`${part}.greedy_ids`).numel)

function drawnRows(c: QwenCase, features: QwenGroundedFeatures): CheckRow[] {
  const plain = drawn(c, features, c.want.get('seg.embedding'))
  return [...samRows(c, features, plain.low), ...maskRows(c, plain), ...roundedPixelRows(c)]
}

/** The reference normalises SAM2's picture in bfloat16; here everything after it is float32. */
function roundedPixelRows(c: QwenCase): CheckRow[] {
  const { family, want } = c
  if (!want.has('sam.lang_low_res_best_bf16_pixels')) return []
  const { cfg, processor } = family.loaded
  const image = prepareQwenImage(c.picture, cfg, processor, { precision: 'bfloat16' })
  const { low, full } = drawn(c, family.model.encode(image), want.get('seg.embedding'))
  return [want.tensor('sam.lang_low_res_best_bf16_pixels', low), want.ids('seg.final_mask_bf16_pixels', bitsOf(full))]
}

/** The whole released inference path: two resizes, SAM2 pixels in bfloat16. */
function twiceRows(c: QwenCase): CheckRow[] {
  const { family, want } = c
  if (!want.has('twice.input_ids')) return []
  const { cfg, processor } = family.loaded
  const image = prepareQwenImage(c.picture, cfg, processor, { resize: 'twice', precision: 'bfloat16' })
  const features = family.model.encode(image)
  const { prompt, state } = readAnswer(c, features)
  const { full } = drawn(c, features, family.segPrompts(state))
  return [
    want.ids('twice.image_grid_thw', [1, image.patches.rows, image.patches.columns]),
    want.ids('twice.first_resized_u8', firstResize(c.picture).data),
    want.ids('twice.resized_u8', image.picture.data),
    want.ids('twice.input_ids', prompt.ids),
    want.ids('twice.greedy_ids', greedyIds(c, prompt, greedyLength(c, 'twice'))),
    want.tensor('twice.state_released', state),
    want.ids('twice.mask', bitsOf(full)),
  ]
}

function weightRows(c: QwenCase): CheckRow[] {
  const rows = gradientRows(c.family.module, c.want, c.golden.grad_norms, () => lossRows(c))
  return tidy(() => [...rows, ...embeddingRows(c)])
}

/** One pass over prompt and answer; SAM2's picture features are constants. */
function lossRows(c: QwenCase): CheckRow[] {
  const { family, want } = c
  const { model } = family
  const features = { ...model.encode(c.image), ...model.look(c.image.patches) }
  const { ids, pass, state } = readAnswer(c, features)
  // the pass read one token more than the answer; its log-probability is left out
  const logps = pass.logProbs().logps.narrow(1, 0, ids.length)
  const { logits } = model.drawMasks(features, model.segPrompts(state))
  return groundedLossRows(logps, logits, want.get('grad.mask_target'), c.golden.grad_loss)
}

function embeddingRows({ family, want }: QwenCase): CheckRow[] {
  if (!want.has('grad.embed_rows')) return []
  const grad = family.model.model.parts.embedding.weight.grad()
  const name = 'grad.embed_of_rows'
  if (!grad) return [noGradient(name)]
  const rows = grad.indexSelect(0, int64Tensor(want.numbers('grad.embed_rows'), { device: device() }))
  return [want.tensor(name, rows, { rel: 1e-3, words: '1e-3 of the largest magnitude' })]
}
