// Recomputes everything in a golden folder of Sa2VA: a miniature checkpoint with what the reference computed from it.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { CheckRow } from '../core/index.ts'
import { decodeImage, type RgbImage } from '../image/index.ts'
import { teacherForce } from '../llm/index.ts'
import { type Mask, maskFromPng } from '../mask/index.ts'
import { type Features, type ImageInput, prepareImage, Sa2VAFamily } from '../models/index.ts'
import type { Sam2Prompt } from '../sam/index.ts'
import { tensor, tidyNoGrad } from '../tensor/index.ts'
import { device } from './device.ts'
import { type GoldenTensors, readGolden, withGolden } from './golden-tensors.ts'
import { type GradLoss, gradientRows, groundedLossRows } from './gradients.ts'
import { answerRows, drawn, type GroundedCase, greedyIds, maskRows, readAnswer, samRows } from './grounded.ts'
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

interface Case extends GroundedCase {
  family: Sa2VAFamily
  golden: Golden
  image: ImageInput
  mask: Mask
}

export async function verifySa2VA(dir: string): Promise<CheckRow[]> {
  const golden = { ...usual, ...readGolden<Golden>(dir) }
  const mask = await maskFromPng(readFileSync(join(dir, 'mask.png')))
  const picture = await decodeImage(readFileSync(join(dir, 'image.png')))
  const family = Sa2VAFamily.open(dir, { dtype: 'float32', device: device() })
  return withGolden(join(dir, 'golden.safetensors'), family.module, (want) => {
    const image = tiled(picture, family, want)
    const c: Case = { family, golden, want, image, mask, segQuestion: golden.seg_question }
    return [...verifyTokenizer(dir), ...tidyNoGrad(() => forwardRows(c)), ...weightRows(c)]
  })
}

/** The reference cuts into 12 tiles at most whatever its config.json says; the stored tiles show which was used. */
function tiled(picture: RgbImage, { loaded: { cfg } }: Sa2VAFamily, want: GoldenTensors): ImageInput {
  const image = prepareImage(picture, cfg)
  return image.tiles === want.get('cap.pixel_values').size(0) ? image : prepareImage(picture, cfg, { maxTiles: 12 })
}

function forwardRows(c: Case): CheckRow[] {
  const features = c.family.model.encode(c.image)
  return [
    ...imageRows(c),
    ...visionRows(c, features),
    ...captionRows(c, features),
    ...segmentRows(c, features),
    ...trunkRows(c),
    ...samRows(c, features, drawn(c, features, c.want.get('seg.embedding')).low),
    ...pointRows(c, features),
  ]
}

/** Pixels: one level of 255 at the smallest std is the most a resampler may differ; equality is what we see. */
const pixelLimit = { abs: 1 / 255 / 0.224 + 1e-6, words: '1/255/std' }

function imageRows({ want, image }: Case): CheckRow[] {
  return [
    want.values('cap.pixel_values', image.pixels, pixelLimit),
    want.values('seg.pixel_values', image.pixels, pixelLimit),
    want.values('seg.g_pixel_values', image.samPixels, pixelLimit),
  ]
}

function visionRows({ family: { model }, image, want }: Case, features: Features): CheckRow[] {
  const { tiles, size, pixels } = image
  const stored = Math.min(tiles, want.get('cap.vit_last').size(0))
  const at = (layer: number) => {
    const all = model.vision_model.forward(tensor(pixels, [tiles, 3, size, size], { device: device() }), layer)
    return want.tensor('cap.vit_last', all.narrow(0, 0, stored))
  }
  // by its name the last state; a generator may have stored the selected one
  const last = at(-1)
  const selected = last.pass || model.cfg.select_layer === -1 ? last : at(model.cfg.select_layer)
  return [selected, want.tensor('cap.image_embeds', model.imageTokens(features.vision))]
}

function captionRows(c: Case, features: Features): CheckRow[] {
  const prompt = c.family.describe(features, c.mask, c.golden.cap_question)
  return [
    c.want.ids('cap.prompt_masks', prompt.regions[0]!),
    c.want.ids('cap.input_ids', prompt.ids),
    c.want.ids('cap.greedy_ids', greedyIds(c, prompt, c.golden.max_new_tokens)),
  ]
}

function segmentRows(c: Case, features: Features): CheckRow[] {
  const answer = readAnswer(c, features)
  const embedding = c.family.segPrompts(answer.state)
  return [
    ...answerRows(c, answer, c.golden.max_new_tokens),
    c.want.tensor('seg.embedding', embedding),
    ...maskRows(c, drawn(c, features, embedding)),
  ]
}

const samPixels = ({ family, image }: Case) => {
  const side = family.model.sam.config.image_size
  return tensor(image.samPixels, [1, 3, side, side], { device: device() })
}

function trunkRows(c: Case): CheckRow[] {
  const maps = c.family.model.sam.image_encoder.trunk.forward(samPixels(c))
  return maps.map((map, i) => c.want.tensor(`sam.trunk${i}`, map))
}

/** Coordinates [1, n, 2] and labels [1, n] as plain data. */
function pointPrompt(want: GoldenTensors, name: string): Sam2Prompt {
  const [xy, labels] = [want.numbers(`${name}_coords`), want.numbers(`${name}_labels`)]
  return { points: [labels.map((_, i) => [xy[2 * i]!, xy[2 * i + 1]!])], labels: [labels] }
}

function pointRows({ family, want }: Case, { sam: features }: Features): CheckRow[] {
  const { sam } = family.model
  const points = pointPrompt(want, 'sam.point')
  const single = sam.decode(features, points, { multimask: false })
  const multi = sam.decode(features, points, { multimask: true })
  const box = sam.decode(features, pointPrompt(want, 'sam.box_point'), { multimask: false })
  return [
    want.tensor('sam.points_low_res', single.masks),
    want.tensor('sam.points_ious', single.ious),
    want.tensor('sam.points_low_res_multi', multi.masks),
    want.tensor('sam.points_ious_multi', multi.ious),
    want.tensor('sam.box_points_low_res', box.masks),
    want.tensor('sam.box_points_ious', box.ious),
  ]
}

function weightRows(c: Case): CheckRow[] {
  const { model } = c.family
  const names = new Set(model.names())
  const norms = Object.entries(c.golden.grad_norms).filter(([name, norm]) => norm > 0 || names.has(name))
  const loss = () => lossRows(c)
  return gradientRows(model, c.want, Object.fromEntries(norms), loss, (name) => ownName(c, name))
}

function lossRows(c: Case): CheckRow[] {
  const { family, image, want, golden } = c
  const { model } = family
  const { tiles, size, pixels, height, width } = image
  const vision = model.visionFeatures(tensor(pixels, [tiles, 3, size, size], { device: device() }))
  const features: Features = { vision, sam: model.sam.encodeImage(samPixels(c)), tiles, height, width }
  const caption = Int32Array.from(want.numbers('grad.caption_ids'))
  const described = family.describe(features, c.mask, golden.cap_question)
  const { logps } = teacherForce(model, described, [caption]).logProbs()
  const { logits } = family.drawMasks(features, family.segPrompts(readAnswer(c, features).state))
  return [
    want.tensor('grad.caption_logps', logps.flatten()),
    ...groundedLossRows(logps, logits, want.get('grad.mask_target'), golden.grad_loss),
  ]
}

/** A shared head may go by either of its names. */
function ownName({ family: { model } }: Case, name: string): string {
  if (!model.cfg.llm.tie_word_embeddings || !/^language_model\.(lm_head|output)\.weight$/.test(name)) return name
  return model.names().find((n) => /\.(embed_tokens|tok_embeddings)\.weight$/.test(n))!
}
