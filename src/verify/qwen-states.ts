// States inside a vision tower and a language model of Qwen-VL, part by part.
import type { CheckRow } from '../core/index.ts'
import { Decoder, type LlmConfig, type Pass } from '../llm/index.ts'
import { lookAt, type PatchedImage, type QwenParts, type VisionTower, windowOrder } from '../models/index.ts'
import { Module, Rope } from '../nn/index.ts'
import { int64Tensor, type Tensor, tensor } from '../tensor/index.ts'
import { device } from './device.ts'
import type { GoldenTensors } from './golden-tensors.ts'

/** What happens inside a vision tower, as far as the set has it. */
export function towerRows(
  visual: VisionTower,
  { base, vision }: QwenParts,
  patches: PatchedImage,
  want: GoldenTensors,
): CheckRow[] {
  const P = patches.rows * patches.columns
  const pixels = tensor(patches.pixels, [P, patches.pixels.length / P], { device: device() })
  const embedded = visual.patch_embed.forward(pixels)
  const positions = visual.positions?.(patches)
  const compare = (name: string, states: Tensor) => want.optional(name, () => want.tensor(name, states))
  const rows = [
    ...compare('vis.patch_embed', embedded),
    ...(positions ? compare('vis.pos_embed', positions) : []),
    ...compare('vis.block_in', positions ? embedded.add(positions) : embedded),
  ]
  const order = base === 'qwen2_5_vl' ? windowOrder(patches, vision) : null
  if (order) rows.push(...windowRows(order, vision.spatial_merge_size, want))
  lookAt(visual, patches, { device: device(), dtype: 'float32' }, (name, states) => {
    rows.push(...compare(`vis.${name}`, order ? patchOrdered(states, order.order) : states))
  })
  return rows
}

function windowRows(
  { order, lengths }: ReturnType<typeof windowOrder>,
  merge: number,
  want: GoldenTensors,
): CheckRow[] {
  const ends = [0]
  for (const length of lengths) ends.push(ends.at(-1)! + length * merge ** 2)
  return [want.ids('vis.window_index', order), want.ids('vis.cu_window_seqlens', ends)]
}

/** Units in window order -> in the order of the patches. */
function patchOrdered(states: Tensor, order: readonly number[]): Tensor {
  const back = new Array<number>(order.length)
  for (const [i, unit] of order.entries()) back[unit] = i
  const [P, h] = states.shape as [number, number]
  const units = states.view([order.length, P / order.length, h])
  return units.indexSelect(0, int64Tensor(back, { device: device() })).view([P, h])
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

/** Positions of a prompt with those of an answer after it, axis by axis. */
export function positionsWith(axes: readonly ArrayLike<number>[], next: number, answer: readonly number[]): number[][] {
  return axes.map((axis) => [...Array.from(axis), ...answer.map((_, j) => next + j)])
}

export function ropeRows(
  llm: LlmConfig,
  positions: Tensor,
  like: Tensor,
  want: GoldenTensors,
  part: string,
): CheckRow[] {
  const { head_dim, rope_theta, mrope_section, mrope_interleaved } = llm
  const table = new Rope(head_dim, rope_theta, mrope_section, mrope_interleaved).table(positions, like)
  return (['cos', 'sin'] as const).map((name) => want.tensor(`${part}rope_${name}`, table[name]))
}
