// Overlap of the mask of one click and of a box with the record's, greedy, without noise; and the gain over the weights that the run
// started from, on the same records.
import { maskIou } from '../../mask/index.ts'
import type { PromptableFamily } from '../../models/index.ts'
import { type Slot, selectSlots, tensorAt, withWeights } from '../../nn/index.ts'
import { keep, type Tensor, tidyNoGrad } from '../../tensor/index.ts'
import { bootstrapInterval, type Interval } from '../../tracking/index.ts'
import type { Evaluator, RecordScore, WorkItem } from '../kind.ts'
import { type PromptKind, promptKinds } from './config.ts'
import { promptOf } from './task.ts'

type Overlaps = Readonly<Record<PromptKind, number>>

/** Overlap of a record under the weights in place, and under those of the start. */
export interface SegmentScore extends RecordScore, Overlaps {
  readonly start: Overlaps
}

export class SegmentEvaluator implements Evaluator<SegmentScore> {
  readonly #family: PromptableFamily
  readonly #slots: readonly Slot[]
  readonly #start: ReadonlyMap<string, Tensor>
  readonly #known = new Map<string, Overlaps>()

  /** The weights in place are the start. */
  constructor(family: PromptableFamily) {
    this.#family = family
    this.#slots = selectSlots(family.module, Object.values(family.groups).flat())
    const copy = (slot: Slot) => keep(tidyNoGrad(() => tensorAt(slot).detach().clone()))
    this.#start = new Map(this.#slots.map((slot) => [slot.name, copy(slot)]))
  }

  score(items: readonly WorkItem[]): SegmentScore[] {
    const isStart = tidyNoGrad(() => this.#slots.every((s) => tensorAt(s).equal(this.#start.get(s.name)!)))
    return items.map((item) => {
      const now = this.#overlaps(item)
      if (isStart) this.#known.set(item.id, now)
      const start = this.#known.get(item.id) ?? withWeights(this.#slots, this.#start, () => this.#overlaps(item))
      this.#known.set(item.id, start)
      return { id: item.id, ...now, start }
    })
  }

  #overlaps(item: WorkItem): Overlaps {
    const overlap = (kind: PromptKind) => {
      const { logits } = this.#family.drawPrompt(item.features, promptOf(item, kind))
      return maskIou(item.example.mask, this.#family.finishPrompts(item.features, logits)[0]!)
    }
    return tidyNoGrad(() => ({ click: overlap('click'), box: overlap('box') }))
  }

  summary(scores: readonly SegmentScore[], seed: number): Record<string, Interval> {
    const of = (pick: (s: SegmentScore) => number) => bootstrapInterval(scores.map(pick), { seed })
    return Object.fromEntries(
      promptKinds.flatMap((kind) => [
        [`${kind}/iou`, of((s) => s[kind])],
        [`${kind}/gain`, of((s) => s[kind] - s.start[kind])],
      ]),
    )
  }

  close(): void {
    for (const t of this.#start.values()) t.dispose()
  }
}
