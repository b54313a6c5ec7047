import { type Mask, resizeMaskNearest, toDense } from '../mask/index.ts'
import { type Tensor, tensor } from '../tensor/index.ts'

/** The record's mask at the decoder's resolution, 0/1 float32 [h, w]. */
export function lowResTarget(mask: Mask, height: number, width: number): Float32Array {
  return Float32Array.from(toDense(resizeMaskNearest(mask, height, width)))
}

/** BCE + Dice of low-res logits [B, h, w] against masks, on the full grid: 2 BCE + 0.5 Dice, the reference's SFT weights. */
export function maskLoss(
  logits: Tensor,
  masks: readonly Mask[],
  weights = { bce: 2, dice: 0.5 },
): { loss: Tensor; bce: Tensor; dice: Tensor } {
  const [B, h, w] = logits.shape as [number, number, number]
  const data = new Float32Array(B * h * w)
  masks.forEach((mask, i) => {
    data.set(lowResTarget(mask, h, w), i * h * w)
  })
  const target = tensor(data, [B, h, w], { device: logits.device })
  const wide = logits.to('float32')
  const bce = wide.binaryCrossEntropyWithLogits(target)
  const p = wide.sigmoid().flatten({ startDim: 1 })
  const t = target.flatten({ startDim: 1 })
  const overlap = p.mul(t).sum(-1).mul(2).add(1)
  const dice = overlap
    .div(p.sum(-1).add(t.sum(-1)).add(1))
    .neg()
    .add(1)
    .mean()
  return { loss: bce.mul(weights.bce).add(dice.mul(weights.dice)), bce, dice }
}
