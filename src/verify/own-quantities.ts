// What this product computes from a model folder, for the comparison with Python: states, scores, gradients of adapters, one GRPO loss.
// Inputs and adapter are those that reference.py drew. The names are its names.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fromFileName, loadAdapter, openWeights, readTensors } from '../checkpoint/index.ts'
import { Mismatch } from '../core/index.ts'
import { type Decoder, generate, loadLanguageModel, type PromptedModel, teacherForce } from '../llm/index.ts'
import {
  type AdapterSite,
  familyOf,
  isLanguage,
  lookAt,
  openFamily,
  type PatchedImage,
  type QwenFeatures,
  QwenVLFamily,
  Sa2VAQwenFamily,
  type VisionTower,
} from '../models/index.ts'
import { type Module, type Slot, tensorAt, trainOnly } from '../nn/index.ts'
import { GrpoConfig, grpoLoss } from '../rl/index.ts'
import { backward, int64Tensor, noGrad, type Tensor, tidy } from '../tensor/index.ts'
import type { Tokenizer } from '../text/index.ts'
import { storedTensor } from './compare.ts'
import { device } from './device.ts'
import { layerStates } from './sa2va-qwen-states.ts'

/** Numbers by name. */
export type Quantities = Record<string, Float32Array | Float64Array>

/** A prompt of both kinds of Qwen-VL, and of a language model alone. */
interface MixedPrompt {
  ids: Int32Array
  images: readonly QwenFeatures[]
  features?: QwenFeatures
  regions: readonly Int32Array[]
}

/** What the public Python code contains of a folder. */
interface Subject {
  module: Module
  model: PromptedModel<MixedPrompt>
  names: AdapterSite['names']
  tokenizer?: Tokenizer
  tower?: VisionTower
}

/** The family, or `language`: config.json of a language model alone, and base.safetensors. */
export function subjectFamily(dir: string): string {
  return existsSync(join(dir, 'base.safetensors')) ? 'language' : familyOf(dir)
}

function openSubject(dir: string): Subject {
  const options = { dtype: 'float32', device: device() } as const
  if (subjectFamily(dir) === 'language') {
    const decoder = loadLanguageModel(join(dir, 'config.json'), join(dir, 'base.safetensors'), options)
    const names = { ours: '', file: 'base_model.model.', adapter: null }
    return { module: decoder.module, model: textModel(decoder), names }
  }
  const family = openFamily(dir, options)
  if (!isLanguage(family))
    throw new Mismatch({ where: dir, field: '--model', expected: 'a folder with a language model', got: family.name })
  const { module, tokenizer, adapter } = family
  const shared = { module, tokenizer, names: adapter.names }
  const model = family.model as PromptedModel<never> as PromptedModel<MixedPrompt>
  if (family instanceof QwenVLFamily) return { ...shared, model, tower: family.model.visual }
  if (family instanceof Sa2VAQwenFamily) return { ...shared, model, tower: family.model.model.model.visual }
  return { ...shared, model: textModel(model.decoder) }
}

function textModel(decoder: Decoder): PromptedModel<MixedPrompt> {
  const promptInputs = ({ ids }: MixedPrompt) => {
    return { embeddings: decoder.embed(int64Tensor(ids, [1, ids.length], { device: device() })), additions: [] }
  }
  const promptEmbeddings = (prompt: MixedPrompt) => promptInputs(prompt).embeddings
  return { decoder, placement: decoder.placement, promptEmbeddings, promptInputs }
}

/** The settings of the loss under TRL's names: those of a run by default. */
export function trlSettings(): Record<string, string | number | boolean> {
  const { lossType, beta, epsilon, epsilonHigh, useBiasCorrectionKl } = GrpoConfig.parse({})
  const high = epsilonHigh ?? epsilon
  return { loss_type: lossType, beta, epsilon, epsilon_high: high, use_bias_correction_kl: useBiasCorrectionKl }
}

/** `scratch`: the folder in which reference.py worked. */
export function computeOwn(dir: string, scratch: string, newTokens: number): Quantities {
  const subject = openSubject(dir)
  try {
    return tidy(() => {
      const inputs = readTensors(openWeights(join(scratch, 'inputs.safetensors')), device())
      const answer = idsOf(storedTensor(inputs, 'answer_ids'))
      const { prompt, states } = noGrad(() => readPrompt(subject, inputs))
      const plain = noGrad(() => ({ ...languageStates(subject, prompt), ...scores(subject, prompt, answer) }))
      const generated = greedy(subject, prompt, newTokens)
      const adapter = join(scratch, 'adapter')
      const adapted = existsSync(adapter) ? adapterQuantities(subject, adapter, prompt, answer, inputs) : {}
      return { ...states, ...plain, ...generated, ...adapted }
    })
  } finally {
    for (const t of subject.module.parameters().values()) t.dispose()
  }
}

const idsOf = (t: Tensor): Int32Array => Int32Array.from(t.numbers())
const numbersOf = (t: Tensor): Float32Array => t.detach().to('float32').contiguous().array() as Float32Array

/** The prompt with what the vision tower gives, and the tower's states part by part. */
function readPrompt({ tower, model }: Subject, inputs: ReadonlyMap<string, Tensor>) {
  const ids = idsOf(storedTensor(inputs, 'prompt_ids'))
  const prompt: MixedPrompt = { ids, images: [], regions: [] }
  const states: Quantities = {}
  if (!tower) return { prompt, states }
  const put = (name: string, t: Tensor) => {
    states[`states.visual.${name}`] = numbersOf(t)
  }
  const patches = storedTensor(inputs, 'pixel_values')
  const [, rows, columns] = storedTensor(inputs, 'grid').numbers() as [number, number, number]
  const image: PatchedImage = { pixels: numbersOf(patches), rows, columns, height: rows, width: columns }
  const embedded = tower.patch_embed.forward(patches)
  put('patch_embed', embedded)
  if (tower.positions) put('pos_embed', embedded.add(tower.positions(image)))
  const seen = lookAt(tower, image, model.placement, (name, t) => put(name.replace('block', 'blocks.'), t))
  seen.deepstack.forEach((t, j) => {
    put(`deepstack_merger_list.${j}`, t)
  })
  put('merger', seen.tokens)
  const features = { ...image, ...seen }
  return { prompt: { ...prompt, images: [features], features }, states }
}

function languageStates({ model, tower }: Subject, prompt: MixedPrompt): Quantities {
  const { embeddings, additions } = model.promptInputs!(prompt)
  const axes = model.promptPositions?.(prompt).axes
  const flat = axes?.flatMap((axis) => Array.from(axis))
  const positions = flat && int64Tensor(flat, [axes!.length, 1, prompt.ids.length], { device: device() })
  const [, ...states] = layerStates(model.decoder, embeddings, { positions, additions })
  const first = tower ? imageTokens(prompt) : { start: 0, count: 0 }
  const width = embeddings.size(2)
  const rows = Array.from(numbersOf(embeddings))
  rows.splice(first.start * width, first.count * width)
  return {
    'states.embed_tokens': Float32Array.from(rows),
    ...Object.fromEntries(states.map((t, i) => [`states.layers.${i}`, numbersOf(t)])),
    'states.norm': numbersOf(model.decoder.module.parts.norm.forward(states.at(-1)!)),
  }
}

/** Where the tokens of the image are. */
function imageTokens({ ids, features }: MixedPrompt): { start: number; count: number } {
  const count = features!.tokens.size(0)
  const start = ids.findIndex((id, i) => ids.subarray(i, i + count).every((other) => other === id))
  return { start, count }
}

function scores({ model }: Subject, prompt: MixedPrompt, answer: Int32Array): Quantities {
  const pass = teacherForce(model, prompt, [answer])
  const { logps } = pass.logProbs()
  const logits = model.decoder.logits(pass.hidden.narrow(0, pass.rowOf(0, -1), answer.length))
  return { logits: numbersOf(logits), logps: numbersOf(logps), loss: numbersOf(logps.mean().neg()) }
}

function greedy({ model, tokenizer }: Subject, prompt: MixedPrompt, maxNewTokens: number): Quantities {
  if (!tokenizer) return {}
  const [row] = generate(model, tokenizer, [prompt], { maxNewTokens, stopStrings: [] })
  return { generated: Float64Array.from(row!.ids) }
}

/** Gradients of the answer's loss and of one GRPO loss, under the names of PEFT's files. */
function adapterQuantities(
  { module, model, names }: Subject,
  adapter: string,
  prompt: MixedPrompt,
  answer: Int32Array,
  inputs: ReadonlyMap<string, Tensor>,
): Quantities {
  const { names: files } = { names: openWeights(join(adapter, 'adapter_model.safetensors')).names }
  loadAdapter(module, adapter, { dropout: 0 })
  const slots = new Map(trainOnly(module, [/\.lora_[AB]\./]).map((slot) => [slot.name, slot]))
  const chosen = files.map((file) => [file, slots.get(fromFileName(file, names))!] as const)
  const logps = (ids: readonly Int32Array[]) => teacherForce(model, prompt, ids).logProbs().logps
  const plain = gradients(chosen, 'grad', () => logps([answer]).mean().neg())
  if (!inputs.has('old_logps')) return plain
  const get = (name: string) => storedTensor(inputs, name)
  const mask = get('mask')
  const completions = mask.numbers().length / mask.size(1)
  const ids = Array.from({ length: completions }, (_, k) =>
    idsOf(get('completions').select(0, k)).subarray(0, mask.select(0, k).sum().item()),
  )
  const given = { mask: mask.to('float32'), advantages: get('advantages') }
  const loss = () =>
    grpoLoss(
      { logps: logps(ids), oldLogps: get('old_logps'), refLogps: get('ref_logps'), ...given },
      GrpoConfig.parse({}),
    ).loss
  const value = noGrad(() => tidy(() => numbersOf(loss())))
  return { ...plain, 'grpo.loss': value, ...gradients(chosen, 'grpo.grad', loss) }
}

function gradients(slots: readonly (readonly [string, Slot])[], part: string, loss: () => Tensor): Quantities {
  for (const [, slot] of slots) tensorAt(slot).grad()?.zero_()
  tidy(() => backward(loss()))
  const gradOf = (t: Tensor) => t.grad() ?? t.mul(0)
  return Object.fromEntries(slots.map(([file, slot]) => [`${part}.${file}`, numbersOf(gradOf(tensorAt(slot)))]))
}
