// Weights under the names they have while training: inside PEFT's wrappers (base_layer, lora_A, modules_to_save) and below the
// trainer's own prefix (`mllm.`). They are shown under the names of a released folder, adapters merged.
import { Mismatch } from '../core/index.ts'
import { type Tensor, tidy } from '../tensor/index.ts'
import { bytesOf, storedTensor } from './load.ts'
import { folderOf, type StoredTensor, type WeightFolder } from './weights.ts'

/** alpha / r of every released recipe, and of the wrapper's `use_llm_lora`; the files do not hold it. */
export const releasedLoraScale = 2

export interface Factors {
  a: string
  b: string
}

/** Where the tensors of a folder belong. */
interface TrainingNames {
  /** Released name -> stored name. */
  weights: Map<string, string>
  /** Released name of the layer's weight -> stored names of its factors. */
  factors: Map<string, Factors>
  /** Copies PEFT keeps of modules it trains whole. */
  spare: string[]
  /** Whether any name differs from the released one. */
  isTraining: boolean
}

const factorName = /^(.*)\.lora_([AB])(?:\.[^.]+)?\.weight$/

/** `isKnown`: whether the model, or the part of a checkpoint it leaves unread, has a name. */
export function trainingNames(
  names: readonly string[],
  isKnown: (name: string) => boolean,
  where: string,
): TrainingNames {
  const out: TrainingNames = { weights: new Map(), factors: new Map(), spare: [], isTraining: false }
  const halves = new Map<string, Partial<Factors>>()
  for (const stored of names) {
    if (/\.original_module\./.test(stored)) {
      out.spare.push(stored)
      continue
    }
    const factor = factorName.exec(stored)
    if (factor) {
      const layer = released(`${factor[1]}.weight`, isKnown)
      halves.set(layer, { ...halves.get(layer), [factor[2] === 'A' ? 'a' : 'b']: stored })
      continue
    }
    const name = released(stored, isKnown)
    const other = out.weights.get(name)
    if (other !== undefined) throw new Mismatch({ where, field: name, expected: 'one tensor', got: [other, stored] })
    out.weights.set(name, stored)
  }
  for (const [layer, { a, b }] of halves) {
    if (!a || !b) throw new Mismatch({ where, field: layer, expected: 'lora_A and lora_B', got: a ?? b ?? 'neither' })
    out.factors.set(layer, { a, b })
  }
  out.isTraining = halves.size > 0 || out.spare.length > 0 || [...out.weights].some(([name, stored]) => name !== stored)
  return out
}

/** The name without wrappers, under the prefix that the model knows; as it is where it knows none. */
function released(name: string, isKnown: (name: string) => boolean): string {
  const inner = name
    .replace(/(^|\.)base_model\.model\./, '$1')
    .replace(/\.base_layer\./, '.')
    .replace(/\.modules_to_save\.[^.]+\./, '.')
  const candidates = [inner, inner.replace(/^mllm\.model\./, ''), inner.replace(/^mllm\./, '')]
  return candidates.flatMap((c) => [c.replace(/\.gamma$/, '.g_weight'), c]).find(isKnown) ?? inner
}

/** The folder under released names, adapters merged in float32 when a tensor is read; the folder itself if nothing differs. */
export function mergedFolder(folder: WeightFolder, isKnown: (name: string) => boolean, scale: number): WeightFolder {
  const { weights, factors, isTraining } = trainingNames(folder.names, isKnown, folder.path)
  if (!isTraining) return folder
  const lost = [...factors.keys()].find((layer) => !weights.has(layer))
  if (lost !== undefined) {
    const hint = 'a checkpoint of the trained weights is loaded on top of its model: --adapter FILE'
    const expected = 'the weight its adapter belongs to'
    throw new Mismatch({ where: folder.path, field: lost, expected, got: 'none', hint })
  }
  const tensors = Array.from(weights, ([name, stored]): [string, StoredTensor] => {
    const [entry, pair] = [folder.entry(stored), factors.get(name)]
    if (!pair) return [name, { entry, read: () => folder.read(stored) }]
    return [name, { entry: { ...entry, mappable: false }, read: () => mergedBytes(folder, stored, pair, scale) }]
  })
  return folderOf(folder.path, folder.files, new Map(tensors))
}

function mergedBytes(folder: WeightFolder, base: string, { a, b }: Factors, scale: number): Uint8Array {
  return tidy(() => {
    const weight = storedTensor(folder, base)
    const delta = productOf(folder, { a, b })
    return bytesOf(weight.to('float32').add(delta, { alpha: scale }).to(weight.dtype).contiguous())
  })
}

/** B A in float32: what an adapter adds to its layer, before the scale. */
export function productOf(folder: WeightFolder, { a, b }: Factors): Tensor {
  return storedTensor(folder, b).to('float32').matmul(storedTensor(folder, a).to('float32'))
}
