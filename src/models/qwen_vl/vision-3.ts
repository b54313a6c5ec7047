// The vision tower of Qwen3-VL. P patches, U units of merge x merge patches, h width. Unusual: a learned square of positions is
// resampled to the image's grid and added, besides the rotation by row and column; every block sees the whole image; the states
// after a few layers go through separate mergers to the first layers of the language model (deepstack).
import { Embedding, LayerNorm, Linear, Module, Rope } from '../../nn/index.ts'
import { cat, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import type { VisionOutput, Watch } from './generations.ts'
import { type Grid, patchOrder } from './processor.ts'
import type { QwenVisionConfig } from './vision-config.ts'
import { eps, indices, PatchEmbed, patchRotation, segmentsOf, VisionBlock } from './vision-layers.ts'

class FeedForward extends Module {
  readonly linear_fc1: Linear
  readonly linear_fc2: Linear

  constructor(cfg: QwenVisionConfig) {
    super()
    this.linear_fc1 = new Linear(cfg.hidden_size, cfg.intermediate_size)
    this.linear_fc2 = new Linear(cfg.intermediate_size, cfg.hidden_size)
  }

  forward(x: Tensor): Tensor {
    return this.linear_fc2.forward(this.linear_fc1.forward(x).gelu({ approximate: 'tanh' }))
  }
}

/** Patches of a unit side by side, then two layers. The last merger normalises patches, those of deepstack whole units. */
class Merger extends Module {
  readonly norm: LayerNorm
  readonly linear_fc1: Linear
  readonly linear_fc2: Linear
  readonly #wide: number
  readonly #normsUnits: boolean

  constructor(cfg: QwenVisionConfig, normsUnits: boolean) {
    super()
    this.#wide = cfg.hidden_size * cfg.spatial_merge_size ** 2
    this.#normsUnits = normsUnits
    this.norm = new LayerNorm(normsUnits ? this.#wide : cfg.hidden_size, eps)
    this.linear_fc1 = new Linear(this.#wide, this.#wide)
    this.linear_fc2 = new Linear(this.#wide, cfg.out_hidden_size)
  }

  /** [P, h] -> [U, out] */
  forward(x: Tensor): Tensor {
    const units = (t: Tensor) => t.view([-1, this.#wide])
    const normed = this.#normsUnits ? this.norm.forward(units(x)) : units(this.norm.forward(x))
    return this.linear_fc2.forward(this.linear_fc1.forward(normed).gelu())
  }
}

export class Qwen3Vision extends Module {
  readonly patch_embed: PatchEmbed
  readonly pos_embed: Embedding
  readonly blocks: VisionBlock[]
  readonly merger: Merger
  readonly deepstack_merger_list: Merger[]
  readonly #cfg: QwenVisionConfig
  readonly #rope: Rope

  constructor(cfg: QwenVisionConfig) {
    super()
    const norm = () => new LayerNorm(cfg.hidden_size, eps)
    this.patch_embed = new PatchEmbed(cfg, { bias: true })
    this.pos_embed = new Embedding(cfg.num_position_embeddings, cfg.hidden_size)
    this.blocks = Array.from({ length: cfg.depth }, () => new VisionBlock(cfg, norm, new FeedForward(cfg)))
    this.merger = new Merger(cfg, false)
    this.deepstack_merger_list = cfg.deepstack_visual_indexes.map(() => new Merger(cfg, true))
    this.#cfg = cfg
    this.#rope = new Rope(cfg.hidden_size / cfg.num_heads / 2, 10000)
  }

  /** Patches of some images [P, 3 * frames * p * p] -> their tokens, unit by unit. */
  forward(patches: Tensor, grids: readonly Grid[], watch?: Watch): VisionOutput {
    return tidy(() => {
      const orders = grids.map((grid) => patchOrder(grid, this.#cfg.spatial_merge_size))
      const rope = patchRotation(this.#rope, orders.flat(), patches.device)
      const everywhere = segmentsOf(
        orders.map((order) => order.length),
        patches.device,
      )
      const deepstack: Tensor[] = []
      const places = new Map<string, Tensor>() // images of one size share them
      const placesOf = (grid: Grid) => {
        const key = `${grid.rows} ${grid.columns}`
        const found = places.get(key) ?? this.positions(grid)
        places.set(key, found)
        return found
      }
      let x = this.patch_embed.forward(patches).add(cat(grids.map(placesOf)))
      this.blocks.forEach((block, i) => {
        x = block.forward(x, rope, everywhere)
        watch?.(`block${i}`, x)
        const j = this.#cfg.deepstack_visual_indexes.indexOf(i)
        if (j >= 0) deepstack[j] = this.deepstack_merger_list[j]!.forward(x)
      })
      return { tokens: this.merger.forward(x), deepstack }
    })
  }

  /** The square of positions resampled to the grid, [P, h] in the order of the patches. */
  positions(grid: Grid): Tensor {
    const table = this.pos_embed.weight
    const { rows, columns, weights } = positionSamples(grid, this.#cfg)
    const side = Math.sqrt(this.#cfg.num_position_embeddings)
    return tidy(() => {
      const corners = weights.map((share, corner) => {
        const index = Int32Array.from(rows[corner >> 1]!, (row, p) => row * side + columns[corner & 1]![p]!)
        const shares = tensor(share, [share.length, 1], { device: table.device }).to(table.dtype)
        return this.pos_embed.forward(indices(index, table.device)).mul(shares)
      })
      return corners.reduce((sum, corner) => sum.add(corner))
    })
  }
}

/** For every patch: the rows and columns of the square around it (lower, upper), and the shares of the four corners. */
function positionSamples(grid: Grid, cfg: QwenVisionConfig) {
  const last = Math.sqrt(cfg.num_position_embeddings) - 1
  const [down, across] = [spread(grid.rows, last), spread(grid.columns, last)]
  const order = patchOrder(grid, cfg.spatial_merge_size)
  const lower = (at: Float32Array, axis: 0 | 1) => Int32Array.from(order, (place) => Math.floor(at[place[axis]]!))
  const upper = (low: Int32Array) => low.map((n) => Math.min(n + 1, last))
  const part = (at: Float32Array, low: Int32Array, axis: 0 | 1) =>
    Float32Array.from(order, (place, p) => at[place[axis]]! - low[p]!)
  const [top, left] = [lower(down, 0), lower(across, 1)]
  const [dy, dx] = [part(down, top, 0), part(across, left, 1)]
  const share = (of: (y: number, x: number) => number) => dy.map((y, p) => of(y, dx[p]!))
  const rest = (t: number) => Math.fround(1 - t)
  return {
    rows: [top, upper(top)],
    columns: [left, upper(left)],
    weights: [
      share((y, x) => rest(y) * rest(x)),
      share((y, x) => rest(y) * x),
      share((y, x) => y * rest(x)),
      share((y, x) => y * x),
    ],
  }
}

/** torch.linspace(0, last, count) in float32: from both ends to the middle. */
function spread(count: number, last: number): Float32Array {
  const step = count > 1 ? Math.fround(last / (count - 1)) : 0
  return Float32Array.from({ length: count }, (_, i) => (i < count / 2 ? i * step : last - (count - 1 - i) * step))
}
