// mask -> caption -> mask': the policy describes a region, the EMA copy must find the region again from the words.
import { streamId } from '../../core/index.ts'
import type { TeacherPass } from '../../llm/index.ts'
import { type Densities, type Draw, type Json, sampleStream, type Task } from '../../rl/index.ts'
import { recordContext } from '../context.ts'
import type { WorkItem } from '../kind.ts'
import type { Cycle } from './config.ts'
import { type CycleTask, jointOf, jointPass } from './joint.ts'
import { ask, captionOf, segmentAll } from './prompts.ts'
import { type CycleReply, type CycleSample, prepareShown, restoreSample, shownOf, storeSample } from './sample.ts'

export class MaskToCaption implements Task<WorkItem, CycleSample, CycleReply> {
  readonly name = 'loop1'
  readonly title = 'mask -> caption -> mask'
  readonly opens = false
  readonly weight: number
  readonly beta: number
  readonly #cycle: Cycle

  constructor(cycle: Cycle) {
    this.#cycle = cycle
    this.weight = cycle.config.loop1.weight
    this.beta = cycle.config.rl.beta
  }

  open = (): Json => null
  reopen(): void {}
  describe = (): null => null

  #prompt({ features, example }: WorkItem) {
    const { family, config } = this.#cycle
    return family.describe(features, example.mask, config.loop1.question)
  }

  sample(items: readonly WorkItem[], draw: Draw): CycleSample[][] {
    const K = this.#cycle.config.rl.numGenerations
    const rows = ask(
      this.#cycle,
      items.map((item) => this.#prompt(item)),
      {
        caption: true,
        sampled: { samples: K, random: (row, k) => sampleStream(draw, streamId.sampling, items[row]!.id, k) },
      },
    )
    const samples = rows.map(({ ids, text, finished, logps, samplerLogps }) => {
      const plain = { ids, text, finished, logps, action: null, caption: captionOf(this.#cycle, text), mask: null }
      return samplerLogps ? { ...plain, samplerLogps } : plain
    })
    return items.map((_, b) => samples.slice(b * K, (b + 1) * K))
  }

  answer(items: readonly WorkItem[], groups: readonly (readonly CycleSample[])[]): CycleReply[][] {
    const phrases = items.flatMap((item, b) =>
      groups[b]!.map((s) => ({ features: item.features, caption: s.caption ?? '' })),
    )
    const found = segmentAll(
      this.#cycle,
      phrases.filter((p) => p.caption !== ''),
    )
    let next = 0
    return items.map((item, b) =>
      groups[b]!.map((s, k) => {
        const hit = s.caption ? found[next++]! : null
        const { id, caption: reference, mask: given } = item.example
        const maskPrime = hit?.mask ?? null
        prepareShown(this.#cycle, maskPrime, item)
        const answer = {
          ...{ id: `${id}#${k}`, reference, given, caption: s.caption, maskPrime, text: s.text },
          ...{ maskConfidence: hit?.confidence ?? null, record: recordContext(item) },
        }
        return { answer, mask: maskPrime, text: hit?.text ?? null }
      }),
    )
  }

  reading(items: readonly WorkItem[], groups: readonly (readonly CycleSample[])[]) {
    return { prompts: items.map((item) => this.#prompt(item)), answers: groups.map((group) => group.map((s) => s.ids)) }
  }

  densitiesFrom = (pass: TeacherPass) => pass.logProbsByPrompt(this.#cycle.config.rl.temperature)

  densities(items: readonly WorkItem[], groups: readonly (readonly CycleSample[])[]): Densities[] {
    return jointPass(this.#cycle, [{ task: this as CycleTask, items, groups }])()[0]!
  }

  get joint() {
    return jointOf(this.#cycle)
  }

  actions = (): null => null

  /** Sampled captions; the first is the record's own with its end token: the end is there to be checked, whatever the model has learned. */
  probe(item: WorkItem): CycleSample[] {
    const [sampled] = this.sample([item], { seed: this.#cycle.config.seed, step: 0 })
    const ids = this.#cycle.family.completion(item.example.caption, { words: true })
    return sampled!.map((s, k) => (k === 0 ? { ...s, ids, finished: true, logps: new Float32Array(0) } : s))
  }

  shown = (item: WorkItem, _sample: CycleSample, reply: CycleReply | undefined) => shownOf(item, reply, 'ema')
  store = storeSample
  restore = restoreSample
}
