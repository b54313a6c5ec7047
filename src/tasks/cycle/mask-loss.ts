import { type Mask, resizeMaskNearest, toDense } from '../../mask/index.ts'
import { wide } from '../../nn/index.ts'
import { type Tensor, tensor } from '../../tensor/index.ts'

/** The record's mask at the decoder's resolution, 0/1 float32 [h, w]. */
export function lowResTarget(mask: Mask, height: number, width: number): Float32Array {
  return Float32Array.from(toDense(resizeMaskNearest(mask, height, width)))
}

/** 1 - Dice over the last dimension, smoothed by 1 and averaged over the others: probabilities and 0/1 targets of one shape. */
export function diceLoss(p: Tensor, target: Tensor): Tensor {
  const overlap = p.mul(target).sum(-1).mul(2).add(1)
  return overlap
    .div(p.sum(-1).add(target.sum(-1)).add(1))
    .neg()
    .add(1)
    .mean()
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
  const scores = wide(logits)
  const target = tensor(data, [B, h, w], { device: logits.device }).to(scores.dtype)
  const bce = scores.binaryCrossEntropyWithLogits(target)
  const dice = diceLoss(scores.sigmoid().flatten({ startDim: 1 }), target.flatten({ startDim: 1 }))
  return { loss: bce.mul(weights.bce).add(dice.mul(weights.dice)), bce, dice }
}
