// Feature pyramid: one 1x1 convolution per level, the coarser map added to the finer one on the top-down levels only.
import { Conv2d, cast, Module } from '../../nn/index.ts'
import { type Tensor, tidy } from '../../tensor/index.ts'
import type { Sam2Config } from './config.ts'
import { Hiera } from './hiera.ts'
import { type Autocast, autocastOf, wide } from './precision.ts'

class Lateral extends Module {
  readonly conv: Conv2d

  constructor(inChannels: number, outChannels: number) {
    super()
    this.conv = new Conv2d(inChannels, outChannels, 1)
  }
}

export class FpnNeck extends Module {
  readonly convs: Lateral[] // coarsest level first
  readonly #topDown: readonly number[]
  readonly #autocast: Autocast

  constructor(cfg: Sam2Config) {
    super()
    this.convs = [3, 2, 1, 0].map((level) => new Lateral(cfg.embed_dim * 2 ** level, cfg.d_model))
    this.#topDown = cfg.fpn_top_down_levels
    this.#autocast = autocastOf(cfg)
  }

  /** The trunk's four maps, finest first, to the levels 0, 1, 2 [B, d_model, H, W]; level 3 only feeds level 2. */
  forward(maps: readonly Tensor[]): [Tensor, Tensor, Tensor] {
    const levels: Tensor[] = []
    for (let level = 3; level >= 0; level--) {
      const lateral = this.convs[3 - level]!.conv.forward(this.#autocast.narrow(maps[level]!))
      const above = levels[level + 1]
      levels[level] = above && this.#topDown.includes(level) ? lateral.add(this.#doubled(above, lateral)) : lateral
    }
    return [levels[0]!, levels[1]!, levels[2]!]
  }

  /** Each cell repeated 2x2; through float32, where the reference stays. */
  #doubled(map: Tensor, like: Tensor): Tensor {
    const [rows, columns] = [like.size(2), like.size(3)]
    const large = wide(map).upsampleNearest2d([rows, columns])
    return this.#autocast.isReference ? large : cast(large, like)
  }
}

export class ImageEncoder extends Module {
  readonly trunk: Hiera
  readonly neck: FpnNeck

  constructor(cfg: Sam2Config) {
    super()
    this.trunk = new Hiera(cfg)
    this.neck = new FpnNeck(cfg)
  }

  /** Pixels [B, 3, S, S] to levels 0, 1, 2: [B, d, S/4, S/4], [B, d, S/8, S/8], [B, d, S/16, S/16]. */
  forward(pixels: Tensor): [Tensor, Tensor, Tensor] {
    return tidy(() => this.neck.forward(this.trunk.forward(pixels)))
  }
}
