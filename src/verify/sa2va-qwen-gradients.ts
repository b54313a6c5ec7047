// Gradients of Sa2VA on a Qwen-VL: loss = minus mean log-probability of the answer + BCE + Dice of the best mask, one pass over prompt
// and answer. Every weight trains here, the vision tower too; SAM2's picture features are constants.
import type { CheckRow } from '../core/index.ts'
import type { QwenGroundedFeatures } from '../models/index.ts'
import { type Slot, tensorAt } from '../nn/index.ts'
import { backward, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { compareGradNorm, compareNumbers, compareTensor } from './compare.ts'
import { device } from './device.ts'
import { get, numbers, type QwenCase, readAnswer } from './sa2va-qwen.ts'

export function gradientRows(c: QwenCase): CheckRow[] {
  const { model } = c.loaded
  const slots = model.slots()
  for (const slot of slots) tensorAt(slot).requiresGrad_(true)
  return tidy(() => {
    const features = { ...model.encode(c.image), ...model.look(c.image.patches) }
    const rows = lossRows(c, features)
    const named = new Map(slots.map((s) => [s.name, tensorAt(s)]))
    const norms = Object.entries(c.golden.grad_norms).map(([name, norm]) =>
      compareGradNorm(name, named.get(name), norm),
    )
    const full = [...c.want.keys()].filter((n) => n.startsWith('gradof.')).map((name) => gradientRow(c, name, slots))
    return [...rows, ...norms, ...full, ...embeddingRows(c)]
  })
}

function lossRows(c: QwenCase, features: QwenGroundedFeatures): CheckRow[] {
  const { model } = c.loaded
  const { ids, pass, seg } = readAnswer(c, features)
  // the pass read one token more than the answer; its log-probability is left out
  const logps = pass.logProbs().logps.narrow(1, 0, ids.length)
  const { logits } = model.drawMasks(features, model.segPrompts(pass.stateAt(0, seg)))
  const target = get(c, 'grad.mask_target').view(logits.shape as number[])
  const p = logits.sigmoid()
  const bce = logits.binaryCrossEntropyWithLogits(target)
  const dice = p.mul(target).sum().mul(2).add(1).div(p.sum().add(target.sum()).add(1)).neg().add(1)
  const nll = logps.mean().neg()
  const total = nll.add(bce).add(dice)
  backward(total)
  const scalar = (name: keyof QwenCase['golden']['grad_loss'], t: Tensor) =>
    compareNumbers(`grad_loss.${name}`, [t.item()], tensor([c.golden.grad_loss[name]]), {
      rel: 1e-4,
      words: '1e-4 relative',
    })
  return [scalar('neg_logp_mean', nll), scalar('bce', bce), scalar('dice', dice), scalar('total', total)]
}

const noGradient = { abs: Number.NaN, rel: Number.NaN, limit: '1e-3 relative norm', pass: false }

function gradientRow(c: QwenCase, name: string, slots: readonly Slot[]): CheckRow {
  const slot = slots.find((s) => s.name === name.slice('gradof.'.length))
  const grad = slot ? tensorAt(slot).grad() : null
  const want = get(c, name)
  if (!grad) return { name, ...noGradient, detail: 'no gradient' }
  if (grad.shape.join() !== want.shape.join())
    return { name, ...noGradient, detail: `shape [${grad.shape}], expected [${want.shape}]` }
  const difference = Math.sqrt(grad.sub(want).to('float64').square().sum().item())
  const rel = difference / Math.max(Math.sqrt(want.to('float64').square().sum().item()), 1e-12)
  return { name, abs: difference, rel, limit: '1e-3 relative norm', pass: rel <= 1e-3 || difference <= 1e-6 }
}

function embeddingRows(c: QwenCase): CheckRow[] {
  if (!c.want.has('grad.embed_rows')) return []
  const grad = c.loaded.model.model.parts.embedding.weight.grad()
  const name = 'grad.embed_of_rows'
  if (!grad) return [{ name, ...noGradient, detail: 'no gradient' }]
  const rows = grad.indexSelect(
    0,
    tensor(BigInt64Array.from(numbers(c, 'grad.embed_rows'), BigInt), { device: device() }),
  )
  return [compareTensor(name, rows, get(c, name), { rel: 1e-3, words: '1e-3 of the largest magnitude' })]
}
