import type { Tensor } from '../tensor/index.ts'

/** Lists of items with the same key, in the order of their first item. */
export function groupBy<T>(items: readonly T[], keyOf: (item: T) => string): T[][] {
  const groups = new Map<string, T[]>()
  for (const item of items) {
    const key = keyOf(item)
    const group = groups.get(key)
    if (group) group.push(item)
    else groups.set(key, [item])
  }
  return [...groups.values()]
}

/** Lists of items whose tensors have the same device and dtype, so that one call can update them. */
export function sameKind<T>(items: readonly T[], of: (item: T) => Tensor): T[][] {
  return groupBy(items, (item) => `${of(item).device} ${of(item).dtype}`)
}
