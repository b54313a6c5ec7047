// LoRA with PEFT's meaning: y = W x + b + (alpha / r) B(A(dropout(x))); A Kaiming-uniform, B zero.
import { Mismatch, stream, streamId } from '../core/index.ts'
import {
  aten,
  CudaGraph,
  keep,
  LentMemory,
  noGrad,
  type Tensor,
  tidy,
  tidyNoGrad,
  uniformTensor,
  zeros,
} from '../tensor/index.ts'
import { type AdapterState, Linear } from './layers.ts'
import { Module } from './module.ts'
import { inParts, type Pack, packsOf, shapeOfPack } from './packs.ts'
import { dequantize, isQuantized, widenInto } from './quantized.ts'
import { wide } from './sampling.ts'

/** One factor, stored as `lora_A.weight` or `lora_B.weight`. */
export class Adapter extends Module {
  weight: Tensor

  constructor(weight: Tensor) {
    super()
    this.weight = keep(weight)
  }
}

interface LoraOptions {
  rank: number
  alpha: number
  dropout?: number
  seed: number
}

/** Every Linear below `node` with its path. */
export function linears(node: Module, prefix = ''): [string, Linear][] {
  const out: [string, Linear][] = []
  const visit = (value: unknown, path: string) => {
    if (value instanceof Linear) out.push([path, value])
    else if (value instanceof Module || Array.isArray(value)) {
      for (const [key, child] of Object.entries(value)) visit(child, path === '' ? key : `${path}.${key}`)
    }
  }
  visit(node, prefix)
  return out
}

/** Adds adapters to the linears whose path `targets` accepts; returns the shared switch. */
export function addLora(model: Module, targets: (path: string) => boolean, options: LoraOptions): AdapterState {
  const chosen = linears(model).filter(([path]) => targets(path))
  if (chosen.length === 0)
    throw new Mismatch({ where: 'lora', field: 'targets', expected: 'at least one linear layer', got: 'no match' })
  const { rank, alpha } = options
  const state: AdapterState = { rank, alpha, scale: alpha / rank, dropout: options.dropout ?? 0, enabled: true }
  for (const [path, linear] of chosen) {
    const { inFeatures: input, weight } = linear
    const { device } = weight
    const dtype = weight.dtype === 'float64' ? 'float64' : 'float32' // masters, as other trainable weights
    const random = stream(options.seed, streamId.init, path) // counter-based: the same on every device and machine
    linear.lora_A = new Adapter(
      tidy(() => uniformTensor(random, [rank, input], 1 / Math.sqrt(input), device).to(dtype)),
    )
    linear.lora_B = new Adapter(zeros([weight.size(0), rank], { device, dtype }))
    linear.setAdapter(state)
  }
  return state
}

const takesPart = (linear: Linear) => linear.lora_A !== undefined && linear.adapter?.enabled === true
const isMerged = (linear: Linear) => takesPart(linear) || isQuantized(linear.weight)

const plainWeight = ({ weight, weight_scale, inFeatures }: Linear): Tensor =>
  isQuantized(weight) ? dequantize({ numbers: weight, scale: weight_scale! }, inFeatures) : weight.detach()

/** W + (alpha / r) B A of a layer, in float32, rounded once to the dtype of W; W itself if no adapter takes part. A new tensor of the current scope. */
export function mergedWeight(linear: Linear): Tensor {
  const { lora_A, lora_B, adapter } = linear
  return tidyNoGrad(() => {
    const weight = plainWeight(linear)
    if (!takesPart(linear)) return weight.alias()
    return wide(weight).add(lora_B!.weight.matmul(lora_A!.weight).mul(adapter!.scale)).to(weight.dtype)
  })
}

/**
 * Runs `fn` while the adapters that take part are merged into copies of the weights they adapt: one product a layer instead of three.
 * Quantized weights are dequantized into such copies, with or without adapters. The copies are of the current values, in whatever role,
 * and freed at the end, unless `places` keeps room for them. No gradient is recorded.
 */
export function withMergedLora<R>(model: Module, fn: () => R, places?: MergedWeights): R {
  const adapted = places?.linears(model) ?? linears(model).flatMap(([, linear]) => (isMerged(linear) ? [linear] : []))
  const own = adapted.map((linear) => linear.weight)
  const states = new Set(adapted.flatMap((linear) => (takesPart(linear) ? [linear.adapter!] : [])))
  const merged: Tensor[] = []
  try {
    if (places) places.fill(adapted)
    else for (const linear of adapted) merged.push(keep(mergedWeight(linear)))
    adapted.forEach((linear, i) => {
      linear.weight = places ? places.of(linear) : merged[i]!
    })
    for (const state of states) state.enabled = false
    return noGrad(fn)
  } finally {
    for (const state of states) state.enabled = true
    adapted.forEach((linear, i) => {
      linear.weight = own[i]!
    })
    for (const t of merged) t.dispose()
  }
}

/** Roles whose merging stays recorded: policy, EMA copy, and one more. */
const maxRecordings = 3

const factorsOf = ({ lora_A, lora_B, adapter }: Linear) =>
  `${lora_A!.weight.handle} ${lora_B!.weight.handle} ${adapter!.scale}`

/**
 * Buffers for merged weights, reused so that captured graphs stay valid. Those of a pack lie together. All of them are one memory, which
 * is lent to others while nobody samples.
 */
export class MergedWeights {
  readonly #places = new Map<Linear, Tensor>()
  readonly #memory: LentMemory[] = []
  /** What a model has: walking through it takes milliseconds. */
  readonly #layers = new WeakMap<Module, { all: readonly Linear[]; packs: readonly Pack[] }>()
  /** By the tensors they read. */
  readonly #recordings = new Map<string, CudaGraph>()

  /** What is merged or lies in a pack with something merged, with places for all of it. */
  linears(model: Module): Linear[] {
    const found = this.#layers.get(model) ?? { all: linears(model).map(([, linear]) => linear), packs: packsOf(model) }
    this.#layers.set(model, found)
    const taken = new Set(found.all.filter(isMerged))
    const packs = found.packs.filter((pack) => pack.some((linear) => taken.has(linear)))
    for (const linear of packs.flat()) taken.delete(linear)
    const all = [...packs, ...[...taken].map((linear) => [linear])]
    this.#makePlaces(all.filter(([first]) => !this.#places.has(first!)))
    return all.flat()
  }

  #makePlaces(packs: readonly Pack[]): void {
    if (packs.length === 0) return
    const { weight, weight_scale } = packs[0]![0]!
    const { dtype, device } = weight_scale ?? weight
    const memory = new LentMemory(packs.map(shapeOfPack), { dtype, device })
    this.#memory.push(memory)
    const room = memory.lend()!
    for (const pack of packs)
      for (const [i, place] of inParts(pack, () => room.take(shapeOfPack(pack))).entries())
        this.#places.set(pack[i]!, place)
    room.end()
  }

  /** The merged weights as they are now, in their places. On CUDA a role's products are recorded: its tensors stay where they are. */
  fill(linears: readonly Linear[]): void {
    for (const memory of this.#memory) memory.reclaim()
    const merge = () => {
      for (const linear of linears) tidy(() => void mergeInto(this.of(linear), linear))
    }
    const device = linears[0]?.weight.device
    noGrad(() => (device?.startsWith('cuda') ? this.#recorded(linears, merge, device).replay() : merge()))
  }

  /** The place of a merged weight. */
  of(linear: Linear): Tensor {
    return this.#places.get(linear)!
  }

  #recorded(linears: readonly Linear[], merge: () => void, device: string): CudaGraph {
    const key = linears.map((l) => `${l.weight.handle} ${takesPart(l) ? factorsOf(l) : ''}`).join()
    const known = this.#recordings.get(key)
    if (known) return known
    while (this.#recordings.size >= maxRecordings) this.#forget(this.#recordings.keys().next().value!)
    const { graph } = CudaGraph.capture(merge as () => unknown, { device, warmups: 1 })
    this.#recordings.set(key, graph)
    return graph
  }

  #forget(key: string): void {
    this.#recordings.get(key)!.dispose()
    this.#recordings.delete(key)
  }

  dispose(): void {
    for (const key of [...this.#recordings.keys()]) this.#forget(key)
    for (const t of this.#places.values()) t.dispose()
    this.#places.clear()
    for (const memory of this.#memory.splice(0)) memory.dispose()
  }
}

/** In bfloat16 the factors are rounded as `forward` rounds them, and one product adds them in float32: a tenth of the memory traffic. */
function mergeInto(place: Tensor, linear: Linear): void {
  if (isQuantized(linear.weight) && widenMerged(place, linear)) return
  if (!takesPart(linear) || place.dtype !== 'bfloat16') place.copy_(mergedWeight(linear))
  else {
    const [a, b] = [linear.lora_A!.weight.to('bfloat16'), linear.lora_B!.weight.to('bfloat16')]
    aten('addmm.out', plainWeight(linear), b, a, { alpha: linear.adapter!.scale, out: place })
  }
}

/** By one kernel, which rounds once; false if it does not cover the layer. */
function widenMerged(place: Tensor, linear: Linear): boolean {
  const { weight: numbers, weight_scale, lora_A, lora_B, adapter } = linear
  const { dtype } = place
  const low = () => ({ factors: lora_B!.weight.to(dtype), inputs: lora_A!.weight.mul(adapter!.scale).to(dtype) })
  return widenInto(place, { numbers, scale: weight_scale! }, takesPart(linear) ? low() : null)
}
