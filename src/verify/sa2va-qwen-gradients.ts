// Gradients of Sa2VA on a Qwen-VL: loss = minus mean log-probability of the answer + BCE + Dice of the best mask, one pass over prompt
// and answer. Every weight trains here, the vision tower too; SAM2's picture features are constants.
import type { CheckRow } from '../core/index.ts'
import type { QwenGroundedFeatures } from '../models/index.ts'
import { tensorAt } from '../nn/index.ts'
import { int64Tensor, tidy } from '../tensor/index.ts'
import { compareGradNorm, compareTensor } from './compare.ts'
import { device } from './device.ts'
import { compareGradient, groundedLossRows, noGradient } from './grounded-gradients.ts'
import { get, numbers, type QwenCase, readAnswer } from './sa2va-qwen-case.ts'

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
    const full = [...c.want.keys()]
      .filter((n) => n.startsWith('gradof.'))
      .map((name) => compareGradient(name, named.get(name.slice('gradof.'.length)), get(c, name)))
    return [...rows, ...norms, ...full, ...embeddingRows(c)]
  })
}

function lossRows(c: QwenCase, features: QwenGroundedFeatures): CheckRow[] {
  const { model } = c.loaded
  const { ids, pass, seg } = readAnswer(c, features)
  // the pass read one token more than the answer; its log-probability is left out
  const logps = pass.logProbs().logps.narrow(1, 0, ids.length)
  const { logits } = model.drawMasks(features, model.segPrompts(pass.stateAt(0, seg)))
  return groundedLossRows(logps, logits, get(c, 'grad.mask_target'), c.golden.grad_loss)
}

function embeddingRows(c: QwenCase): CheckRow[] {
  if (!c.want.has('grad.embed_rows')) return []
  const grad = c.loaded.model.model.parts.embedding.weight.grad()
  const name = 'grad.embed_of_rows'
  if (!grad) return [noGradient(name)]
  const rows = grad.indexSelect(0, int64Tensor(numbers(c, 'grad.embed_rows'), { device: device() }))
  return [compareTensor(name, rows, get(c, name), { rel: 1e-3, words: '1e-3 of the largest magnitude' })]
}
