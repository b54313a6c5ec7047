// Rotary position embedding, half-split form: the first and second half of a head rotate against each other.
import { arange, cat, keep, noGrad, type Tensor, tidy } from '../tensor/index.ts'

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

export class Rope {
  readonly #dim: number
  readonly #theta: number
  readonly #frequencies = new Map<string, Tensor>()

  constructor(dim: number, theta: number) {
    this.#dim = dim
    this.#theta = theta
  }

  /** Tables for integer positions of any shape, in float32 inside, cast to `like`'s dtype. */
  table(positions: Tensor, like: Tensor): RopeTable {
    return noGrad(() =>
      tidy(() => {
        const angles = positions.to('float32').unsqueeze(-1).mul(this.#frequency(positions.device)) // [.., D/2]
        const both = cat([angles, angles], { dim: -1 })
        return { cos: both.cos().to(like.dtype), sin: both.sin().to(like.dtype) }
      }),
    )
  }

  #frequency(device: string): Tensor {
    let f = this.#frequencies.get(device)
    if (!f) {
      f = keep(tidy(() => inverseFrequencies(this.#dim, this.#theta, device)))
      this.#frequencies.set(device, f)
    }
    return f
  }
}

/** x [B, H, T, D], tables [B or 1, 1, T, D]. */
export function rotate(x: Tensor, { cos, sin }: RopeTable): Tensor {
  const [a, b] = x.chunk(2, { dim: -1 }) as [Tensor, Tensor]
  return x.mul(cos).add(cat([b.neg(), a], { dim: -1 }).mul(sin))
}
