// The vision tower of Qwen2.5-VL. P patches, U units of merge x merge patches, h width, H heads, D head size. Unusual: most blocks
// attend inside windows, so units are put into window order before the first block and back after the merger; RMSNorm; rotation by
// row and column; no class token, no position embedding.
import { GatedMlp } from '../../llm/index.ts'
import { Linear, Module, RMSNorm, Rope } from '../../nn/index.ts'
import { type Tensor, tidy } from '../../tensor/index.ts'
import type { VisionOutput, Watch } from './generations.ts'
import { type Grid, patchOrder } from './processor.ts'
import type { QwenVisionConfig } from './vision-config.ts'
import { eps, indices, inverseOf, PatchEmbed, patchRotation, segmentsOf, VisionBlock } from './vision-layers.ts'

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
    this.blocks = Array.from({ length: cfg.depth }, () => new VisionBlock(cfg, norm, new GatedMlp(cfg, true)))
    this.merger = new Merger(cfg)
    this.#cfg = cfg
    this.#rope = new Rope(cfg.hidden_size / cfg.num_heads / 2, 10000) // half a head for rows, half for columns
  }

  /** Patches of one image [P, 3 * frames * p * p] -> its tokens [U, out], row by row. */
  forward(patches: Tensor, grid: Grid, watch?: Watch): VisionOutput {
    return tidy(() => {
      const area = this.#cfg.spatial_merge_size ** 2
      const { order, lengths } = windowOrder(grid, this.#cfg)
      const rows = order.flatMap((unit) => Array.from({ length: area }, (_, i) => unit * area + i))
      const places = patchOrder(grid, this.#cfg.spatial_merge_size)
      const inOrder = rows.map((r) => places[r]!)
      const rope = patchRotation(this.#rope, inOrder, patches.device)
      const inWindows = segmentsOf(lengths.map((n) => n * area))
      const everywhere = segmentsOf([rows.length])
      let x = this.patch_embed.forward(patches).indexSelect(0, indices(Int32Array.from(rows), patches.device))
      this.blocks.forEach((block, i) => {
        x = block.forward(x, rope, this.#cfg.fullatt_block_indexes.includes(i) ? everywhere : inWindows)
        watch?.(`block${i}`, x) // in window order
      })
      const back = indices(inverseOf(order), x.device)
      return { tokens: this.merger.forward(x).indexSelect(0, back), deepstack: [] }
    })
  }
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
