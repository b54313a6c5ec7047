// Golden gradients of whole models: the loss of a grounded model, and how a gradient is compared.
import type { CheckRow } from '../core/index.ts'
import { type Module, tensorAt } from '../nn/index.ts'
import { backward, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { compareGradNorm, compareNumbers, failedRow } from './compare.ts'
import type { GoldenTensors } from './golden-tensors.ts'

export type GradLoss = Record<'total' | 'neg_logp_mean' | 'bce' | 'dice', number>

/** Minus the mean log-probability + BCE + Dice of the mask's logits; its gradients are in the weights afterwards. */
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

/**
 * Every weight trains here, frozen ones too: the reference's gradients are of the whole model. `lossRows` computes the loss and its
 * gradients; `ownName` is our name of a weight of the reference.
 */
export function gradientRows(
  module: Module,
  want: GoldenTensors,
  gradNorms: Readonly<Record<string, number>>,
  lossRows: () => CheckRow[],
  ownName = (name: string) => name,
): CheckRow[] {
  const weights = new Map(module.slots().map((slot) => [slot.name, tensorAt(slot).requiresGrad_(true)]))
  return tidy(() => {
    const rows = lossRows()
    const weightOf = (name: string) => weights.get(ownName(name))
    const norms = Object.entries(gradNorms).map(([name, norm]) => compareGradNorm(name, weightOf(name), norm))
    const whole = want
      .names('gradof.')
      .map((name) => compareGradient(name, weightOf(name.slice('gradof.'.length)), want.get(name)))
    return [...rows, ...norms, ...whole]
  })
}

const limit = '1e-3 relative norm'

export const noGradient = (name: string, detail = 'no gradient'): CheckRow => failedRow(name, limit, detail)

function compareGradient(name: string, weight: Tensor | undefined, want: Tensor): CheckRow {
  const grad = weight?.grad()
  if (!grad) return noGradient(name)
  if (grad.shape.join() !== want.shape.join())
    return noGradient(name, `shape [${grad.shape}], expected [${want.shape}]`)
  const abs = Math.sqrt(grad.sub(want).to('float64').square().sum().item())
  const rel = abs / Math.max(Math.sqrt(want.to('float64').square().sum().item()), 1e-12)
  return { name, abs, rel, limit, pass: rel <= 1e-3 || abs <= 1e-6 }
}
