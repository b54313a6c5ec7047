// The vision tower of Qwen2.5-VL. P patches, U units of merge x merge patches, h width, H heads, D head size. Unusual: most blocks
// attend inside windows, so units are put into window order before the first block and back after the merger; RMSNorm; rotation by
// row and column; no class token, no position embedding.
import { GatedMlp } from '../../llm/index.ts'
import { Linear, Module, RMSNorm, Rope } from '../../nn/index.ts'
import { aten, type Tensor, tidy } from '../../tensor/index.ts'
import type { VisionOutput, Watch } from './generations.ts'
import { type Grid, patchOrder } from './processor.ts'
import type { QwenVisionConfig } from './vision-config.ts'
import { eps, indices, inverseOf, PatchEmbed, patchRotation, segmentsOf, VisionBlock } from './vision-layers.ts'

/** Rows of 3,420 numbers do not begin at 16 bytes, which GPU products are slow with: zeros fill them, which changes no sum. */
class AlignedMlp extends GatedMlp {
  override forward(x: Tensor): Tensor {
    const parts = [this.gate_proj, this.up_proj, this.down_proj] as const
    const rest = -this.gate_proj.weight.size(0) & 7
    const isPlain = parts.every(({ weight, adapter }) => weight.dtype === 'bfloat16' && !adapter)
    if (rest === 0 || !isPlain || !x.device.startsWith('cuda')) return super.forward(x)
    const [gate, up, down] = parts
    const more = (t: Tensor, ...sides: number[]) => aten('constant_pad_nd', t, sides, 0) as Tensor
    const part = ({ weight, bias }: Linear) => x.linear(more(weight, 0, 0, 0, rest), { bias: more(bias!, 0, rest) })
    return part(gate)
      .silu()
      .mul(part(up))
      .linear(more(down.weight, 0, rest), { bias: down.bias! })
  }
}

class Merger extends Module {
  readonly ln_q: RMSNorm
  readonly mlp: (Linear | null)[]
  readonly #wide: number

  constructor(cfg: QwenVisionConfig) {
    super()
    this.#wide = cfg.hidden_size * cfg.spatial_merge_size ** 2
    this.ln_q = new RMSNorm(cfg.hidden_size, eps)
    this.mlp = [new Linear(this.#wide, this.#wide), null, new Linear(this.#wide, cfg.out_hidden_size)]
  }

  /** [P, h] -> [U, out] */
  forward(x: Tensor): Tensor {
    const [first, , second] = this.mlp as [Linear, null, Linear]
    return second.forward(first.forward(this.ln_q.forward(x).view([-1, this.#wide])).gelu())
  }
}

export class QwenVision extends Module {
  readonly patch_embed: PatchEmbed
  readonly blocks: VisionBlock[]
  readonly merger: Merger
  readonly #cfg: QwenVisionConfig
  readonly #rope: Rope

  constructor(cfg: QwenVisionConfig) {
    super()
    const norm = () => new RMSNorm(cfg.hidden_size, eps)
    this.patch_embed = new PatchEmbed(cfg, { bias: false })
    this.blocks = Array.from({ length: cfg.depth }, () => new VisionBlock(cfg, norm, new AlignedMlp(cfg, true)))
    this.merger = new Merger(cfg)
    this.#cfg = cfg
    this.#rope = new Rope(cfg.hidden_size / cfg.num_heads / 2, 10000) // half a head for rows, half for columns
  }

  /** Patches of some images [P, 3 * frames * p * p] -> their tokens [U, out], row by row. */
  forward(patches: Tensor, grids: readonly Grid[], watch?: Watch): VisionOutput {
    return tidy(() => {
      const { rows, places, units, windows } = windowsOf(grids, this.#cfg)
      const { device } = patches
      const rope = patchRotation(this.#rope, places, device)
      const inWindows = segmentsOf(windows, device)
      const everywhere = segmentsOf(
        grids.map((grid) => grid.rows * grid.columns),
        device,
      )
      let x = this.patch_embed.forward(patches).indexSelect(0, indices(rows, device))
      this.blocks.forEach((block, i) => {
        x = block.forward(x, rope, this.#cfg.fullatt_block_indexes.includes(i) ? everywhere : inWindows)
        watch?.(`block${i}`, x) // in window order
      })
      return { tokens: this.merger.forward(x).indexSelect(0, indices(inverseOf(units), device)), deepstack: [] }
    })
  }
}

/** The images one after the other, each in window order: rows and places of the patches, units, patches of every window. */
function windowsOf(grids: readonly Grid[], cfg: QwenVisionConfig) {
  const area = cfg.spatial_merge_size ** 2
  const [units, windows, places]: [number[], number[], [number, number][]] = [[], [], []]
  for (const grid of grids) {
    const { order, lengths } = windowOrder(grid, cfg)
    const at = patchOrder(grid, cfg.spatial_merge_size)
    const before = units.length
    for (const unit of order) {
      units.push(before + unit)
      for (let i = 0; i < area; i++) places.push(at[unit * area + i]!)
    }
    windows.push(...lengths.map((n) => n * area))
  }
  const rows = new Int32Array(places.length)
  for (let i = 0; i < rows.length; i++) rows[i] = units[Math.floor(i / area)]! * area + (i % area) // Int32Array.from is slow
  return { rows, places, units, windows }
}

/** Units window by window, and how many each window has; windows at the lower and right edge are smaller. */
export function windowOrder(grid: Grid, cfg: QwenVisionConfig): { order: number[]; lengths: number[] } {
  const [rows, columns] = [grid.rows, grid.columns].map((n) => n / cfg.spatial_merge_size) as [number, number]
  const side = Math.floor(cfg.window_size / cfg.spatial_merge_size / cfg.patch_size)
  const order: number[] = []
  const lengths: number[] = []
  for (let top = 0; top < rows; top += side)
    for (let left = 0; left < columns; left += side) {
      const before = order.length
      for (let y = top; y < Math.min(top + side, rows); y++)
        for (let x = left; x < Math.min(left + side, columns); x++) order.push(y * columns + x)
      lengths.push(order.length - before)
    }
  return { order, lengths }
}
