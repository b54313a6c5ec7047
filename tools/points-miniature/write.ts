import { writeWeights } from '../../src/checkpoint/index.ts'
import { type Module, tensorAt } from '../../src/nn/index.ts'
import { tidy } from '../../src/tensor/index.ts'

/** All weights of a module in float32, as model.safetensors. */
export function writeModule(model: Module, dir: string): void {
  const entries = model.slots().map((slot) => {
    const data = () => {
      const array = tidy(() => tensorAt(slot).detach().to('float32').contiguous().array())
      return new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
    }
    return { name: slot.name, dtype: 'F32' as const, shape: tensorAt(slot).shape, data }
  })
  writeWeights(dir, entries)
}
