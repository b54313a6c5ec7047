// Recomputes everything in a golden folder of Qwen2.5-VL: a miniature checkpoint with what transformers computed from it.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights, readTensors } from '../checkpoint/index.ts'
import type { CheckRow } from '../core/index.ts'
import { decodeImage } from '../image/index.ts'
import { generate, teacherForce } from '../llm/index.ts'
import {
  chatText,
  type LoadedQwenVL,
  openQwenVL,
  type PatchedImage,
  patchImage,
  type QwenFeatures,
  type QwenPrompt,
} from '../models/index.ts'
import { tensorAt } from '../nn/index.ts'
import { backward, noGrad, type Tensor, tidy } from '../tensor/index.ts'
import { compareGradNorm, compareIds, compareNumbers, compareTensor, storedTensor } from './compare.ts'
import { device } from './device.ts'

interface Golden {
  text: string
  processor_maxdiff?: number
  grad_norms: Record<string, number>
}

interface Case {
  loaded: LoadedQwenVL
  golden: Golden
  want: Map<string, Tensor>
  image: PatchedImage
}

export async function verifyQwenVL(dir: string): Promise<CheckRow[]> {
  const golden = JSON.parse(readFileSync(join(dir, 'golden.json'), 'utf8')) as Golden
  const loaded = openQwenVL(dir, { dtype: 'float32', device: device() })
  const want = readTensors(openWeights(join(dir, 'golden.safetensors')), device())
  const picture = await decodeImage(readFileSync(join(dir, 'image.png')))
  const c: Case = { loaded, golden, want, image: patchImage(picture, loaded.processor) }
  try {
    return [...noGrad(() => forwardRows(c)), ...gradientRows(c)]
  } finally {
    for (const t of [...want.values(), ...loaded.model.parameters().values()]) t.dispose()
  }
}

const get = (c: Case, name: string): Tensor => storedTensor(c.want, name)

const numbers = (c: Case, name: string): number[] => get(c, name).numbers()

function forwardRows(c: Case): CheckRow[] {
  return tidy(() => {
    const features = c.loaded.model.encode(c.image)
    return [...imageRows(c), ...promptRows(c, features), ...scoreRows(c, promptOf(c, features))]
  })
}

/** The stored ids: what every model quantity was computed from, whatever our own prompt looks like. */
function promptOf(c: Case, features: QwenFeatures): QwenPrompt {
  return { ids: Int32Array.from(numbers(c, 'input_ids')), images: [features] }
}

/** The tensor path of newer processors resamples otherwise; the check reports how far that is from Pillow's. */
function imageRows(c: Case): CheckRow[] {
  const { pixels, rows, columns } = c.image
  const apart = c.golden.processor_maxdiff
  const out = [
    compareIds('image_grid_thw', [1, rows, columns], numbers(c, 'image_grid_thw')),
    compareNumbers('pixel_values', pixels, get(c, 'pixel_values'), { abs: 1e-6, words: '1e-6' }),
  ]
  if (apart === undefined || !c.want.has('pixel_values_processor')) return out
  const limit = { abs: apart + 1e-5, words: "the reference's own difference" }
  return [...out, compareNumbers('pixel_values_processor', pixels, get(c, 'pixel_values_processor'), limit)]
}

function promptRows(c: Case, features: QwenFeatures): CheckRow[] {
  const { model, tokenizer } = c.loaded
  const question = /<\|vision_end\|>([\s\S]*?)<\|im_end\|>/.exec(c.golden.text)?.[1] ?? ''
  const rendered = chatText(question, [features.tokens.size(0)])
  const prompt = promptOf(c, features)
  const { axes, next } = model.promptPositions(prompt)
  return [
    compareTensor('image_embeds', features.tokens, get(c, 'image_embeds')),
    compareIds('text', Buffer.from(rendered), Buffer.from(c.golden.text)),
    compareIds('input_ids', tokenizer.encode(rendered, { addSpecial: false }), prompt.ids),
    compareIds(
      'position_ids',
      axes.flatMap((axis) => Array.from(axis)),
      numbers(c, 'position_ids'),
    ),
    compareIds('rope_deltas', [next - prompt.ids.length], numbers(c, 'rope_deltas')),
  ]
}

function scoreRows(c: Case, prompt: QwenPrompt): CheckRow[] {
  const { model, tokenizer } = c.loaded
  const greedy = Int32Array.from(numbers(c, 'greedy_ids'))
  const [row] = generate(model, tokenizer, [prompt], { maxNewTokens: greedy.length, stopStrings: [] })
  const last = get(c, 'logits_last8') // of the prompt
  const pass = teacherForce(model, prompt, [Int32Array.of(0)])
  const states = pass.hidden.narrow(0, prompt.ids.length - last.size(0), last.size(0))
  return [
    compareTensor('logits_last8', model.decoder.logits(states), last),
    compareIds('greedy_ids', row!.ids, greedy),
    compareTensor('answer_logps', answerLogps(c, prompt), get(c, 'answer_logps')),
  ]
}

function answerLogps(c: Case, prompt: QwenPrompt): Tensor {
  const answer = Int32Array.from(numbers(c, 'answer_ids'))
  return teacherForce(c.loaded.model, prompt, [answer]).logProbs().logps
}

/** Every weight trains here, the vision tower too: the reference's gradients are of the whole model. */
function gradientRows(c: Case): CheckRow[] {
  const { model } = c.loaded
  const slots = model.slots()
  for (const slot of slots) tensorAt(slot).requiresGrad_(true)
  return tidy(() => {
    const { rows, columns, height, width } = c.image
    const features = { tokens: model.imageTokens(c.image), rows, columns, height, width }
    backward(answerLogps(c, promptOf(c, features)).mean().neg())
    const named = new Map(slots.map((s) => [s.name, tensorAt(s)]))
    return Object.entries(c.golden.grad_norms).map(([name, norm]) => compareGradNorm(name, named.get(name), norm))
  })
}
