// Captions for training without annotations: the model samples some of each region and keeps the one that it understands best itself.
import { maskIou } from '../../mask/index.ts'
import type { WorkItem } from '../kind.ts'
import type { Cycle } from './config.ts'
import { MaskToCaption } from './mask-to-caption.ts'

/** Of K sampled captions the one from which the model draws the region best; a greedy one often fits several objects. */
export function ownCaptions(cycle: Cycle, items: readonly WorkItem[]): string[] {
  const loop = new MaskToCaption(cycle)
  const groups = loop.sample(items, { seed: 0, step: 0 })
  const replies = loop.answer(items, groups)
  return items.map(({ example }, b) => {
    const scores = replies[b]!.map(({ mask }) => (mask ? maskIou(mask, example.mask) : 0))
    return groups[b]![scores.indexOf(Math.max(...scores))]!.caption ?? ''
  })
}
