// Recomputes everything in a golden folder of Sa2VA: a miniature checkpoint with what the reference computed from it.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights, readTensors } from '../checkpoint/index.ts'
import type { CheckRow } from '../core/index.ts'
import { decodeImage, type RgbImage } from '../image/index.ts'
import { generate, teacherForce } from '../llm/index.ts'
import { type Mask, maskFromPng } from '../mask/index.ts'
import { type Features, type ImageInput, type Loaded, openSa2VA, type Prompt, prepareImage } from '../models/index.ts'
import { tensorAt } from '../nn/index.ts'
import type { Sam2Prompt } from '../sam/index.ts'
import { noGrad, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { compareGradNorm, compareIds, compareNumbers, compareTensor, storedTensor } from './compare.ts'
import { device } from './device.ts'
import { compareGradient, type GradLoss, groundedLossRows } from './grounded-gradients.ts'
import { verifyTokenizer } from './tokens.ts'

interface Golden {
  cap_question: string
  seg_question: string
  max_new_tokens: number
  grad_loss: GradLoss
  grad_norms: Record<string, number>
}

/** The settings of every set whose golden.json does not have them. */
const usual = { seg_question: '<image>\nPlease segment the red circle on the left.', max_new_tokens: 24 }

interface Case {
  loaded: Loaded
  golden: Golden
  want: Map<string, Tensor>
  image: ImageInput
  mask: Mask
}

export async function verifySa2VA(dir: string): Promise<CheckRow[]> {
  const golden = { ...usual, ...(JSON.parse(readFileSync(join(dir, 'golden.json'), 'utf8')) as Golden) }
  const loaded = openSa2VA(dir, { dtype: 'float32', device: device() })
  const mask = await maskFromPng(readFileSync(join(dir, 'mask.png')))
  const want = readTensors(openWeights(join(dir, 'golden.safetensors')), device())
  const picture = await decodeImage(readFileSync(join(dir, 'image.png')))
  const c: Case = { loaded, golden, want, image: tiled(picture, loaded, want), mask }
  try {
    return [...verifyTokenizer(dir), ...noGrad(() => forwardRows(c)), ...gradientRows(c)]
  } finally {
    for (const t of [...want.values(), ...loaded.model.parameters().values()]) t.dispose()
  }
}

/** The reference cuts into 12 tiles at most whatever its config.json says; the stored tiles show which was used. */
function tiled(picture: RgbImage, { cfg }: Loaded, want: Map<string, Tensor>): ImageInput {
  const image = prepareImage(picture, cfg)
  return image.tiles === want.get('cap.pixel_values')?.size(0) ? image : prepareImage(picture, cfg, { maxTiles: 12 })
}

const get = (c: Case, name: string): Tensor => storedTensor(c.want, name)

function forwardRows(c: Case): CheckRow[] {
  const features = c.loaded.model.encode(c.image)
  const rows = [
    ...imageRows(c),
    ...visionRows(c, features),
    ...captionRows(c, features),
    ...segmentRows(c, features),
    ...samRows(c, features),
  ]
  for (const t of [features.vision, features.sam.level0, features.sam.level1, features.sam.level2]) t.dispose()
  return rows
}

/** Pixels: one level of 255 at the smallest std is the most a resampler may differ; equality is what we see. */
const pixelLimit = 1 / 255 / 0.224 + 1e-6

function imageRows(c: Case): CheckRow[] {
  const limit = { abs: pixelLimit, words: '1/255/std' }
  return [
    compareNumbers('cap.pixel_values', c.image.pixels, get(c, 'cap.pixel_values'), limit),
    compareNumbers('seg.pixel_values', c.image.pixels, get(c, 'seg.pixel_values'), limit),
    compareNumbers('seg.g_pixel_values', c.image.samPixels, get(c, 'seg.g_pixel_values'), limit),
  ]
}

function visionRows(c: Case, features: Features): CheckRow[] {
  const { model } = c.loaded
  return tidy(() => {
    const { tiles, size, pixels } = c.image
    const want = get(c, 'cap.vit_last')
    const at = (layer: number) => {
      const all = model.vision_model.forward(tensor(pixels, [tiles, 3, size, size], { device: device() }), layer)
      return compareTensor('cap.vit_last', all.narrow(0, 0, Math.min(tiles, want.size(0))), want)
    }
    // by its name the last state; a generator may have stored the selected one
    const last = at(-1)
    const rows = [last.pass || model.cfg.select_layer === -1 ? last : at(model.cfg.select_layer)]
    rows.push(compareTensor('cap.image_embeds', model.imageTokens(features.vision), get(c, 'cap.image_embeds')))
    return rows
  })
}

function greedy(c: Case, prompt: Prompt): Int32Array {
  const { model, prompter } = c.loaded
  return tidy(() => {
    const [row] = generate(model, prompter.tokenizer, [prompt], {
      maxNewTokens: c.golden.max_new_tokens,
      stopStrings: prompter.template.stopWords,
      segId: prompter.segId,
    })
    return row!.ids
  })
}

function captionRows(c: Case, features: Features): CheckRow[] {
  const prompt = c.loaded.prompter.describe(features, c.mask, c.golden.cap_question)
  const cells = get(c, 'cap.prompt_masks')
  return [
    compareIds('cap.prompt_masks', prompt.regions[0]!, cells.numbers()),
    compareIds('cap.input_ids', prompt.ids, get(c, 'cap.input_ids').numbers()),
    compareIds('cap.greedy_ids', greedy(c, prompt), get(c, 'cap.greedy_ids').numbers()),
  ]
}

/** The given answer, and the state of its [SEG]. */
function answer(c: Case, features: Features) {
  const { model, prompter } = c.loaded
  const prompt = prompter.segment(features, { question: c.golden.seg_question })
  const ids = Int32Array.from(get(c, 'seg.answer_ids').numbers())
  // one more token, so that the last one of the answer is read too and its state exists
  const pass = teacherForce(model, prompt, [Int32Array.from([...ids, 0])])
  return { prompt, ids, pass, seg: ids.indexOf(prompter.segId) }
}

function segmentRows(c: Case, features: Features): CheckRow[] {
  const { model } = c.loaded
  return tidy(() => {
    const { prompt, ids, pass, seg } = answer(c, features)
    const states = pass.hidden.narrow(0, pass.rowOf(0, 0), ids.length) // [n, S]
    const before = pass.hidden.narrow(0, pass.rowOf(0, -1), ids.length) // the rows that predict the answer
    const embedding = model.segPrompts(pass.stateAt(0, seg))
    const drawn = model.drawMasks(features, embedding)
    const size = model.cfg.sam.image_size
    const atSam = drawn.logits.unsqueeze(1).upsampleBilinear2d([size, size], false)
    const full = atSam.upsampleBilinear2d([features.height, features.width], false).squeeze(1)
    return [
      compareIds('seg.input_ids', prompt.ids, get(c, 'seg.input_ids').numbers()),
      compareIds('seg.greedy_ids', greedy(c, prompt), get(c, 'seg.greedy_ids').numbers()),
      compareTensor('seg.hidden_answer', states, get(c, 'seg.hidden_answer')),
      compareTensor('seg.logits_answer', model.decoder.logits(before), get(c, 'seg.logits_answer')),
      compareTensor('seg.embedding', embedding, get(c, 'seg.embedding')),
      compareTensor('seg.video_res_masks', atSam, get(c, 'seg.video_res_masks')),
      compareTensor('seg.final_logits', full, get(c, 'seg.final_logits')),
      compareIds(
        'seg.final_mask',
        full.sigmoid().gt(0.5).to('uint8').array() as Uint8Array,
        get(c, 'seg.final_mask').numbers(),
      ),
    ]
  })
}

function samRows(c: Case, features: Features): CheckRow[] {
  const { sam, cfg } = c.loaded.model
  const side = cfg.sam.image_size
  return tidy(() => {
    const pixels = tensor(c.image.samPixels, [1, 3, side, side], { device: device() })
    const maps = sam.image_encoder.trunk.forward(pixels)
    const rows = maps.map((map, i) => compareTensor(`sam.trunk${i}`, map, get(c, `sam.trunk${i}`)))
    const { level0, level1, level2 } = features.sam
    const { conv_s0, conv_s1 } = sam.sam_mask_decoder
    rows.push(compareTensor('sam.fpn0', conv_s0.forward(level0), get(c, 'sam.fpn0')))
    rows.push(compareTensor('sam.fpn1', conv_s1.forward(level1), get(c, 'sam.fpn1')))
    rows.push(compareTensor('sam.fpn2', level2, get(c, 'sam.fpn2')))
    return [...rows, ...languageRows(c, features), ...pointRows(c, features)]
  })
}

function languageRows(c: Case, features: Features): CheckRow[] {
  const { model } = c.loaded
  const { sam } = model
  const { masks, ious, objScore } = sam.decode(
    features.sam,
    { language: get(c, 'seg.embedding').unsqueeze(1) },
    { multimask: true },
  )
  const best = model.drawMasks(features, get(c, 'seg.embedding'))
  return [
    compareTensor('sam.lang_low_res_multi', masks, get(c, 'sam.lang_low_res_multi')),
    compareTensor('sam.lang_ious', ious, get(c, 'sam.lang_ious')),
    compareTensor('sam.lang_obj_score', objScore, get(c, 'sam.lang_obj_score')),
    compareTensor('sam.lang_low_res_best', best.logits.unsqueeze(1), get(c, 'sam.lang_low_res_best')),
  ]
}

/** Coordinates [1, n, 2] and labels [1, n] as plain data. */
function pointPrompt(coords: Tensor, labels: Tensor): Sam2Prompt {
  const xy = coords.numbers()
  return { points: [labels.numbers().map((_, i) => [xy[2 * i]!, xy[2 * i + 1]!])], labels: [labels.numbers()] }
}

function pointRows(c: Case, features: Features): CheckRow[] {
  const { sam } = c.loaded.model
  const points = pointPrompt(get(c, 'sam.point_coords'), get(c, 'sam.point_labels'))
  const boxed = pointPrompt(get(c, 'sam.box_point_coords'), get(c, 'sam.box_point_labels'))
  const single = sam.decode(features.sam, points, { multimask: false })
  const multi = sam.decode(features.sam, points, { multimask: true })
  const box = sam.decode(features.sam, boxed, { multimask: false })
  return [
    compareTensor('sam.points_low_res', single.masks, get(c, 'sam.points_low_res')),
    compareTensor('sam.points_ious', single.ious, get(c, 'sam.points_ious')),
    compareTensor('sam.points_low_res_multi', multi.masks, get(c, 'sam.points_low_res_multi')),
    compareTensor('sam.points_ious_multi', multi.ious, get(c, 'sam.points_ious_multi')),
    compareTensor('sam.box_points_low_res', box.masks, get(c, 'sam.box_points_low_res')),
    compareTensor('sam.box_points_ious', box.ious, get(c, 'sam.box_points_ious')),
  ]
}

/** Every weight trains here, the frozen encoders too: the reference's gradients are of the whole model. */
function gradientRows(c: Case): CheckRow[] {
  const slots = c.loaded.model.slots()
  for (const slot of slots) tensorAt(slot).requiresGrad_(true)
  return tidy(() => {
    const rows = lossRows(c)
    const named = new Map(slots.map((s) => [s.name, tensorAt(s)]))
    const norms = Object.entries(c.golden.grad_norms)
      .filter(([name, norm]) => norm > 0 || named.has(name))
      .map(([name, norm]) => compareGradNorm(name, named.get(ownName(c, name)), norm))
    const full = [...c.want.keys()]
      .filter((n) => n.startsWith('gradof.'))
      .map((name) => compareGradient(name, named.get(ownName(c, name.slice('gradof.'.length))), get(c, name)))
    return [...rows, ...norms, ...full]
  })
}

function lossRows(c: Case): CheckRow[] {
  const { model, prompter } = c.loaded
  const { tiles, size, pixels, samPixels, height, width } = c.image
  const vision = model.visionFeatures(tensor(pixels, [tiles, 3, size, size], { device: device() }))
  const side = model.cfg.sam.image_size
  const features: Features = {
    vision,
    sam: model.sam.encodeImage(tensor(samPixels, [1, 3, side, side], { device: device() })),
    tiles,
    height,
    width,
  }
  const caption = Int32Array.from(get(c, 'grad.caption_ids').numbers())
  const { logps } = teacherForce(model, prompter.describe(features, c.mask, c.golden.cap_question), [
    caption,
  ]).logProbs()
  const { pass, seg } = answer(c, features)
  const { logits } = model.drawMasks(features, model.segPrompts(pass.stateAt(0, seg)))
  return [
    compareTensor('grad.caption_logps', logps.flatten(), get(c, 'grad.caption_logps')),
    ...groundedLossRows(logps, logits, get(c, 'grad.mask_target'), c.golden.grad_loss),
  ]
}

/** A shared head may go by either of its names. */
function ownName(c: Case, name: string): string {
  const { model, cfg } = c.loaded
  if (!cfg.llm.tie_word_embeddings || !/^language_model\.(lm_head|output)\.weight$/.test(name)) return name
  return model.names().find((n) => /\.(embed_tokens|tok_embeddings)\.weight$/.test(n))!
}
