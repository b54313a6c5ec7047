// Recomputes everything in a golden folder of Sa2VA on Qwen2.5-VL or Qwen3-VL: a miniature checkpoint with what the reference's
// wrapper computed from it. N prompt tokens, n answer tokens, S hidden size, P patches.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights, readTensors } from '../checkpoint/index.ts'
import type { CheckRow } from '../core/index.ts'
import { decodeImage } from '../image/index.ts'
import { generate, teacherForce } from '../llm/index.ts'
import { firstResize, openSa2VAQwen, prepareQwenImage, type QwenGroundedFeatures } from '../models/index.ts'
import { noGrad, type Tensor, tidy } from '../tensor/index.ts'
import { compareIds, compareTensor } from './compare.ts'
import { device } from './device.ts'
import { get, numbers, type QwenCase, type QwenGolden, readAnswer } from './sa2va-qwen-case.ts'
import { gradientRows } from './sa2va-qwen-gradients.ts'
import { pictureRows } from './sa2va-qwen-pictures.ts'
import { languageRows, visionRows } from './sa2va-qwen-states.ts'
import { verifyTokenizer } from './tokens.ts'

export async function verifySa2VAQwen(dir: string): Promise<CheckRow[]> {
  const golden = JSON.parse(readFileSync(join(dir, 'golden.json'), 'utf8')) as QwenGolden
  const loaded = openSa2VAQwen(dir, { dtype: 'float32', device: device() })
  const want = readTensors(openWeights(join(dir, 'golden.safetensors')), device())
  const picture = await decodeImage(readFileSync(join(dir, 'image.png')))
  const image = prepareQwenImage(picture, loaded.cfg, loaded.processor)
  const c: QwenCase = { loaded, golden, want, picture, image }
  try {
    return [...verifyTokenizer(dir), ...noGrad(() => forwardRows(c)), ...gradientRows(c)]
  } finally {
    for (const t of [...want.values(), ...loaded.model.parameters().values()]) t.dispose()
  }
}

function forwardRows(c: QwenCase): CheckRow[] {
  return tidy(() => {
    const features = c.loaded.model.encode(c.image)
    return [
      ...idRows(c),
      ...pictureRows(c),
      ...visionRows(c, features),
      ...languageRows(c, features),
      ...answerRows(c, features),
      ...samRows(c, features),
      ...twiceRows(c),
    ]
  })
}

function idRows(c: QwenCase): CheckRow[] {
  const { tokenizer } = c.loaded.prompter
  const entries = Object.entries(c.golden.token_ids)
  const got = entries.map(([name]) => tokenizer.idOf(name) ?? -1)
  return [
    compareIds(
      'token_ids',
      got,
      entries.map(([, id]) => id),
    ),
  ]
}

function greedyIds(c: QwenCase, features: QwenGroundedFeatures, most: number): Int32Array {
  const { model, prompter } = c.loaded
  const prompt = prompter.segment(features, { question: c.golden.question })
  const [row] = generate(model, prompter.tokenizer, [prompt], {
    maxNewTokens: most,
    stopStrings: prompter.template.stopWords,
    segId: prompter.segId,
  })
  return row!.ids
}

function answerRows(c: QwenCase, features: QwenGroundedFeatures): CheckRow[] {
  const { model } = c.loaded
  const { prompt, ids, pass, seg } = readAnswer(c, features)
  const states = pass.hidden.narrow(0, pass.rowOf(0, 0), ids.length)
  const before = pass.hidden.narrow(0, pass.rowOf(0, -1), ids.length) // the rows that predict the answer
  const greedy = numbers(c, 'seg.greedy_ids')
  const logps = teacherForce(model, prompt, [ids]).logProbs().logps.flatten()
  const state = pass.stateAt(0, seg)
  return [
    compareIds('seg.input_ids', prompt.ids, numbers(c, 'seg.input_ids')),
    compareIds('seg.greedy_ids', greedyIds(c, features, Math.max(24, greedy.length)), greedy),
    compareTensor('seg.hidden_answer', states, get(c, 'seg.hidden_answer')),
    compareTensor('seg.logits_answer', model.decoder.logits(before), get(c, 'seg.logits_answer')),
    compareTensor('seg.answer_logps', logps, get(c, 'seg.answer_logps')),
    compareTensor('seg.state_released', state, get(c, 'seg.state_released')),
    compareTensor('seg.embedding', model.segPrompts(state), get(c, 'seg.embedding')),
  ]
}

function samRows(c: QwenCase, features: QwenGroundedFeatures): CheckRow[] {
  const { sam } = c.loaded.model
  const { level0, level1, level2 } = features.sam
  const { conv_s0, conv_s1 } = sam.sam_mask_decoder
  const prompt = get(c, 'seg.embedding')
  const { masks, ious, objScore } = sam.decode(features.sam, { language: prompt.unsqueeze(1) }, { multimask: true })
  const plain = drawn(c, features, prompt)
  return [
    compareTensor('sam.fpn0', conv_s0.forward(level0), get(c, 'sam.fpn0')),
    compareTensor('sam.fpn1', conv_s1.forward(level1), get(c, 'sam.fpn1')),
    compareTensor('sam.fpn2', level2, get(c, 'sam.fpn2')),
    compareTensor('sam.lang_low_res_multi', masks, get(c, 'sam.lang_low_res_multi')),
    compareTensor('sam.lang_ious', ious, get(c, 'sam.lang_ious')),
    compareTensor('sam.lang_obj_score', objScore, get(c, 'sam.lang_obj_score')),
    compareTensor('sam.lang_low_res_best', plain.low, get(c, 'sam.lang_low_res_best')),
    compareTensor('seg.video_res_masks', plain.atSam, get(c, 'seg.video_res_masks')),
    compareTensor('seg.final_logits', plain.full, get(c, 'seg.final_logits')),
    compareIds('seg.final_mask', bitsOf(plain.full), numbers(c, 'seg.final_mask')),
    ...roundedPixelRows(c, prompt),
  ]
}

/** The reference normalises SAM2's picture in bfloat16; here everything after it is float32. */
function roundedPixelRows(c: QwenCase, prompt: Tensor): CheckRow[] {
  if (!c.want.has('sam.lang_low_res_best_bf16_pixels')) return []
  const { loaded, picture } = c
  const image = prepareQwenImage(picture, loaded.cfg, loaded.processor, { precision: 'bfloat16' })
  const { low, full } = drawn(c, loaded.model.encode(image), prompt)
  return [
    compareTensor('sam.lang_low_res_best_bf16_pixels', low, get(c, 'sam.lang_low_res_best_bf16_pixels')),
    compareIds('seg.final_mask_bf16_pixels', bitsOf(full), numbers(c, 'seg.final_mask_bf16_pixels')),
  ]
}

function drawn(c: QwenCase, features: QwenGroundedFeatures, prompt: Tensor) {
  const { model, cfg } = c.loaded
  const low = model.drawMasks(features, prompt).logits.unsqueeze(1)
  const side = cfg.sam.image_size
  const atSam = low.upsampleBilinear2d([side, side], false)
  return { low, atSam, full: atSam.upsampleBilinear2d([features.height, features.width], false).squeeze(1) }
}

function bitsOf(logits: Tensor): Uint8Array {
  return logits.sigmoid().gt(0.5).to('uint8').array() as Uint8Array
}

/** The whole released inference path: two resizes, SAM2 pixels in bfloat16. */
function twiceRows(c: QwenCase): CheckRow[] {
  if (!c.want.has('twice.input_ids')) return []
  const { cfg, processor, model } = c.loaded
  const image = prepareQwenImage(c.picture, cfg, processor, { resize: 'twice', precision: 'bfloat16' })
  const features = model.encode(image)
  const { prompt, pass, seg } = readAnswer(c, features)
  const state = pass.stateAt(0, seg)
  const greedy = numbers(c, 'twice.greedy_ids')
  const { full } = drawn(c, features, model.segPrompts(state))
  const { rows, columns } = image.patches
  return [
    compareIds('twice.image_grid_thw', [1, rows, columns], numbers(c, 'twice.image_grid_thw')),
    compareIds('twice.first_resized_u8', firstResize(c.picture).data, numbers(c, 'twice.first_resized_u8')),
    compareIds('twice.resized_u8', image.picture.data, numbers(c, 'twice.resized_u8')),
    compareIds('twice.input_ids', prompt.ids, numbers(c, 'twice.input_ids')),
    compareIds('twice.greedy_ids', greedyIds(c, features, Math.max(24, greedy.length)), greedy),
    compareTensor('twice.state_released', state, get(c, 'twice.state_released')),
    compareIds('twice.mask', bitsOf(full), numbers(c, 'twice.mask')),
  ]
}
