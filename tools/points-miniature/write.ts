import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { writeWeights } from '../../src/checkpoint/index.ts'
import type { LoadedQwenVL } from '../../src/models/index.ts'
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

export function writePolicy(loaded: LoadedQwenVL, folder: string): void {
  writeModule(loaded.model, folder)
  for (const file of ['config.json', 'tokenizer.json', 'preprocessor_config.json'])
    copyFileSync(join(loaded.dir, file), join(folder, file))
}
