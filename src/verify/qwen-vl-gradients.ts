// Gradients of a plain Qwen-VL: of every weight, and of adapters in PEFT's files with everything else frozen.
import { join } from 'node:path'
import { fromFileName, loadAdapter } from '../checkpoint/index.ts'
import type { CheckRow } from '../core/index.ts'
import { openQwenVL, type QwenFeatures, QwenVLFamily, releasedName } from '../models/index.ts'
import { tensorAt, trainOnly } from '../nn/index.ts'
import { backward, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { compareGradNorm, compareNumbers, compareTensor } from './compare.ts'
import { device } from './device.ts'
import { noGradient } from './grounded-gradients.ts'
import { answerLogps, get, type PlainQwenCase, promptOf } from './qwen-vl-case.ts'

/** Every weight trains here, the vision tower too: the reference's gradients are of the whole model. */
export function gradientRows(c: PlainQwenCase): CheckRow[] {
  const slots = c.loaded.model.slots()
  for (const slot of slots) tensorAt(slot).requiresGrad_(true)
  return tidy(() => {
    backward(lossOf(c).loss)
    const named = new Map(slots.map((s) => [s.name, tensorAt(s)]))
    return Object.entries(c.golden.grad_norms).map(([name, norm]) =>
      compareGradNorm(name, named.get(releasedName(name)), norm),
    )
  })
}

/** Minus the mean log-probability of the answer. */
function lossOf(c: PlainQwenCase): { loss: Tensor; logps: Tensor } {
  const features: QwenFeatures = { ...c.image, ...c.loaded.model.look(c.image) }
  const logps = answerLogps(c, promptOf(c, features))
  return { loss: logps.mean().neg(), logps }
}

export function adapterRows(c: PlainQwenCase): CheckRow[] {
  return Object.entries(c.golden.lora ?? {}).flatMap(([name, want]) => {
    const loaded = openQwenVL(c.dir, { dtype: 'float32', device: device() })
    try {
      loadAdapter(loaded.model, join(c.dir, `adapter-${name}`), { dropout: 0 })
      return tidy(() => oneAdapter({ ...c, loaded }, name, want))
    } finally {
      for (const t of loaded.model.parameters().values()) t.dispose()
    }
  })
}

const close = { rel: 1e-3, words: '1e-3 of the largest magnitude' }

function oneAdapter(c: PlainQwenCase, name: string, want: { loss: number; grad_norms: Record<string, number> }) {
  const { names } = new QwenVLFamily(c.loaded).adapter
  const slots = trainOnly(c.loaded.model, [/\.lora_[AB]\./])
  const weights = new Map(slots.map((slot) => [slot.name, tensorAt(slot)]))
  const { loss, logps } = lossOf(c)
  backward(loss)
  const part = `lora.${name}`
  const weightOf = (file: string) => weights.get(fromFileName(file, names))
  const grads = [...c.want.keys()].filter((key) => key.startsWith(`${part}.grad.`))
  return [
    compareTensor(`${part}.answer_logps`, logps, get(c, `${part}.answer_logps`)),
    compareNumbers(`${part}.loss`, [loss.item()], tensor([want.loss]), { rel: 1e-4, words: '1e-4 relative' }),
    ...grads.map((key) => {
      const grad = weightOf(key.slice(`${part}.grad.`.length))?.grad()
      return grad ? compareTensor(key, grad, get(c, key), close) : noGradient(key)
    }),
    ...Object.entries(want.grad_norms).map(([file, norm]) => {
      const row = compareGradNorm(file, weightOf(file), norm)
      return { ...row, name: `${part}.${row.name}` }
    }),
  ]
}
