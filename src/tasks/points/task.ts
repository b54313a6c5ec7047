// Points for SAM2 as a task of a run: the policy answers a question with points, SAM2 draws the mask they make, the gain is rewarded.
// SAM2 is the only judge: the EMA copy has nothing to say here. K samples of a record.
import { streamId } from '../../core/index.ts'
import { type Draw, type Json, type Shown, sampleStream, type Task } from '../../rl/index.ts'
import { keep } from '../../tensor/index.ts'
import { recordContext } from '../context.ts'
import type { CommonSettings, WorkItem } from '../kind.ts'
import { rewardOfPoints } from './config.ts'
import { type AnsweredGroup, stepFigures } from './figures.ts'
import { openItem, type PointItem, type PointSetup, releaseItem, tensorsOfItem } from './item.ts'
import { askLooks, densitiesOfLooks, type PointWords, replyToLooks, wordsOf } from './looks.ts'
import { givenPrompt } from './prompts.ts'
import { pointRecord } from './records.ts'
import { type PointReply, type PointText, sampleOf } from './reply.ts'
import type { PointsAnswer } from './reward-term.ts'
import { shownAnswer } from './shown.ts'

/** What the rewards and the page see of a sample. */
export interface PointsReply {
  readonly answer: PointsAnswer
  readonly reply: PointReply
}

/** Items that are in work, or were a moment ago: read once, however often the step asks. */
export class OpenItems {
  readonly #setup: PointSetup
  readonly #open = new Map<string, PointItem>()
  readonly #most: number

  constructor(setup: PointSetup, most: number) {
    this.#setup = setup
    this.#most = most
  }

  at({ id, example }: WorkItem): PointItem {
    const known = this.#open.get(id)
    this.#open.delete(id)
    const item = known ?? openItem(this.#setup, pointRecord(example))
    if (!known) for (const t of tensorsOfItem(this.#setup, item)) keep(t) // whatever scope is open ends before the item does
    this.#open.set(id, item)
    for (const [old, first] of this.#open) {
      if (this.#open.size <= this.#most) break
      this.#open.delete(old)
      releaseItem(this.#setup, first)
    }
    return item
  }

  close(): void {
    for (const item of this.#open.values()) releaseItem(this.#setup, item)
    this.#open.clear()
  }
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

  constructor(setup: PointSetup, settings: CommonSettings, items: OpenItems) {
    this.#setup = setup
    this.#settings = settings
    this.#items = items
    this.weight = setup.config.weight
    this.beta = settings.rl.beta
  }

  open = (): Json => null
  reopen(): void {}
  describe = (): null => null

  sample(items: readonly WorkItem[], draw: Draw): PointWords[][] {
    return askLooks(
      this.#setup,
      items.map((item) => this.#items.at(item)),
      {
        samples: this.#settings.rl.numGenerations,
        temperature: this.#settings.rl.temperature,
        random: (row, k, look) =>
          sampleStream(draw, streamId.sampling, items[row]!.id, k, ...(look > 0 ? [`look ${look}`] : [])),
      },
    )
  }

  answer(items: readonly WorkItem[], groups: readonly (readonly PointWords[])[]): PointsReply[][] {
    return items.map((work, b) => {
      const item = this.#items.at(work)
      return replyToLooks(this.#setup, item, groups[b]!).map((reply, k) => {
        const points = sampleOf(this.#setup, item, reply)
        const mask = reply.mask1 ?? reply.mask0
        const { query: reference, mask: given } = item.record
        const { text } = groups[b]![k]!
        const record = recordContext(work)
        return { answer: { id: `${work.id}#${k}`, reference, given, mask, text, points, record }, reply }
      })
    })
  }

  densities(items: readonly WorkItem[], groups: readonly (readonly PointWords[])[]) {
    const { rl, checkpointing } = this.#settings
    const opened = items.map((item) => this.#items.at(item))
    return densitiesOfLooks(this.#setup, opened, groups, { temperature: rl.temperature, checkpointing })
  }

  actions = (): null => null
  extraLoss = (): null => null

  figures(groups: readonly AnsweredGroup[], loss: number): Record<string, number> {
    return stepFigures(groups, rewardOfPoints(this.#setup.config), loss)
  }

  /** Sampled answers; the first is one that surely ends. */
  probe(item: WorkItem): PointWords[] {
    const [sampled] = this.sample([item], { seed: this.#settings.seed, step: 0 })
    const text = '[[1,1]]'
    const ids = this.#setup.policy.completion(text)
    const ends = { ids, text, finished: true, logps: new Float32Array(0) }
    return sampled!.map((s, k) => (k === 0 ? ends : s))
  }

  /** What the model reads, and what it says to it. */
  examine(item: WorkItem): string[] {
    const opened = this.#items.at(item)
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
    const given = reply && config.mode !== 'joint' ? givenPrompt(config, this.#items.at(item).positive).points : []
    const weights = rewardOfPoints(config)
    return shownAnswer({ query: caption, target: mask, text: sample.text, positive: given }, reply, weights)
  }

  store(words: PointWords): Json {
    const plain = ({ ids, text, finished, logps }: PointText): Json => ({
      ids: [...ids],
      text,
      finished,
      logps: [...logps],
    })
    return words.looks ? { looks: words.looks.map(plain) } : plain(words)
  }

  restore(stored: Json): PointWords {
    const read = ({ ids, text, finished, logps }: StoredText) => {
      return { ids: Int32Array.from(ids), text, finished, logps: Float32Array.from(logps) }
    }
    const { looks } = stored as { looks?: StoredText[] }
    return looks ? wordsOf(looks.map(read)) : read(stored as unknown as StoredText)
  }
}

interface StoredText {
  ids: number[]
  text: string
  finished: boolean
  logps: number[]
}
