// States of the language model of a plain Qwen-VL, layer by layer, and the positions and rotations they follow from.
import type { CheckRow } from '../core/index.ts'
import type { QwenPrompt } from '../models/index.ts'
import { int64Tensor } from '../tensor/index.ts'
import { compareIds, compareTensor } from './compare.ts'
import { device } from './device.ts'
import { flat, get, numbers, type PlainQwenCase } from './qwen-vl-case.ts'
import { ropeRows, statesAfter } from './sa2va-qwen-states.ts'

export function stateRows(c: PlainQwenCase, prompt: QwenPrompt): CheckRow[] {
  if (!c.want.has('hidden.embeds')) return []
  const { model, cfg } = c.loaded
  const { embeddings, additions } = model.promptInputs(prompt)
  const { axes, next } = model.promptPositions(prompt)
  const positions = int64Tensor(flat(axes), [3, 1, prompt.ids.length], { device: device() })
  const answer = numbers(c, 'answer_ids')
  const full = axes.map((axis) => [...axis, ...answer.map((_, j) => next + j)])
  const { layers, norm } = model.parts
  const states = layers.map((_, i) => statesAfter(model.decoder, i + 1, embeddings, { positions, additions }))
  return [
    compareIds('full.position_ids', flat(full), numbers(c, 'full.position_ids')),
    ...ropeRows(cfg.llm, positions, embeddings, c.want, ''),
    compareTensor('hidden.embeds', embeddings, get(c, 'hidden.embeds')),
    ...states.map((t, i) => compareTensor(`hidden.layer${i}`, t, get(c, `hidden.layer${i}`))),
    compareTensor('hidden.norm', norm.forward(states.at(-1)!), get(c, 'hidden.norm')),
  ]
}
