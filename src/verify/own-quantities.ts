// What this product computes from a model folder, for the comparison with Python: states, scores, gradients of adapters, one GRPO loss.
// Inputs and adapter are those that reference.py drew. The names are its names.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fromFileName, loadAdapter, openWeights } from '../checkpoint/index.ts'
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
import { type Module, tensorAt, trainOnly } from '../nn/index.ts'
import { GrpoConfig, grpoLoss } from '../rl/index.ts'
import { backward, int64Tensor, noGrad, type Tensor, tidy, tidyNoGrad } from '../tensor/index.ts'
import type { Tokenizer } from '../text/index.ts'
import { device } from './device.ts'
import { GoldenTensors } from './golden-tensors.ts'
import { positionsWith, statesAfter } from './qwen-states.ts'

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
      const inputs = new GoldenTensors(join(scratch, 'inputs.safetensors'))
      const [prompt, states] = noGrad(() => readPrompt(subject, inputs))
      const answer = idsOf(inputs.get('answer_ids'))
      const plain = noGrad(() => ({ ...languageStates(subject, prompt), ...scores(subject, prompt, answer) }))
      const generated = greedy(subject, prompt, newTokens)
      const adapter = join(scratch, 'adapter')
      const adapted = existsSync(adapter) ? adapterQuantities(subject, adapter, prompt, inputs) : {}
      return { ...states, ...plain, ...generated, ...adapted }
    })
  } finally {
    for (const t of subject.module.parameters().values()) t.dispose()
  }
}

const idsOf = (t: Tensor): Int32Array => Int32Array.from(t.numbers())
const numbersOf = (t: Tensor): Float32Array => t.detach().to('float32').contiguous().array() as Float32Array

/** The prompt with what the vision tower gives, and the tower's states part by part. */
function readPrompt({ tower, model }: Subject, inputs: GoldenTensors): [MixedPrompt, Quantities] {
  const prompt: MixedPrompt = { ids: idsOf(inputs.get('prompt_ids')), images: [], regions: [] }
  if (!tower) return [prompt, {}]
  const states: Quantities = {}
  const put = (name: string, t: Tensor) => {
    states[`states.visual.${name}`] = numbersOf(t)
  }
  const patches = inputs.get('pixel_values')
  const [, rows, columns] = inputs.numbers('grid') as [number, number, number]
  const image: PatchedImage = { pixels: numbersOf(patches), rows, columns, height: rows, width: columns }
  const embedded = tower.patch_embed.forward(patches)
  put('patch_embed', embedded)
  if (tower.positions) put('pos_embed', embedded.add(tower.positions(image)))
  const seen = lookAt(tower, image, model.placement, (name, t) => put(name.replace('block', 'blocks.'), t))
  for (const [j, t] of seen.deepstack.entries()) put(`deepstack_merger_list.${j}`, t)
  put('merger', seen.tokens)
  const features = { ...image, ...seen }
  return [{ ...prompt, images: [features], features }, states]
}

function languageStates({ model }: Subject, prompt: MixedPrompt): Quantities {
  const { embeddings, additions } = model.promptInputs!(prompt)
  const axes = positionsWith(model.promptPositions?.(prompt).axes ?? [Array.from(prompt.ids.keys())], 0, [])
  const shape = axes.length > 1 ? [axes.length, 1, prompt.ids.length] : [1, prompt.ids.length]
  const positions = int64Tensor(axes.flat(), shape, { device: device() })
  const { layers, norm } = model.decoder.module.parts
  const states = layers.map((_, i) => statesAfter(model.decoder, i + 1, embeddings, { positions, additions }))
  const words = int64Tensor(wordPlaces(prompt), { device: device() })
  return {
    'states.embed_tokens': numbersOf(embeddings.indexSelect(1, words)),
    ...Object.fromEntries(states.map((t, i) => [`states.layers.${i}`, numbersOf(t)])),
    'states.norm': numbersOf(norm.forward(states.at(-1)!)),
  }
}

/** All places but those of the image, whose tokens are the only run of equal ids of that length. */
function wordPlaces({ ids, features }: MixedPrompt): number[] {
  const count = features?.tokens.size(0) ?? 0
  const start = ids.findIndex((id, i) => ids.subarray(i, i + count).every((other) => other === id))
  return Array.from(ids.keys()).filter((i) => i < start || i >= start + count)
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
  dir: string,
  prompt: MixedPrompt,
  inputs: GoldenTensors,
): Quantities {
  loadAdapter(module, dir, { dropout: 0 })
  const weights = new Map(trainOnly(module, [/\.lora_[AB]\./]).map((slot) => [slot.name, tensorAt(slot)]))
  const files = openWeights(join(dir, 'adapter_model.safetensors')).names
  const named = files.map((file) => [file, weights.get(fromFileName(file, names))!] as const)
  const logps = (ids: readonly Int32Array[]) => teacherForce(model, prompt, ids).logProbs().logps
  const plain = gradients(named, 'grad', () =>
    logps([idsOf(inputs.get('answer_ids'))])
      .mean()
      .neg(),
  )
  if (!inputs.has('old_logps')) return plain
  const [oldLogps, refLogps, advantages] = ['old_logps', 'ref_logps', 'advantages'].map((name) => inputs.get(name))
  const mask = inputs.get('mask')
  const lengths = mask.sum(1).numbers()
  const completions = lengths.map((length, k) => idsOf(inputs.get('completions').select(0, k)).subarray(0, length))
  const rest = { mask: mask.to('float32'), advantages: advantages!, oldLogps, refLogps }
  const loss = () => grpoLoss({ logps: logps(completions), ...rest }, GrpoConfig.parse({})).loss
  const value = tidyNoGrad(() => numbersOf(loss()))
  return { ...plain, 'grpo.loss': value, ...gradients(named, 'grpo.grad', loss) }
}

function gradients(weights: readonly (readonly [string, Tensor])[], part: string, loss: () => Tensor): Quantities {
  for (const [, weight] of weights) weight.grad()?.zero_()
  tidy(() => backward(loss()))
  return Object.fromEntries(weights.map(([file, weight]) => [`${part}.${file}`, numbersOf(weight.grad()!)]))
}
