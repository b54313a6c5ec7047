// Points for SAM2 as a task of a run: the policy answers a question with points, SAM2 draws the mask they make, the gain is rewarded.
// SAM2 is the only judge: the EMA copy has nothing to say here. K samples of a record.
import { streamId } from '../../core/index.ts'
import { type Draw, type Json, type Shown, sampleStream, type Task } from '../../rl/index.ts'
import { recordContext } from '../context.ts'
import type { CommonSettings, WorkItem } from '../kind.ts'
import type { PointRewardConfig } from './answer-config.ts'
import { rewardOfPoints } from './config.ts'
import { type PointItem, type PointSetup, positiveOf } from './item.ts'
import { answerMetrics, stepMetrics } from './metrics.ts'
import { askLooks, densitiesOfLooks, type PointWords, replyToLooks, wordsOf } from './multi-turn.ts'
import type { OpenItems } from './open-items.ts'
import { givenPrompt } from './prompts.ts'
import { pointRecord } from './records.ts'
import { type PointReply, type PointText, sampleOf } from './reply.ts'
import type { PointsAnswer } from './reward-term.ts'
import { shownAnswer } from './shown.ts'

/** What the rewards and the page see of a sample. */
export interface PointsReply {
  readonly answer: PointsAnswer
  readonly reply: PointReply
  /** Metrics of the answer; they travel with its scores. */
  readonly figures: Readonly<Record<string, number>>
}

export class PlacePoints implements Task<WorkItem, PointWords, PointsReply> {
  readonly name = 'points'
  readonly title = 'points -> mask'
  readonly opens = false
  readonly weight: number
  readonly beta: number
  readonly #setup: PointSetup
  readonly #settings: CommonSettings
  readonly #items: OpenItems
  readonly #weights: PointRewardConfig

  constructor(setup: PointSetup, settings: CommonSettings, items: OpenItems) {
    this.#setup = setup
    this.#settings = settings
    this.#items = items
    this.#weights = rewardOfPoints(setup.config)
    this.weight = setup.config.weight
    this.beta = settings.rl.beta
  }

  open = (): Json => null
  reopen(): void {}
  describe = (): null => null

  sample(items: readonly WorkItem[], draw: Draw): PointWords[][] {
    const { rl } = this.#settings
    return askLooks(this.#setup, this.#items.all(items), {
      rl,
      samples: rl.numGenerations,
      random: (row, k, look) =>
        sampleStream(draw, streamId.sampling, items[row]!.id, k, ...(look > 0 ? [`look ${look}`] : [])),
    })
  }

  answer(items: readonly WorkItem[], groups: readonly (readonly PointWords[])[]): PointsReply[][] {
    const opened = this.#items.all(items)
    return items.map((work, b) => {
      const item = opened[b]!
      return replyToLooks(this.#setup, item, groups[b]!).map((reply, k) => {
        const points = sampleOf(this.#setup, item, reply)
        const mask = reply.mask1 ?? reply.mask0
        const { query: reference, mask: given } = item.record
        const { text } = groups[b]![k]!
        const record = recordContext(work)
        const answer = { id: `${work.id}#${k}`, reference, given, mask, text, points, record }
        return { answer, reply, figures: answerMetrics(points, reply, this.#weights) }
      })
    })
  }

  densities(items: readonly WorkItem[], groups: readonly (readonly PointWords[])[]) {
    const { rl, checkpointing } = this.#settings
    const opened = this.#items.all(items)
    return densitiesOfLooks(this.#setup, opened, groups, { temperature: rl.temperature, checkpointing })
  }

  actions = (): null => null
  extraLoss = (): null => null

  figures = stepMetrics

  /** SampleOptions answers; the first is one that surely ends. */
  probe(item: WorkItem): PointWords[] {
    const [sampled] = this.sample([item], { seed: this.#settings.seed, step: 0 })
    const text = '[[1,1]]'
    const ids = this.#setup.policy.completion(text)
    const ends = { ids, text, finished: true, logps: new Float32Array(0) }
    return sampled!.map((s, k) => (k === 0 ? ends : s))
  }

  /** What the model reads, and what it says to it. */
  examine(item: WorkItem): string[] {
    const [opened] = this.#items.all([item]) as [PointItem]
    const { ids } = opened.prompt
    const [pad] = this.#setup.policy.imageIds
    const ofImage = ids.filter((id) => id === pad).length
    const { width, height } = opened.frame
    const { text } = askLooks(this.#setup, [opened])[0]![0]!
    const first = opened.first ? `; IoU of the first mask ${opened.iou0.toFixed(3)}` : ''
    return [`prompt of ${ids.length} tokens, ${ofImage} of the image of ${width} x ${height}${first}; answer ${text}`]
  }

  shown(item: WorkItem, sample: PointWords, reply: PointsReply | undefined): Shown[] {
    const { caption, mask } = item.example
    const { config } = this.#setup
    const given =
      reply && config.mode !== 'joint' ? givenPrompt(config, positiveOf(pointRecord(item.example))).points : []
    const answered = reply && { points: reply.answer.points, reply: reply.reply }
    return shownAnswer({ query: caption, target: mask, text: sample.text, positive: given }, answered, this.#weights)
  }

  store(words: PointWords): Json {
    const plain = ({ ids, text, finished, logps, samplerLogps }: PointText): Json => ({
      ids: [...ids],
      text,
      finished,
      logps: [...logps],
      ...(samplerLogps && { samplerLogps: [...samplerLogps] }),
    })
    return words.looks ? { looks: words.looks.map(plain) } : plain(words)
  }

  restore(stored: Json): PointWords {
    const read = ({ ids, text, finished, logps, samplerLogps }: StoredText): PointText => ({
      ids: Int32Array.from(ids),
      text,
      finished,
      logps: Float32Array.from(logps),
      ...(samplerLogps && { samplerLogps: Float32Array.from(samplerLogps) }),
    })
    const { looks } = stored as { looks?: StoredText[] }
    return looks ? wordsOf(looks.map(read)) : read(stored as unknown as StoredText)
  }
}

interface StoredText {
  ids: number[]
  text: string
  finished: boolean
  logps: number[]
  samplerLogps?: number[]
}
