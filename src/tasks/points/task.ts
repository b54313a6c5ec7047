// Points for SAM2 as a task of a run: the policy answers a question with points, SAM2 draws the mask they make, the gain is rewarded.
import type { Shown } from '../../rl/index.ts'
import { recordContext } from '../context.ts'
import type { CommonSettings, WorkItem } from '../kind.ts'
import type { PointRewardConfig } from './answer-config.ts'
import { AskingTask } from './asking-task.ts'
import { rewardOfPoints } from './config.ts'
import { type PointSetup, positiveOf } from './item.ts'
import { answerMetrics } from './metrics.ts'
import { type PointWords, replyToLooks } from './multi-turn.ts'
import type { OpenItems } from './open-items.ts'
import { givenPrompt } from './prompts.ts'
import { pointRecord } from './records.ts'
import { type PointReply, sampleOf } from './reply.ts'
import type { PointsAnswer } from './reward-term.ts'
import { shownAnswer } from './shown.ts'

/** What the rewards and the page see of a sample. */
export interface PointsReply {
  readonly answer: PointsAnswer
  readonly reply: PointReply
  /** Metrics of the answer; they travel with its scores. */
  readonly metrics: Readonly<Record<string, number>>
}

export class PlacePoints extends AskingTask<PointsReply> {
  readonly name = 'points'
  readonly title = 'points -> mask'
  protected readonly sampleText = '[[1,1]]'
  readonly #weights: PointRewardConfig

  constructor(setup: PointSetup, settings: CommonSettings, items: OpenItems) {
    super(setup, settings, items)
    this.#weights = rewardOfPoints(setup.config)
  }

  answer(items: readonly WorkItem[], groups: readonly (readonly PointWords[])[]): PointsReply[][] {
    const opened = this.items.all(items)
    return items.map((work, b) => {
      const item = opened[b]!
      return replyToLooks(this.setup, item, groups[b]!).map((reply, k) => {
        const points = sampleOf(this.setup, item, reply)
        const mask = reply.mask1 ?? reply.mask0
        const { query: reference, mask: given } = item.record
        const { text } = groups[b]![k]!
        const record = recordContext(work)
        const answer = { id: `${work.id}#${k}`, reference, given, mask, text, points, record }
        return { answer, reply, metrics: answerMetrics(points, reply, this.#weights) }
      })
    })
  }

  shown(item: WorkItem, sample: PointWords, reply: PointsReply | undefined): Shown[] {
    const { caption, mask } = item.example
    const { config } = this.setup
    const given =
      reply && config.mode !== 'joint' ? givenPrompt(config, positiveOf(pointRecord(item.example))).points : []
    const answered = reply && { points: reply.answer.points, reply: reply.reply }
    return shownAnswer({ query: caption, target: mask, text: sample.text, positive: given }, answered, this.#weights)
  }
}
