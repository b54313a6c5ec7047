// prompt -> mask: the decoder draws the mask of a click or a box. The mask is the sampled action, as the field action of
// caption -> mask. The record's mask scores it; no text is involved. K samples of a record, g side of the grid.
import { streamId } from '../../core/index.ts'
import type { PromptableFamily } from '../../models/index.ts'
import { wide } from '../../nn/index.ts'
import { type ActionColumns, type Densities, type Draw, type Json, sampleStream, type Task } from '../../rl/index.ts'
import type { ClickPrompt } from '../../sam/index.ts'
import { type Tensor, tidy, tidyNoGrad } from '../../tensor/index.ts'
import { recordContext } from '../context.ts'
import { actionDensity, disturbed, gridOf, pooled, spreadOf } from '../cycle/action.ts'
import { type CycleReply, type CycleSample, restoreSample, shownOf, storeSample } from '../cycle/sample.ts'
import type { WorkItem } from '../kind.ts'
import { positiveOf } from '../points/item.ts'
import { pointRecord } from '../points/records.ts'
import type { PromptKind, SegmentConfig } from './config.ts'

/** What the decoder is given of a record, in pixels: one click or the box; the record's own, or derived from its mask. */
export function promptOf({ example }: Pick<WorkItem, 'example'>, kind: PromptKind): ClickPrompt {
  const { points, box } = positiveOf(pointRecord(example))
  return kind === 'box' ? { points: [], labels: [], box } : { points: points.slice(0, 1), labels: [1] }
}

const noTokens = { ids: new Int32Array(0), text: '', finished: true, logps: new Float32Array(0), caption: null }

export class DrawMask implements Task<WorkItem, CycleSample, CycleReply> {
  readonly name: PromptKind
  readonly title: string
  readonly weight: number
  readonly beta: number
  readonly opens = true
  readonly #family: PromptableFamily
  readonly #config: SegmentConfig
  /** Of the noise on the mask logits; measured by `open`. */
  #scale = 1

  constructor(family: PromptableFamily, config: SegmentConfig, kind: PromptKind) {
    this.name = kind
    this.title = `${kind} -> mask`
    this.#family = family
    this.#config = config
    this.weight = config.segment[kind]
    this.beta = config.rl.beta
  }

  open(items: readonly WorkItem[]): Json {
    const { actionStd } = this.#config.segment
    const spread = tidyNoGrad(() => spreadOf(items.map((item) => this.#field(item).squeeze(0))))
    this.#scale = Math.max(spread, 1e-6) * actionStd
    return this.#scale
  }

  reopen(state: Json): void {
    this.#scale = state as number
  }

  describe(): string {
    return `${this.title}: noise ${this.#scale.toPrecision(3)} on the mask logits`
  }

  #draw(item: WorkItem, choice?: number) {
    return this.#family.drawPrompt(item.features, promptOf(item, this.name), choice)
  }

  /** The pooled logits of a record's mask: [1, g * g]. */
  #field(item: WorkItem, choice?: number): Tensor {
    const logits = wide(this.#draw(item, choice).logits)
    return pooled(logits, gridOf(this.#config.segment.grid, logits.size(1))).flatten({ startDim: 1 })
  }

  sample(items: readonly WorkItem[], draw: Draw): CycleSample[][] {
    return items.map((item) => tidy(() => this.#sample(item, draw)))
  }

  #sample(item: WorkItem, draw: Draw): CycleSample[] {
    const K = this.#config.rl.numGenerations
    const { logits, choice } = this.#draw(item)
    const randoms = Array.from({ length: K }, (_, k) => sampleStream(draw, streamId.maskAction, item.id, k, this.name))
    const drawn = disturbed(logits.expand([K, -1, -1]), this.#scale, this.#config.segment.grid, randoms)
    const masks = this.#family.finishPrompts(item.features, drawn.logits)
    return drawn.values.map((value, k) => ({ ...noTokens, action: { value, choice }, mask: masks[k]! }))
  }

  /** The record's mask is the judge: the EMA copy has nothing to add. */
  answer(items: readonly WorkItem[], groups: readonly (readonly CycleSample[])[]): CycleReply[][] {
    return items.map((item, b) =>
      groups[b]!.map(({ mask, text }, k) => {
        const { caption: reference, mask: given } = item.example
        const answer = { id: `${item.id}#${k}`, reference, given, mask, text, record: recordContext(item) }
        return { answer, mask, text: null }
      }),
    )
  }

  densities(items: readonly WorkItem[], groups: readonly (readonly CycleSample[])[]): Densities[] {
    return items.map((item, b) => {
      const actions = groups[b]!.map((sample) => sample.action!)
      const mean = this.#field(item, actions[0]!.choice).expand([actions.length, -1])
      const values = actions.map((action) => action.value)
      return { logps: actionDensity(values, mean, this.#scale), entropies: null }
    })
  }

  actions(group: readonly CycleSample[]): ActionColumns {
    return { columns: 1, counts: new Float32Array(group.length).fill(1) }
  }

  probe(item: WorkItem): CycleSample[] {
    return this.sample([item], { seed: this.#config.seed, step: 0 })[0]!
  }

  shown = (item: WorkItem, _: CycleSample, reply: CycleReply | undefined) => shownOf(item, reply, 'policy')
  store = storeSample
  restore = restoreSample
}
