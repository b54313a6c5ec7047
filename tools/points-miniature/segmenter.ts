// A miniature SAM2 that answers clicks: a positive click selects the whole cluster, a negative click removes the part it hits.
// R rows (prompts), M masks of the decoder, h x h low-res pixels, at most 3 parts in a scene.
import { type RandomStream, stream, streamId } from '../../src/core/index.ts'
import { initRandom } from '../../src/nn/index.ts'
import { type ClickPrompt, type Sam2Features, Sam2Model, sam2Config } from '../../src/sam/index.ts'
import { predictorInput } from '../../src/sam/sam2/index.ts'
import { diceLoss, makePointScene, type PointScene, sceneSide } from '../../src/tasks/index.ts'
import { cat, noGrad, type Tensor, tensor } from '../../src/tensor/index.ts'
import { runStage, share } from '../miniature/stage.ts'
import shapes from './shapes.json' with { type: 'json' }

export const segmenterConfig = shapes.sam2

export function newSegmenter(seed: number): Sam2Model {
  const model = new Sam2Model(sam2Config(segmenterConfig))
  initRandom(model, { seed })
  const { layers, final_attn_token_to_image: last } = model.sam_mask_decoder.transformer
  const reading = [...layers.map((l) => l.cross_attn_token_to_image), last]
  noGrad(() => {
    for (const a of [...reading, ...layers.map((l) => l.cross_attn_image_to_token)]) {
      for (const { weight } of [a.q_proj, a.v_proj, a.out_proj]) weight.mul_(2 / Math.sqrt(weight.size(1))) // drawn at 1/2
      a.k_proj.weight.copy_(a.q_proj.weight.mul_(2.2)) // a position matches itself from the first step
    }
    for (const { weight } of model.sam_prompt_encoder.point_embeddings) weight.mul_(2)
    model.sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix.mul_(0.5) // few cells, so neighbours have similar codes
    // smaller other summands, so that position codes are easier to separate
    for (const { conv } of model.image_encoder.neck.convs.slice(0, 2)) conv.weight.mul_(0.15)
    for (const t of [model.no_mem_embed, model.sam_prompt_encoder.no_mask_embed.weight]) t.mul_(0.2)
    for (const l of layers) for (const norm of [l.norm1, l.norm2, l.norm3]) norm.weight.mul_(0.5)
    // the first layer's self-attention has no residual: a token must attend to itself, else the type of the click is lost
    for (const { self_attn: a } of layers) a.k_proj.weight.copy_(a.q_proj.weight.mul_(1.3))
  })
  return model
}

/** A prompt on a scene, and the parts of its mask. */
interface Row {
  /** The part of the positive click. */
  start: number
  prompt: ClickPrompt
  parts: ReadonlySet<number>
}

export interface SegmenterStage {
  steps: number
  images: number
  learningRate: number
  seed: number
  /** Number of scenes, which repeat. */
  pool: number
  /** From this step on prompts have up to three negative clicks; 0: never. */
  several: number
}

export function trainSegmenter(model: Sam2Model, stage: SegmenterStage): void {
  const scenes = new Map<number, PointScene>()
  const sceneAt = (i: number) => {
    const index = i % stage.pool
    if (!scenes.has(index)) scenes.set(index, makePointScene(stage.seed, index))
    return scenes.get(index)!
  }
  const loss = (step: number) => {
    const batch = Array.from({ length: stage.images }, (_, b) => sceneAt(step * stage.images + b))
    const random = stream(streamId.scenes, stage.seed, 'clicks', step)
    const pixels = cat(batch.map((s) => predictorInput(s.record.image, segmenterConfig.image_size, model.no_mem_embed)))
    return stepLoss(model, model.encodeImage(pixels), batch, random, step, stage)
  }
  const { steps, learningRate } = stage
  runStage({ name: 'SAM2', params: new Map(model.parameters()), steps, learningRate, loss })
}

/** Boxes with a click inside: what a mask has is the parts of which the box covers more than half. The image encoder stays. */
export function trainBoxes(model: Sam2Model, { steps, images, learningRate, seed, pool }: SegmenterStage): void {
  const scenes = Array.from({ length: pool }, (_, i) => makePointScene(seed, i))
  const loss = (step: number) => {
    const batch = Array.from({ length: images }, (_, b) => scenes[(step * images + b) % pool]!)
    const random = stream(streamId.scenes, seed, 'boxes', step)
    const pixels = cat(batch.map((s) => predictorInput(s.record.image, segmenterConfig.image_size, model.no_mem_embed)))
    const features = noGrad(() => model.encodeImage(pixels))
    const areas = partAreas(batch)
    const [first, second] = [0, 1].map(() => decodeRows(model, features, boxRows(batch, random), areas)) as [
      Decoded,
      Decoded,
    ]
    return { loss: first.loss.add(second.loss).div(2), metrics: { iou: first.iou, right: first.right } }
  }
  const learns = (name: string) => /^sam_mask_decoder|point_embeddings/.test(name)
  const params = new Map([...model.parameters()].filter(([name]) => learns(name)))
  runStage({ name: 'boxes', params, steps, learningRate, loss })
}

type Decoded = ReturnType<typeof decodeRows>

/** A box around a part, moved a little or much. */
function boxRows(batch: readonly PointScene[], random: RandomStream): Row[] {
  return batch.map((scene) => {
    const start = 1 + random.below(scene.parts.length)
    const { centre, radius } = scene.parts[start - 1]!
    const spread = random.pick([1, 1, 6, 14, 30])
    const edge = (at: number) => Math.max(0, Math.min(sceneSide - 1, at + random.below(2 * spread + 1) - spread))
    const [x, u] = [edge(centre[0] - radius), edge(centre[0] + radius)].sort((a, b) => a - b) as [number, number]
    const [y, v] = [edge(centre[1] - radius), edge(centre[1] + radius)].sort((a, b) => a - b) as [number, number]
    const click = toSam([x + random.uniform() * (u - x), y + random.uniform() * (v - y)])
    const box = [...toSam([x, y]), ...toSam([u + 1, v + 1])] as [number, number, number, number]
    return { start, prompt: { points: [click], labels: [1], box }, parts: coveredParts(scene, [x, y, u, v]) }
  })
}

function coveredParts({ parts, owner }: PointScene, [x, y, u, v]: readonly number[]): Set<number> {
  const covered = (k: number) => {
    const pixels = [...owner.keys()].filter((at) => owner[at] === k)
    const inside = pixels.filter((at) => {
      const [px, py] = [at % sceneSide, Math.floor(at / sceneSide)]
      return px >= x! && px <= u! && py >= y! && py <= v!
    })
    return inside.length > pixels.length / 2
  }
  return new Set(parts.map((_, k) => k + 1).filter(covered))
}

function stepLoss(
  model: Sam2Model,
  features: Sam2Features,
  batch: readonly PointScene[],
  random: RandomStream,
  step: number,
  stage: SegmenterStage,
) {
  const areas = partAreas(batch) // [B, 4, h * h]
  const first = decodeRows(model, features, rowsOf(batch, [], random), areas)
  const again = decodeRows(model, features, rowsOf(batch, [0.95], random, first.rows), areas)
  // SAM2 also gets its own earlier mask together with a correction
  const logits = random.uniform() < 0.5 ? first.masks.detach().narrow(1, 0, 1) : undefined
  const chances = stage.several && step >= stage.several ? random.pick([[0.5], [0.7, 0.7], [0.6, 0.6, 0.3]]) : [0.5]
  const third = decodeRows(model, features, rowsOf(batch, chances, random, first.rows), areas, logits)
  const total = first.loss.add(again.loss.mul(2)).add(third.loss)
  const metrics = { one: first.iou, two: again.iou, more: third.iou, right: again.right }
  return { loss: total.div(4), metrics }
}

/** One prompt per image: a positive click on a part, then negative ones, each on another part with the given probability. */
function rowsOf(
  batch: readonly PointScene[],
  chances: readonly number[],
  random: RandomStream,
  like?: readonly Row[],
): Row[] {
  return batch.map((scene, image) => {
    const start = like?.[image]?.start ?? 1 + random.below(scene.parts.length)
    const first = like?.[image]?.prompt.points[0] ?? toSam(pixelOf(scene, start, random))
    const all = scene.parts.map((_, k) => k + 1)
    const parts = new Set(all)
    const points = [first]
    for (const chance of chances) {
      const others = all.filter((k) => k !== start)
      const dice = random.uniform()
      const hit = dice < chance && others.length > 0 ? random.pick(others) : dice < chance + 0.1 ? start : 0
      const pixel = hit > 0 ? pixelOf(scene, hit, random) : anywhere(random)
      parts.delete(scene.owner[pixel[1] * sceneSide + pixel[0]]!)
      points.push(toSam(pixel))
    }
    return { start, prompt: { points, labels: points.map((_, i) => (i === 0 ? 1 : 0)) }, parts }
  })
}

function anywhere(random: RandomStream): [number, number] {
  return [random.below(sceneSide), random.below(sceneSide)]
}

const scale = segmenterConfig.image_size / sceneSide
const toSam = ([x, y]: readonly [number, number]): [number, number] => [x * scale, y * scale]

function pixelOf(scene: PointScene, part: number, random: RandomStream): [number, number] {
  const { centre, radius } = scene.parts[part - 1]!
  const near = () => Math.round((random.uniform() * 2 - 1) * radius)
  for (let i = 0; i < 200; i++) {
    const [x, y] = [centre[0] + near(), centre[1] + near()]
    const inside = x >= 0 && y >= 0 && x < sceneSide && y < sceneSide
    if (inside && scene.owner[y * sceneSide + x] === part) return [x, y]
  }
  return [centre[0], centre[1]]
}

const maxParts = 4 // background and three parts

/** 0/1 masks of the background and every part at the decoder's resolution: [B, 4, h * h]. */
function partAreas(batch: readonly PointScene[]): Tensor {
  const side = segmenterConfig.image_size / 4
  const data = new Float32Array(batch.length * maxParts * side * side)
  batch.forEach(({ owner }, b) => {
    for (let y = 0; y < side; y++)
      for (let x = 0; x < side; x++) {
        const at = (v: number) => Math.floor(((v + 0.5) * sceneSide) / side)
        data[((b * maxParts + owner[at(y) * sceneSide + at(x)]!) * side + y) * side + x] = 1
      }
  })
  return tensor(data, [batch.length, maxParts, side * side])
}

function decodeRows(model: Sam2Model, features: Sam2Features, rows: readonly Row[], areas: Tensor, maskInput?: Tensor) {
  const boxes = rows.flatMap((r) => (r.prompt.box ? [[...r.prompt.box]] : []))
  const clicks = { points: rows.map((r) => r.prompt.points), labels: rows.map((r) => r.prompt.labels) }
  const prompt = { ...clicks, maskInput, ...(boxes.length > 0 && { box: boxes }) }
  const { masks, ious } = model.decode(features, prompt, { multimask: 'all' })
  const wanted = Float32Array.from(
    rows.flatMap((r) => Array.from({ length: maxParts }, (_, k) => (r.parts.has(k) ? 1 : 0))),
  )
  const regions = tensor(wanted, [rows.length, maxParts])
  return { ...lossOf(masks.flatten({ startDim: 2 }), ious, areas, regions), masks, rows }
}

/** Cross-entropy and Dice of the pixels, and cross-entropy of the mean logit of every part, which is learned first. */
function lossOf(masks: Tensor, ious: Tensor, areas: Tensor, regions: Tensor) {
  const target = regions.unsqueeze(1).matmul(areas).expand(masks.shape) // [R, M, h * h]
  const bce = masks.binaryCrossEntropyWithLogits(target)
  const dice = diceLoss(masks.sigmoid(), target)
  const size = areas.sum(-1) // [R, 4]
  const means = masks.matmul(areas.transpose(1, 2)).div(size.clamp({ min: 1 }).unsqueeze(1)) // [R, M, 4]
  const there = size.gt(0).to('float32').unsqueeze(1).expand(means.shape)
  const wants = regions.unsqueeze(1).expand(means.shape)
  const region = means.binaryCrossEntropyWithLogits(wants, { weight: there })
  const hard = masks.detach().gt(0).to('float32')
  const both = hard.mul(target).sum(-1)
  const iou = both.add(1e-6).div(hard.sum(-1).add(target.sum(-1)).sub(both).add(1e-6))
  const right = share(means.select(1, 0).gt(0).to('float32').eq(regions).logicalOr(size.eq(0)))
  const loss = bce.mul(2).add(dice.mul(0.5)).add(region.mul(3)).add(ious.sub(iou).square().mean().mul(0.1))
  return { loss, iou: iou.select(1, 0).mean(), right }
}
