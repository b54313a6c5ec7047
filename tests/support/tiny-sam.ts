// A MobileSAM of a few thousand weights in every layer of the released one, for tests: random weights, inputs of 64 x 64.
import { initRandom } from '../../src/nn/index.ts'
import { exportSam, SamConfig, SamModel } from '../../src/sam/index.ts'
import { noGrad, tidy } from '../../src/tensor/index.ts'

export const tinySamConfig = SamConfig.parse({
  image_size: 64,
  embed_dims: [8, 8, 16, 16],
  depths: [1, 1, 1, 1],
  num_heads: [1, 1, 2, 2],
  window_sizes: [2, 2, 2, 2],
  d_model: 16,
  decoder_heads: 2,
  decoder_mlp_dim: 32,
})

export function tinySam(seed = 1): SamModel {
  const model = new SamModel(tinySamConfig)
  initRandom(model, { seed })
  const [, first, , last] = model.image_encoder.neck // norms under names that initRandom does not know
  for (const norm of [first, last]) noGrad(() => tidy(() => void norm.weight.fill_(1)))
  return model
}

/** The folder of such a model. */
export function writeTinySam(dir: string, seed = 1): string {
  const model = tinySam(seed)
  exportSam(model, dir)
  for (const t of model.parameters().values()) t.dispose()
  return dir
}
