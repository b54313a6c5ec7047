// Trains the image encoders: the mean feature over an object's cells must align with the codes of the object's attributes.
import type { Sa2VA } from '../../src/models/index.ts'
import { int64Tensor, keep, type Tensor, tidy } from '../../src/tensor/index.ts'
import { crossEntropy, on, runStage, type StageOptions, share } from './stage.ts'
import { attributeCodes, type Kinds, kindNames, type Pool, pixelsOf, type Row, regionAverages } from './world.ts'

export function pretrainVision(model: Sa2VA, pool: Pool, stage: StageOptions): void {
  const width = model.mlp1[0]!.weight.numel
  pretrain('InternViT', model.vision_model.parameters(), width, pool.seen, pool, stage, 'pixels', (pixels) =>
    model.visionFeatures(pixels),
  )
}

export function pretrainSam(model: Sa2VA, pool: Pool, stage: StageOptions): void {
  const { sam } = model
  const width = sam.config.d_model
  pretrain('SAM2 encoder', sam.image_encoder.parameters(), width, pool.kinds, pool, stage, 'samPixels', (pixels) =>
    sam.encodeImage(pixels).level2.permute([0, 2, 3, 1]),
  )
}

/** Factor of the scores, so that features of size 1 separate the values. */
const sharpness = 3

function pretrain(
  name: string,
  own: ReadonlyMap<string, Tensor>,
  width: number,
  kinds: Kinds,
  pool: Pool,
  { steps, images, learningRate }: StageOptions,
  of: 'pixels' | 'samPixels',
  encode: (pixels: Tensor) => Tensor,
): void {
  const codes = keep(tidy(() => attributeCodes(width, kinds).transpose(0, 1).mul(sharpness)))
  const loss = (step: number) => {
    const batch = pool.batch(step, images)
    const cells = encode(pixelsOf(batch, of)).reshape([-1, width]) // [B * g * g, width]
    const grid = Math.sqrt(cells.size(0) / images)
    const scores = regionAverages(batch, grid).matmul(cells).matmul(codes)
    return attributeLoss(scores, batch.rows, kinds)
  }
  runStage({ name, params: own, steps, learningRate, loss })
  codes.dispose()
}

function attributeLoss(scores: Tensor, rows: readonly Row[], kinds: Kinds) {
  const metrics: Record<string, Tensor> = {}
  let at = 0
  const parts = kindNames(kinds).map((kind) => {
    const n = kinds[kind]!.length
    const own = scores.narrow(1, at, n)
    const values = rows.map(({ object }) => kinds[kind]!.indexOf(object[kind]!))
    const want = int64Tensor(values, on)
    at += n
    metrics[kind] = share(own.argmax({ dim: 1 }).eq(want))
    return crossEntropy(own, want)
  })
  return { loss: parts.reduce((a, b) => a.add(b)), metrics }
}
