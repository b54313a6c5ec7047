import { groupBy } from '../core/index.ts'
import type { Tensor } from '../tensor/index.ts'

/** Lists of items whose tensors have the same device and dtype, so that one call can update them. */
export function sameKind<T>(items: readonly T[], of: (item: T) => Tensor): T[][] {
  return [...groupBy(items, (item) => `${of(item).device} ${of(item).dtype}`).values()]
}
