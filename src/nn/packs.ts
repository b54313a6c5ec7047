// Linears that read the same input, their weights one below the other in one tensor: one product serves them all.
import { assert } from '../core/index.ts'
import { aten, empty, keep, type Tensor, tidy, tidyNoGrad } from '../tensor/index.ts'
import { Linear } from './layers.ts'
import { Module } from './module.ts'

export type Pack = readonly Linear[]

/** A module whose linears can be packed says which. */
export interface Packing {
  packs(): readonly Pack[]
}

const isPacking = (node: Module): node is Module & Packing => 'packs' in node

/** Every pack below a module. */
export function packsOf(node: Module): Pack[] {
  const own = isPacking(node) ? [...node.packs()] : []
  const inside = (value: unknown): Pack[] => {
    if (value instanceof Linear) return []
    if (value instanceof Module) return packsOf(value)
    return Array.isArray(value) ? value.flatMap(inside) : []
  }
  return [...own, ...Object.values(node).flatMap(inside)]
}

/** Parts of one tensor have the same mark. */
const marks = new WeakMap<Tensor, object>()

export function isPacked(pack: Pack): boolean {
  const mark = marks.get(pack[0]!.weight)
  return pack.length === 1 || (mark !== undefined && pack.every((linear) => marks.get(linear.weight) === mark))
}

/** The weights of a pack that lie together as one tensor [sum of outs, in]. */
export function packedWeight(pack: Pack): Tensor {
  assert(isPacked(pack), 'the weights lie together')
  const [rows, columns] = [shapeOfPack(pack)[0], pack[0]!.weight.size(1)]
  return tidyNoGrad(() => aten('as_strided', pack[0]!.weight.detach(), [rows, columns], [columns, 1]))
}

/** Of the values of a pack as one matrix. */
export function shapeOfPack(pack: Pack): [rows: number, columns: number] {
  return [pack.reduce((n, { weight }) => n + weight.size(0), 0), pack[0]!.inFeatures]
}

/** A tensor for a pack in parts, one for each weight in order; they belong to the caller. */
export function inParts(pack: Pack, make: () => Tensor): Tensor[] {
  const mark = {}
  return tidy(() => {
    const outs = pack.map((linear) => linear.weight.size(0))
    const parts = make()
      .split(outs, { dim: 0 })
      .map((part) => keep(part))
    for (const part of parts) marks.set(part, mark)
    return parts
  })
}

/** Moves the weights of a pack into one tensor for good; the old ones are freed. */
export function packInPlace(pack: Pack): void {
  const { dtype, device, shape } = pack[0]!.weight
  const parts = inParts(pack, () => empty([shapeOfPack(pack)[0], shape[1]!], { dtype, device }))
  pack.forEach((linear, i) => {
    tidyNoGrad(() => void parts[i]!.copy_(linear.weight))
    linear.weight.dispose()
    linear.weight = parts[i]!
  })
}
