import { stream, streamId } from '../core/index.ts'
import { type DType, tensor } from '../tensor/index.ts'
import { type Module, replaceTensor, tensorAt } from './module.ts'

/** Fills every weight from counter-based streams keyed by its name: matrices N(0, std), vectors by rule of the name. */
export function initRandom(
  model: Module,
  options: { seed: number; std: number; dtype?: DType; device?: string },
): void {
  for (const slot of model.slots()) {
    const { shape } = tensorAt(slot)
    const size = shape.reduce((a, b) => a * b, 1)
    const data = new Float32Array(size)
    fill(data, slot.name, shape, options)
    replaceTensor(slot, tensor(data, shape, { dtype: options.dtype ?? 'float32', device: options.device }))
  }
}

function fill(
  data: Float32Array,
  name: string,
  shape: readonly number[],
  options: { seed: number; std: number },
): void {
  if (
    /norm\d?\.weight$|norm_final_attn\.weight$|layernorm\.weight$|\.ls[12]$|^mlp1\.0\.weight$|upscaling\.1\.weight$/.test(
      name,
    )
  )
    data.fill(1)
  else if (shape.length > 1) {
    const random = stream(options.seed, streamId.init, name)
    const spread = /gaussian_matrix/.test(name) ? 1 : options.std
    for (let i = 0; i < data.length; i++) data[i] = random.normalAt(i) * spread
  }
}
