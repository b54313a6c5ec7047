// Points, boxes and masks as embeddings. A point is the sine and cosine of random frequencies of its place, plus a vector of its
// label. Unusual: every list of points ends with one "not a point"; a prompt without points has two of them.
// B prompts, N points, D = d_model, e = cells per side of the image embedding.
import { Conv2d, cast, LayerNorm2d, Module, WeightOnly, weight } from '../../nn/index.ts'
import { arange, cat, stack, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { embeddingSize, type Sam2Config } from './config.ts'
import { autocastOf, wide } from './precision.ts'
import { batchOf, checkTensors, type PointList, pointLabels, pointList, type Sam2Prompt } from './prompt.ts'

class RandomPositions extends Module {
  positional_encoding_gaussian_matrix: Tensor // [2, D/2]

  constructor(dim: number) {
    super()
    this.positional_encoding_gaussian_matrix = weight(2, dim / 2)
  }

  /** Places [.., 2], x first, as shares of the image's width and height, to [.., D]. */
  forward(places: Tensor): Tensor {
    const frequencies = cast(this.positional_encoding_gaussian_matrix, places)
    const products = places.mul(2).sub(1).matmul(frequencies)
    return codes(products.mul(2 * Math.PI))
  }

  /** The same with every result rounded to bfloat16; each step computes in float32, as it does on CUDA. */
  rounded(places: Tensor): Tensor {
    const inside = places.mul(2).sub(1).to('bfloat16')
    const product = wide(inside).matmul(wide(this.positional_encoding_gaussian_matrix))
    const angles = wide(product.to('bfloat16')).mul(2 * Math.PI)
    return codes(wide(angles.to('bfloat16'))).to('bfloat16')
  }
}

function codes(angles: Tensor): Tensor {
  return cat([angles.sin(), angles.cos()], { dim: -1 })
}

export interface PromptEmbedding {
  /** Tokens [B, n, D]. */
  sparse: Tensor
  /** Added to the image embedding: [B, D, e, e], or [1, D, 1, 1] without a mask. */
  dense: Tensor
}

export class PromptEncoder extends Module {
  readonly pe_layer: RandomPositions
  readonly point_embeddings: WeightOnly[] // by label 0 .. 3
  readonly not_a_point_embed: WeightOnly
  readonly no_mask_embed: WeightOnly
  readonly mask_downscaling: [Conv2d, LayerNorm2d, null, Conv2d, LayerNorm2d, null, Conv2d]
  readonly #cfg: Sam2Config

  constructor(cfg: Sam2Config) {
    super()
    const { d_model: dim, mask_in_chans: channels } = cfg
    this.pe_layer = new RandomPositions(dim)
    this.point_embeddings = [0, 1, 2, 3].map(() => new WeightOnly(1, dim))
    this.not_a_point_embed = new WeightOnly(1, dim)
    this.no_mask_embed = new WeightOnly(1, dim)
    this.mask_downscaling = [
      new Conv2d(1, channels / 4, 2, { stride: 2 }),
      new LayerNorm2d(channels / 4),
      null,
      new Conv2d(channels / 4, channels, 2, { stride: 2 }),
      new LayerNorm2d(channels),
      null,
      new Conv2d(channels, dim, 1),
    ]
    this.#cfg = cfg
  }

  /** In the dtype and on the device of `like`, the image embedding. */
  forward(prompt: Sam2Prompt, like: Tensor): PromptEmbedding {
    return tidy(() => {
      const batch = batchOf(prompt)
      checkTensors(prompt, this.#cfg)
      const points = this.#points(pointList(prompt) ?? nowhere(batch), like.device) // [B, N + 1, D]
      const tokens = prompt.language ? [points, cast(prompt.language, points)] : [points]
      return { sparse: cast(cat(tokens, { dim: 1 }), like), dense: cast(this.embedMask(prompt.maskInput), like) }
    })
  }

  /** The place of every cell of the image embedding [1, D, e, e], in float32 or wider; the reference rounds every step. */
  densePositions(): Tensor {
    return tidy(() => {
      const e = embeddingSize(this.#cfg)
      const matrix = wide(this.pe_layer.positional_encoding_gaussian_matrix)
      const axis = arange(0, e, { dtype: matrix.dtype, device: matrix.device }).add(0.5).div(e) // [e]
      const x = axis.view([1, e]).expand([e, e])
      const y = axis.view([e, 1]).expand([e, e])
      const places = stack([x, y], { dim: -1 })
      const placed = autocastOf(this.#cfg).isReference ? this.pe_layer.rounded(places) : this.pe_layer.forward(places)
      return placed.permute([2, 0, 1]).unsqueeze(0)
    })
  }

  /** [B, N + 1, D]: the points and the closing "not a point". */
  #points(list: PointList, device: string): Tensor {
    const { batch, count } = list
    const coords = tensor(list.coords, [batch, count, 2], { device })
    const labels = tensor(list.labels, [batch, count], { dtype: 'int64', device })
    const closing = [coords.mul(0), labels.mul(0).sub(1)].map((t) => t.narrow(1, 0, 1)) as [Tensor, Tensor]
    return this.embedPoints(cat([coords, closing[0]], { dim: 1 }), cat([labels, closing[1]], { dim: 1 }))
  }

  /** Points [B, n, 2] in the frame of the input with labels [B, n] to tokens [B, n, D]; label -1 has no place. */
  embedPoints(coords: Tensor, labels: Tensor): Tensor {
    const table = this.#labelTable() // [5, D]
    const places = coords.to(table.dtype).add(0.5).div(this.#cfg.image_size)
    const isPoint = labels.ge(0).unsqueeze(-1).to(table.dtype)
    const added = table.indexSelect(0, labels.add(1).flatten()).view([...labels.shape, table.size(1)])
    return this.pe_layer.forward(places).mul(isPoint).add(added)
  }

  /** Vectors of the labels -1, 0 .. 3. */
  #labelTable(): Tensor {
    const rows = [this.not_a_point_embed, ...this.point_embeddings].map((m) => m.weight)
    return wide(cat(rows, { dim: 0 }))
  }

  /** Logits of an earlier mask [B, 1, 4e, 4e] to [B, D, e, e]; without one [1, D, 1, 1]. */
  embedMask(maskInput: Tensor | undefined): Tensor {
    if (!maskInput) return this.no_mask_embed.weight.view([1, -1, 1, 1])
    const [first, norm, , second, norm2, , last] = this.mask_downscaling
    const half = norm.forward(first.forward(wide(maskInput))).gelu() // [B, c/4, 2e, 2e]
    return last.forward(norm2.forward(second.forward(half)).gelu()) // [B, D, e, e]
  }
}

/** A prompt without points: one of the label "none" in every row. */
function nowhere(batch: number): PointList {
  const labels = new Int32Array(batch).fill(pointLabels.none)
  return { batch, count: 1, coords: new Float32Array(2 * batch), labels }
}
