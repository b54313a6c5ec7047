// A checkpoint of a training run put on top of the model it started from: whole weights take the places of the old ones, adapters
// are merged. Such a file holds what trained and nothing else.
import { Mismatch } from '../core/index.ts'
import { type Module, replaceTensor, requireExact, type Slot, tensorAt } from '../nn/index.ts'
import { noGrad, type Tensor, tidy } from '../tensor/index.ts'
import { showShape } from './dtype.ts'
import { storedTensor } from './load.ts'
import { type Factors, productOf, releasedLoraScale, trainingNames } from './unmerged.ts'
import { openWeights, type WeightFolder } from './weights.ts'

/**
 * Gives the numbers of weights that were put in place, and of layers whose adapters were merged. `isUnused`: names the model leaves
 * unread, such as those of video. Any other name must be the model's.
 */
export function placeTrainingCheckpoint(
  model: Module,
  file: string,
  isUnused: (name: string) => boolean = () => false,
  scale = releasedLoraScale,
): { weights: number; adapters: number } {
  const folder = openWeights(file)
  const slots = new Map(model.slots().map((slot) => [slot.name, slot]))
  const { weights, factors } = trainingNames(folder.names, (name) => slots.has(name) || isUnused(name), file)
  const used = [...weights].filter(([name]) => !isUnused(name))
  for (const name of [...used.map(([n]) => n), ...factors.keys()])
    if (!slots.has(name))
      throw new Mismatch({ where: file, field: name, expected: 'a weight of the model', got: 'none of that name' })
  noGrad(() => {
    for (const [name, stored] of used) place(slots.get(name)!, folder, stored)
    for (const [name, pair] of factors) merge(slots.get(name)!, folder, pair, scale)
  })
  return { weights: used.length, adapters: factors.size }
}

function place(slot: Slot, folder: WeightFolder, stored: string): void {
  const { dtype, device, shape } = tensorAt(slot)
  requireShape(slot, folder, folder.entry(stored).shape, shape)
  replaceTensor(
    slot,
    tidy(() => storedTensor(folder, stored).to(dtype).to(device)),
  )
}

function merge(slot: Slot, folder: WeightFolder, pair: Factors, scale: number): void {
  const old: Tensor = tensorAt(slot)
  const [out, inner] = [folder.entry(pair.b).shape[0]!, folder.entry(pair.a).shape[1]!]
  requireShape(slot, folder, [out, inner], old.shape)
  replaceTensor(
    slot,
    tidy(() => old.to('float32').add(productOf(folder, pair).to(old.device), { alpha: scale }).to(old.dtype)),
  )
}

function requireShape(slot: Slot, folder: WeightFolder, got: readonly number[], expected: readonly number[]): void {
  requireExact(tensorAt(slot), folder.path, slot.name)
  if (got.join() === expected.join()) return
  const hint = 'is this the model the run started from?'
  throw new Mismatch({ where: folder.path, field: slot.name, expected: showShape(expected), got: showShape(got), hint })
}
