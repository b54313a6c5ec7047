import { stream, streamId } from '../core/index.ts'
import { type DType, tensor } from '../tensor/index.ts'
import { type Module, replaceTensor, tensorAt } from './module.ts'

interface InitOptions {
  seed: number
  /** Standard deviation of the matrices instead of the rule. */
  std?: number
  dtype?: DType
  device?: string
}

/**
 * Fills every weight from counter-based streams keyed by its name. Matrices: N(0, 1 / fan-in), so that activations of a narrow model
 * have unit variance. Embeddings and position tables: N(0, 1/4). Norms: 1. Biases: 0.
 */
export function initRandom(model: Module, options: InitOptions): void {
  for (const slot of model.slots()) {
    const { shape } = tensorAt(slot)
    const data = new Float32Array(shape.reduce((a, b) => a * b, 1))
    fill(data, slot.name, shape, options)
    replaceTensor(slot, tensor(data, shape, { dtype: options.dtype ?? 'float32', device: options.device }))
  }
}

const scales =
  /norm\d?\.weight$|\.ln_q\.weight$|norm_final_attn\.weight$|layernorm\.weight$|\.ls[12]$|^mlp1\.0\.weight$|(upscaling|downscaling)\.[14]\.weight$/
const tables = /embed|_token|pos_embed|embeddings\.\d/

function fill(data: Float32Array, name: string, shape: readonly number[], { seed, std }: InitOptions): void {
  if (scales.test(name)) data.fill(1)
  else if (shape.length > 1) {
    const random = stream(seed, streamId.init, name)
    const spread = deviation(name, shape, std)
    for (let i = 0; i < data.length; i++) data[i] = random.normalAt(i) * spread
  }
}

function deviation(name: string, shape: readonly number[], std: number | undefined): number {
  if (/gaussian_matrix/.test(name)) return 1
  if (std !== undefined) return std
  if (tables.test(name) && !/patch_embed/.test(name)) return 0.5
  const fanIn = shape.slice(1).reduce((a, b) => a * b, 1)
  return 1 / Math.sqrt(fanIn)
}
