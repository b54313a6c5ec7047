import { Mismatch, refuseAt } from '../core/index.ts'
import { type DType, empty, itemBytes, keep, Tensor } from '../tensor/index.ts'
import { bitsOf, requireExact } from './quantized.ts'

/** A weight of a model: its checkpoint name and the field that holds it. */
export interface Slot {
  readonly name: string
  readonly owner: object
  readonly key: string
}

/**
 * A Tensor or Module in a public field is in the checkpoint under the field's name; lists add an index (null entries stand for
 * layers without weights). Caches and tables are #private, so the walk does not see them.
 */
export abstract class Module {
  /** Every weight in declaration order. */
  slots(prefix = ''): Slot[] {
    const out: Slot[] = []
    walk(this, prefix, out)
    return out
  }

  names(): string[] {
    return this.slots().map((s) => s.name)
  }

  /** Name and tensor of every weight. */
  parameters(): Map<string, Tensor> {
    return new Map(this.slots().map((s) => [s.name, tensorAt(s)]))
  }
}

function walk(node: object, prefix: string, out: Slot[]): void {
  for (const [key, value] of Object.entries(node)) {
    const name = prefix === '' ? key : `${prefix}.${key}`
    if (value instanceof Tensor) out.push({ name, owner: node, key })
    else if (value instanceof Module || Array.isArray(value)) walk(value, name, out)
  }
}

export function tensorAt(slot: Slot): Tensor {
  return (slot.owner as Record<string, Tensor>)[slot.key]!
}

/** Puts another tensor into the field; the old one stays with whoever owns it. */
function setTensor(slot: Slot, value: Tensor): void {
  ;(slot.owner as Record<string, Tensor>)[slot.key] = value
}

/** A weight without memory; loading or an initialiser fills it. */
export function weight(...shape: number[]): Tensor {
  return keep(empty(shape, { device: 'meta', dtype: 'float32' }))
}

/** Replaces a weight for good: the old tensor is freed. */
export function replaceTensor(slot: Slot, value: Tensor): void {
  tensorAt(slot).dispose()
  setTensor(slot, keep(value))
}

/** Runs `fn` while the named weights are others: the EMA copy, the start values. Frozen weights stay shared. */
export function withWeights<R>(slots: readonly Slot[], weights: ReadonlyMap<string, Tensor>, fn: () => R): R {
  const before = slots.map(tensorAt)
  try {
    for (const slot of slots) {
      const other = weights.get(slot.name)
      if (!other) throw new Mismatch({ where: 'withWeights', field: slot.name, expected: 'a tensor', got: 'none' })
      setTensor(slot, other)
    }
    return fn()
  } finally {
    slots.forEach((slot, i) => {
      setTensor(slot, before[i]!)
    })
  }
}

/** The slots a list of patterns selects. A pattern that selects nothing is an error: it would freeze nothing in silence. */
export function selectSlots(model: Module, patterns: readonly RegExp[]): Slot[] {
  const slots = model.slots()
  for (const pattern of patterns) {
    if (!slots.some((s) => pattern.test(s.name))) {
      const hint = `there are ${slots.length} names, such as ${slots[0]?.name}`
      return refuseAt('trainable')(String(pattern), 'a pattern that matches a parameter', 'no match', hint)
    }
  }
  return slots.filter((s) => patterns.some((p) => p.test(s.name)))
}

/** Only the selected weights get gradients; they are float32 masters, whatever the rest is stored in. */
export function trainOnly(model: Module, patterns: readonly RegExp[]): Slot[] {
  const chosen = selectSlots(model, patterns)
  for (const slot of model.slots()) tensorAt(slot).requiresGrad_(false)
  for (const slot of chosen) {
    const t = tensorAt(slot)
    requireExact(t, 'trainable', slot.name)
    if (t.dtype !== 'float32' && t.dtype !== 'float64') replaceTensor(slot, t.to('float32'))
    tensorAt(slot).requiresGrad_(true)
  }
  return chosen
}

interface Count {
  tensors: number
  elements: number
  bytes: number
}

export function count(tensors: Iterable<Tensor>): Count {
  const total: Count = { tensors: 0, elements: 0, bytes: 0 }
  for (const t of tensors) {
    total.tensors++
    total.elements += bitsOf(t) === 4 ? 2 * t.numel : t.numel
    total.bytes += t.numel * itemBytes[t.dtype as DType]
  }
  return total
}
