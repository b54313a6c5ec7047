// Trains the mask decoder: a mask for a set of attributes, each with a vector. Later the language model learns to write these vectors
// into its [SEG] state. R rows, M proposals, h x h low-res masks, at most 4 objects in an image.
import type { Sa2VA } from '../../src/models/index.ts'
import type { Sam2Model } from '../../src/sam/index.ts'
import { diceLoss } from '../../src/tasks/index.ts'
import {
  cat,
  int64Tensor,
  keep,
  manualSeed,
  noGrad,
  randn,
  type Tensor,
  tensor,
  tidy,
  where,
} from '../../src/tensor/index.ts'
import { on, runStage, type StageOptions, share } from './stage.ts'
import {
  attributeCodes,
  type Batch,
  bagSize,
  bagsOf,
  demandFor,
  fullBags,
  type Kinds,
  type Pool,
  pixelsOf,
  placeCells,
  type Row,
} from './world.ts'

export interface SegmenterStage extends StageOptions {
  /** true: trains the image encoder, with fixed vectors; false: trains the vectors, with a fixed encoder. */
  withEncoder: boolean
  /** Over these steps the share of complete descriptions falls from 1 to 1/4. */
  fullSteps: number
  /** Weight of a background pixel in the cross-entropy; an object pixel has 1. Above 1 the masks become too small. */
  background: number
}

/** Further ones are not asked for. */
export const maxObjects = 4

/** Prepares the decoder; returns the vectors of the attributes [bagSize, d], which the caller owns. */
export function startSegmenter({ sam }: Sa2VA, seed: number, kinds: Kinds): Tensor {
  manualSeed(seed)
  tieMatching(sam)
  return keep(tidy(() => firstVectors(sam, kinds)))
}

export function trainSegmenter({ sam }: Sa2VA, table: Tensor, pool: Pool, stage: SegmenterStage): void {
  const side = sam.config.image_size / 4
  const encode = (pixels: Tensor) => sam.encodeImage(pixels)
  const loss = (step: number) => {
    const batch = pool.batch(step, stage.images)
    const pixels = pixelsOf(batch, 'samPixels')
    const { level0, level1, level2 } = stage.withEncoder ? encode(pixels) : noGrad(() => encode(pixels))
    const imageOf = batch.rows.map((r) => r.image)
    const image = int64Tensor(imageOf, on)
    const each = {
      level0: level0.indexSelect(0, image),
      level1: level1.indexSelect(0, image),
      level2: level2.indexSelect(0, image),
    }
    const prompts = bagsAt(batch, pool.kinds, step, stage.fullSteps).matmul(table) // [R, d]
    const { masks, ious } = sam.decode(each, { language: prompts.unsqueeze(1) })
    const areas = objectAreas(batch, side).indexSelect(0, image) // [R, 4, h * h]
    return lossOf(masks.flatten({ startDim: 2 }), ious, areas, batch.rows, stage.background)
  }
  const decoder = [...sam.parameters()].filter(([name]) => !name.startsWith('image_encoder.'))
  const params = new Map(stage.withEncoder ? sam.parameters() : [...decoder, ['table', table] as const])
  runStage({ name: 'SAM2', params, steps: stage.steps, learningRate: stage.learningRate, loss })
}

/**
 * A prompt starts as the sum of the codes the image encoder knows; a place as the mean position code of its cells. Matching a prompt
 * with cells is then nearly a dot product from the first step on.
 */
function firstVectors(sam: Sam2Model, kinds: Kinds): Tensor {
  const d = sam.config.d_model
  const codes = attributeCodes(d, kinds).mul(codeLength)
  const cells = sam.sam_prompt_encoder.densePositions().squeeze(0).flatten({ startDim: 1 }) // [d, e * e]
  const places = placeCells(Math.sqrt(cells.size(1))).matmul(
    cells.sub(cells.mean([1], { keepdim: true })).transpose(0, 1),
  )
  const rest = randn([bagSize(kinds) - codes.size(0) - places.size(0), d]).mul(0.5)
  return cat([codes, places, rest.to(on.device)])
}

const codeLength = 6

/** Both sides of each attention between prompt and image start with one projection. */
function tieMatching({ sam_mask_decoder: { transformer } }: Sam2Model): void {
  const between = transformer.layers.flatMap((l) => [l.cross_attn_token_to_image, l.cross_attn_image_to_token])
  noGrad(() => {
    for (const a of [...between, transformer.final_attn_token_to_image]) a.k_proj.weight.copy_(a.q_proj.weight)
  })
}

/** At first everything about the object; later for three of four a description, plain or enriched. */
function bagsAt({ rows, random }: Batch, kinds: Kinds, step: number, fullSteps: number): Tensor {
  const demands = rows.map((row) => demandFor(row, random))
  const chance = Math.max(0.25, 1 - step / fullSteps)
  const full = tensor(
    Float32Array.from(rows, () => (random.uniform() < chance ? 1 : 0)),
    [rows.length, 1],
    on,
  )
  return where(full.gt(0), fullBags(rows, kinds), bagsOf(demands, kinds))
}

/** Pixels of each object at the decoder's resolution: 0/1 [B, 4, h * h]. */
function objectAreas(batch: Batch, side: number): Tensor {
  const data = new Float32Array(batch.scenes.length * maxObjects * side * side)
  batch.scenes.forEach(({ owner, image }, b) => {
    const pixel = (i: number) => Math.floor(((i + 0.5) * image.width) / side)
    for (let y = 0; y < side; y++) {
      for (let x = 0; x < side; x++) {
        const object = owner[pixel(y) * image.width + pixel(x)]!
        if (object > 0 && object <= maxObjects) data[((b * maxObjects + object - 1) * side + y) * side + x] = 1
      }
    }
  })
  return tensor(data, [batch.scenes.length, maxObjects, side * side], on)
}

/**
 * BCE and Dice of every proposal, the error of its predicted overlap, and cross-entropy over the mean logit of each object. Without the
 * last term a mask of all objects is a plateau that takes thousands of steps to leave (dev/log).
 */
function lossOf(masks: Tensor, ious: Tensor, areas: Tensor, rows: readonly Row[], background: number) {
  const R = rows.length
  const indices = rows.map((r) => r.index)
  const wanted = int64Tensor(indices, on)
  const target = areas.gather(1, wanted.view([R, 1, 1]).expand([R, 1, areas.size(2)])).expand(masks.shape) // [R, M, h * h]
  const weight = background === 1 ? null : target.mul(1 - background).add(background)
  const bce = masks.binaryCrossEntropyWithLogits(target, { weight })
  const dice = diceLoss(masks.sigmoid(), target)
  const iou = overlaps(masks, target)
  const size = areas.sum(-1) // [R, 4]
  const absent = size.eq(0).to('float32').mul(-1e4).unsqueeze(1)
  const scores = masks
    .matmul(areas.transpose(1, 2))
    .div(size.clamp({ min: 1 }).unsqueeze(1))
    .add(absent) // [R, M, 4]
  const place = wanted.view([R, 1, 1]).expand([R, masks.size(1), 1])
  const chosen = scores.logSoftmax(-1).gather(2, place).mean().neg()
  const right = share(scores.argmax({ dim: -1 }).eq(place.squeeze(-1)))
  const loss = bce.mul(2).add(dice.mul(0.5)).add(chosen.mul(3)).add(ious.sub(iou).square().mean().mul(0.1))
  return { loss, metrics: { bce, dice, iou: iou.mean(), right } }
}

function overlaps(masks: Tensor, target: Tensor): Tensor {
  const hard = masks.detach().gt(0).to('float32')
  const both = hard.mul(target).sum(-1)
  return both.div(hard.sum(-1).add(target.sum(-1)).sub(both).add(1e-6))
}
