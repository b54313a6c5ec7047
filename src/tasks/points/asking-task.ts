// A task whose samples are answers to a question about an image: how they are drawn, scored under the policy and stored. What an answer
// means is the task's own business. The segmenter is the only judge: the EMA copy has nothing to say here. K samples of a record.
import { streamId } from '../../core/index.ts'
import { type Draw, type Json, type Shown, sampleStream, type Task } from '../../rl/index.ts'
import type { CommonSettings, WorkItem } from '../kind.ts'
import { restoreText, storeText } from '../stored-text.ts'
import type { PointItem, PointSetup } from './item.ts'
import { stepMetrics } from './metrics.ts'
import { askLooks, densitiesOfLooks, type PointWords, wordsOf } from './multi-turn.ts'
import type { OpenItems } from './open-items.ts'

export abstract class AskingTask<R extends object> implements Task<WorkItem, PointWords, R> {
  abstract readonly name: string
  abstract readonly title: string
  /** An answer that surely ends, for the doctor. */
  protected abstract readonly sampleText: string
  readonly opens = false
  readonly weight: number
  readonly beta: number
  protected readonly setup: PointSetup
  protected readonly settings: CommonSettings
  protected readonly items: OpenItems

  constructor(setup: PointSetup, settings: CommonSettings, items: OpenItems) {
    this.setup = setup
    this.settings = settings
    this.items = items
    this.weight = setup.config.weight
    this.beta = settings.rl.beta
  }

  abstract answer(items: readonly WorkItem[], groups: readonly (readonly PointWords[])[]): R[][]
  abstract shown(item: WorkItem, sample: PointWords, reply: R | undefined): Shown[]

  open = (): Json => null
  reopen(): void {}
  describe = (): null => null

  sample(items: readonly WorkItem[], draw: Draw): PointWords[][] {
    const { rl } = this.settings
    return askLooks(this.setup, this.items.all(items), {
      rl,
      samples: rl.numGenerations,
      random: (row, k, look) =>
        sampleStream(draw, streamId.sampling, items[row]!.id, k, ...(look > 0 ? [`look ${look}`] : [])),
    })
  }

  densities(items: readonly WorkItem[], groups: readonly (readonly PointWords[])[]) {
    const { rl, checkpointing } = this.settings
    const opened = this.items.all(items)
    return densitiesOfLooks(this.setup, opened, groups, { temperature: rl.temperature, checkpointing })
  }

  actions = (): null => null

  metrics = stepMetrics

  /** Sampled answers; the first is one that surely ends. */
  probe(item: WorkItem): PointWords[] {
    const [sampled] = this.sample([item], { seed: this.settings.seed, step: 0 })
    const text = this.sampleText
    const ids = this.setup.policy.completion(text)
    const ends = { ids, text, finished: true, logps: new Float32Array(0) }
    return sampled!.map((s, k) => (k === 0 ? ends : s))
  }

  /** What the model reads, and what it says to it. */
  examine(item: WorkItem): string[] {
    const [opened] = this.items.all([item]) as [PointItem]
    const { ids } = opened.prompt
    const [pad] = this.setup.policy.imageIds
    const ofImage = ids.filter((id) => id === pad).length
    const { width, height } = opened.frame
    const { text } = askLooks(this.setup, [opened])[0]![0]!
    const first = opened.first ? `; IoU of the first mask ${opened.iou0.toFixed(3)}` : ''
    return [`prompt of ${ids.length} tokens, ${ofImage} of the image of ${width} x ${height}${first}; answer ${text}`]
  }

  store(words: PointWords): Json {
    return words.looks ? { looks: words.looks.map(storeText) } : storeText(words)
  }

  restore(stored: Json): PointWords {
    const { looks } = stored as { looks?: Json[] }
    return looks ? wordsOf(looks.map(restoreText)) : restoreText(stored)
  }
}
