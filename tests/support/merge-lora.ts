// Merges adapters into the weights of a model permanently, to compare with models that were exported.
import { type Linear, linears, type Module, mergedWeight } from '../../src/nn/index.ts'
import { keep } from '../../src/tensor/index.ts'

/** Puts the merged weights in place. The adapters are removed. */
export function mergeLora(model: Module): number {
  const withAdapter = linears(model).filter(([, l]) => l.lora_A)
  for (const [, linear] of withAdapter) {
    const merged = mergedWeight(linear)
    linear.weight.dispose()
    linear.weight = keep(merged)
    removeAdapter(linear)
  }
  return withAdapter.length
}

function removeAdapter(linear: Linear): void {
  linear.lora_A?.weight.dispose()
  linear.lora_B?.weight.dispose()
  delete linear.lora_A
  delete linear.lora_B
  linear.setAdapter(undefined)
}
