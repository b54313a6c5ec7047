// What the golden gradients of every grounded model share: their loss, and how a gradient is compared.
import type { CheckRow } from '../core/index.ts'
import { backward, type Tensor, tensor } from '../tensor/index.ts'
import { compareNumbers } from './compare.ts'

export type GradLoss = Record<'total' | 'neg_logp_mean' | 'bce' | 'dice', number>

/** Minus the mean log-probability + BCE + Dice of the mask's logits, its gradients left in the weights. */
export function groundedLossRows(logps: Tensor, logits: Tensor, goldenTarget: Tensor, want: GradLoss): CheckRow[] {
  const target = goldenTarget.view(logits.shape as number[])
  const p = logits.sigmoid()
  const bce = logits.binaryCrossEntropyWithLogits(target)
  const dice = p.mul(target).sum().mul(2).add(1).div(p.sum().add(target.sum()).add(1)).neg().add(1)
  const nll = logps.mean().neg()
  const total = nll.add(bce).add(dice)
  backward(total)
  return Object.entries({ neg_logp_mean: nll, bce, dice, total }).map(([name, t]) => {
    const within = { rel: 1e-4, words: '1e-4 relative' }
    return compareNumbers(`grad_loss.${name}`, [t.item()], tensor([want[name as keyof GradLoss]]), within)
  })
}

const limit = '1e-3 relative norm'

export function noGradient(name: string, detail = 'no gradient'): CheckRow {
  return { name, abs: Number.NaN, rel: Number.NaN, limit, pass: false, detail }
}

export function compareGradient(name: string, weight: Tensor | undefined, want: Tensor): CheckRow {
  const grad = weight?.grad()
  if (!grad) return noGradient(name)
  if (grad.shape.join() !== want.shape.join())
    return noGradient(name, `shape [${grad.shape}], expected [${want.shape}]`)
  const abs = Math.sqrt(grad.sub(want).to('float64').square().sum().item())
  const rel = abs / Math.max(Math.sqrt(want.to('float64').square().sum().item()), 1e-12)
  return { name, abs, rel, limit, pass: rel <= 1e-3 || abs <= 1e-6 }
}
