// Rotary position embedding, half-split form: the first and second half of a head rotate against each other.
import { arange, cat, type DType, keep, type Tensor, tensor, tidy, tidyNoGrad } from '../tensor/index.ts'

export interface RopeTable {
  cos: Tensor // [.., D]
  sin: Tensor // [.., D]
}

/** 1 / theta^(2k/D) in float32: power, then reciprocal; a negative power differs in the last bits. */
function inverseFrequencies(dim: number, theta: number, device: string): Tensor {
  const exponents = arange(0, dim, { step: 2, dtype: 'int64', device }).to('float32').div(dim)
  const base = exponents.mul(0).add(theta)
  return base.pow(exponents).reciprocal() // [D/2]
}

/** Shared by every model of the process that rotates alike: as many as there are head sizes, bases and devices. */
const frequencies = new Map<string, Tensor>()

export class Rope {
  readonly #dim: number
  readonly #theta: number
  readonly #sections: readonly number[]
  readonly #interleaved: boolean

  /**
   * `sections`: how many of the D/2 frequencies follow each axis, if positions have several (time, row, column). They are one block
   * per axis (Qwen2.5-VL), or interleaved one by one (Qwen3-VL).
   */
  constructor(dim: number, theta: number, sections: readonly number[] = [], interleaved = false) {
    this.#dim = dim
    this.#theta = theta
    this.#sections = sections
    this.#interleaved = interleaved
  }

  /** Tables for integer positions [B, T], or [axes, B, T] where they have several; float32 inside, cast to `like`'s dtype. */
  table(positions: Tensor, like: { dtype: DType }): RopeTable {
    return tidyNoGrad(() => {
      const angles = this.angles(positions) // [.., D/2]
      return tableOf(positions.ndim === 3 ? this.#bySection(angles) : angles, like)
    })
  }

  /** Positions times frequencies, float32: [..] -> [.., D/2]. */
  angles(positions: Tensor): Tensor {
    return positions.to('float32').unsqueeze(-1).mul(this.#frequency(positions.device))
  }

  #bySection(angles: Tensor): Tensor {
    if (this.#interleaved) return this.#byTurns(angles)
    const pieces = angles.split([...this.#sections], { dim: -1 })
    return cat(
      pieces.map((piece, axis) => piece.select(0, axis)),
      { dim: -1 },
    )
  }

  /** Frequency i follows axis i mod 3 while that axis has frequencies left, and time after that. */
  #byTurns(angles: Tensor): Tensor {
    const half = this.#dim / 2
    const axes = this.#sections.length
    const chosen = BigInt64Array.from({ length: half }, (_, i) => {
      const axis = i % axes
      return BigInt((i < this.#sections[axis]! * axes ? axis : 0) * half + i)
    })
    const side = cat(
      Array.from({ length: axes }, (_, axis) => angles.select(0, axis)),
      { dim: -1 },
    ) // [.., axes * D/2]
    return side.indexSelect(-1, tensor(chosen, { device: angles.device }))
  }

  #frequency(device: string): Tensor {
    const key = `${this.#dim} ${this.#theta} ${device}`
    let f = frequencies.get(key)
    if (!f?.alive) {
      f = keep(tidy(() => inverseFrequencies(this.#dim, this.#theta, device)))
      frequencies.set(key, f)
    }
    return f
  }
}

/** Angles [.., D/2] of the first half of a head serve the second half too. */
export function tableOf(angles: Tensor, like: { dtype: DType }): RopeTable {
  const both = cat([angles, angles], { dim: -1 })
  return { cos: both.cos().to(like.dtype), sin: both.sin().to(like.dtype) }
}

/** x [B, H, T, D], tables [B or 1, 1, T, D]. */
export function rotate(x: Tensor, { cos, sin }: RopeTable): Tensor {
  const [a, b] = x.chunk(2, { dim: -1 }) as [Tensor, Tensor]
  return x.mul(cos).add(cat([b.neg(), a], { dim: -1 }).mul(sin))
}
