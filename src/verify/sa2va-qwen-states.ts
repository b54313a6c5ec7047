// States inside the vision tower and the language model of Sa2VA on a Qwen-VL, part by part.
import type { CheckRow } from '../core/index.ts'
import { Decoder, type LlmConfig, type Pass } from '../llm/index.ts'
import {
  lookAt,
  type PatchedImage,
  type QwenGroundedFeatures,
  type QwenParts,
  type VisionTower,
  windowOrder,
} from '../models/index.ts'
import { Module, Rope } from '../nn/index.ts'
import { cat, int64Tensor, type Tensor, tensor, zeros } from '../tensor/index.ts'
import { compareIds, compareTensor, storedTensor } from './compare.ts'
import { device } from './device.ts'
import { get, numbers, type QwenCase } from './sa2va-qwen-case.ts'

export function visionRows(c: QwenCase, features: QwenGroundedFeatures): CheckRow[] {
  return [
    ...towerRows(c.loaded.model.model.model.visual, c.loaded.cfg, c.image.patches, c.want),
    compareTensor('vis.image_embeds', features.tokens, get(c, 'vis.image_embeds')),
    ...features.deepstack.map((t, j) => compareTensor(`vis.deepstack${j}`, t, get(c, `vis.deepstack${j}`))),
  ]
}

/** What happens inside a vision tower, part by part, as far as the set has it. */
export function towerRows(
  visual: VisionTower,
  { base, vision }: QwenParts,
  patches: PatchedImage,
  want: ReadonlyMap<string, Tensor>,
): CheckRow[] {
  const P = patches.rows * patches.columns
  const embedded = visual.patch_embed.forward(
    tensor(patches.pixels, [P, patches.pixels.length / P], { device: device() }),
  )
  const positions = visual.positions?.(patches)
  const rows: CheckRow[] = []
  const compare = (name: string, states: Tensor) => {
    if (want.has(name)) rows.push(compareTensor(name, states, storedTensor(want, name)))
  }
  compare('vis.patch_embed', embedded)
  if (positions) compare('vis.pos_embed', positions)
  compare('vis.block_in', positions ? embedded.add(positions) : embedded)
  const order = base === 'qwen2_5_vl' ? windowOrder(patches, vision) : null
  if (order) rows.push(...windowRows(order, vision.spatial_merge_size, want))
  lookAt(visual, patches, { device: device(), dtype: 'float32' }, (name, states) =>
    compare(`vis.${name}`, order ? patchOrdered(states, order.order) : states),
  )
  return rows
}

function windowRows(
  { order, lengths }: ReturnType<typeof windowOrder>,
  merge: number,
  want: ReadonlyMap<string, Tensor>,
): CheckRow[] {
  const ends = [0]
  for (const length of lengths) ends.push(ends.at(-1)! + length * merge ** 2)
  const numbersOf = (name: string) => storedTensor(want, name).numbers()
  return [
    compareIds('vis.window_index', order, numbersOf('vis.window_index')),
    compareIds('vis.cu_window_seqlens', ends, numbersOf('vis.cu_window_seqlens')),
  ]
}

/** Units in window order -> in the order of the patches. */
function patchOrdered(states: Tensor, order: readonly number[]): Tensor {
  const back = new BigInt64Array(order.length)
  order.forEach((unit, i) => {
    back[unit] = BigInt(i)
  })
  const [P, h] = states.shape as [number, number]
  return states
    .view([order.length, P / order.length, h])
    .indexSelect(0, tensor(back, { device: device() }))
    .view([P, h])
}

type Language = Decoder['module']

/** A language model that ends after some of its layers. */
class FirstLayers extends Module {
  readonly #whole: Language
  readonly #count: number

  constructor(whole: Language, count: number) {
    super()
    this.#whole = whole
    this.#count = count
  }

  get parts(): Language['parts'] {
    return { ...this.#whole.parts, layers: this.#whole.parts.layers.slice(0, this.#count) }
  }
}

/** States after the first layers, before the final norm. */
export function statesAfter(decoder: Decoder, count: number, x: Tensor, pass: Pass): Tensor {
  return new Decoder(decoder.cfg, new FirstLayers(decoder.module, count), { statesBeforeNorm: true }).forward(x, pass)
}

/** Prompt and answer as one row: what enters each layer, and what leaves the last. */
export function languageRows(c: QwenCase, features: QwenGroundedFeatures): CheckRow[] {
  const { model, prompter, cfg } = c.loaded
  const prompt = prompter.segment(features, { question: c.golden.question })
  const answer = numbers(c, 'seg.answer_ids')
  const { axes, next } = model.promptPositions(prompt)
  const { embeddings, additions } = model.promptInputs(prompt)
  const tail = model.decoder.embed(int64Tensor(answer, [1, answer.length], { device: device() }))
  const x = cat([embeddings, tail], { dim: 1 })
  const added = additions.map((t) => cat([t, zeros(tail.shape as number[], { device: device() })], { dim: 1 }))
  const full = axes.map((axis) => [...axis, ...answer.map((_, j) => next + j)])
  const positions = int64Tensor(full.flat(), [3, 1, full[0]!.length], { device: device() })
  const { parts } = model.decoder.module
  const upTo = (n: number): Tensor => statesAfter(model.decoder, n, x, { positions, additions: added }).squeeze(0)
  const last = upTo(parts.layers.length)
  return [
    compareIds(
      'seg.position_ids',
      axes.flatMap((axis) => Array.from(axis)),
      numbers(c, 'seg.position_ids'),
    ),
    compareIds('seg.position_ids_full', full.flat(), numbers(c, 'seg.position_ids_full')),
    compareIds('seg.rope_delta', [next - prompt.ids.length], numbers(c, 'seg.rope_delta')),
    ...ropeRows(cfg.llm, positions, x, c.want, 'seg.'),
    ...parts.layers.map((_, i) => compareTensor(`seg.layer_in${i}`, upTo(i), get(c, `seg.layer_in${i}`))),
    compareTensor('seg.hidden_before_norm', last, get(c, 'seg.hidden_before_norm')),
    compareTensor('seg.hidden_after_norm', parts.norm.forward(last), get(c, 'seg.hidden_after_norm')),
    ...stateRows(c, last, prompt.ids.length + answer.indexOf(prompter.segId)),
  ]
}

export function ropeRows(
  llm: LlmConfig,
  positions: Tensor,
  like: Tensor,
  want: ReadonlyMap<string, Tensor>,
  part: string,
): CheckRow[] {
  const { head_dim, rope_theta, mrope_section, mrope_interleaved } = llm
  const table = new Rope(head_dim, rope_theta, mrope_section, mrope_interleaved).table(positions, like)
  return (['cos', 'sin'] as const).map((name) =>
    compareTensor(`${part}rope_${name}`, table[name], storedTensor(want, `${part}rope_${name}`)),
  )
}

/** Both states at [SEG], and what the mask decoder would be given with the one that is not released. */
function stateRows(c: QwenCase, last: Tensor, at: number): CheckRow[] {
  const { model, cfg } = c.loaded
  const before = last.narrow(0, at, 1)
  const after = model.decoder.module.parts.norm.forward(before)
  const other = cfg.base === 'qwen3_vl' ? after : before
  return [
    compareTensor('seg.state_before_norm', before, get(c, 'seg.state_before_norm')),
    compareTensor('seg.state_after_norm', after, get(c, 'seg.state_after_norm')),
    compareTensor('seg.embedding_of_other_state', model.segPrompts(other), get(c, 'seg.embedding_of_other_state')),
  ]
}
