// Think, then answer with boxes and points: the segmenter draws every object, and the answer is scored term by term.
import { encodeRle, type Mask, maskUnion } from '../../mask/index.ts'
import { type Answer, defineReward, type SingleReward, type TaskTerm } from '../../rewards/index.ts'
import type { Shown } from '../../rl/index.ts'
import type { ClickPrompt } from '../../sam/index.ts'
import { recordContext } from '../context.ts'
import type { WorkItem } from '../kind.ts'
import { AskingTask } from '../points/asking-task.ts'
import { type FrameSize, isInside, rescale } from '../points/frame.ts'
import { clickPrompt, drawOptions, type PointItem, type PointSetup } from '../points/item.ts'
import type { PointWords } from '../points/multi-turn.ts'
import { drawOnce } from '../points/reply.ts'
import { shownQuestion } from '../points/shown.ts'
import { type Placed, readAnswer } from './answer.ts'
import { formOf, type ReasonConfig, rewardOfReason, type TermName, termNames } from './config.ts'
import { truthOf } from './prompts.ts'
import { type ReasonParts, type ReasonSample, scoreReason } from './reward.ts'

export interface ReasonSetup extends PointSetup {
  reason: ReasonConfig
}

/** What a reward sees of an answer: also the objects that were read, and every term. */
export interface ReasonAnswered extends Answer {
  reason: ReasonSample & { parts: ReasonParts }
}

export interface ReasonReply {
  readonly answer: ReasonAnswered
  readonly metrics: Readonly<Record<string, number>>
}

/**
 * Box and points of an object as the segmenter takes them. Null: no part of the box is inside the image, or its corners are exchanged.
 * Its points alone are not drawn: the policy would learn to write a broken box.
 */
function promptOf({ box, points }: Placed, frame: FrameSize, to: FrameSize): ClickPrompt | null {
  const [x1, x2] = [box[0], box[2]].map((x) => Math.max(0, Math.min(frame.width, x))) as [number, number]
  const [y1, y2] = [box[1], box[3]].map((y) => Math.max(0, Math.min(frame.height, y))) as [number, number]
  const inside = points.filter((p) => isInside(p, frame))
  return x1 < x2 && y1 < y2 ? clickPrompt(to, frame, { box: [x1, y1, x2, y2], points: inside }) : null
}

/** Texts read and drawn: every object of an answer is drawn by itself, pixels of any count. */
export function readReplies(setup: ReasonSetup, item: PointItem, texts: readonly string[]): ReasonSample[] {
  const { coords, preset, noTarget } = setup.reason
  const { frame, record } = item
  const form = formOf(preset)
  const answers = texts.map((text) => readAnswer(text, { form, coords, frame, allowNone: noTarget === 'keep' }))
  const to = setup.sam.inputSize(record.image)
  const prompts = answers.map(({ objects }) => (objects ?? []).flatMap((one) => promptOf(one, frame, to) ?? []))
  const drawn = drawOnce(setup, item, prompts.flat(), drawOptions(setup, record))
  const truth = truthOf(record, frame, form)
  return answers.map((answer, k) => {
    const [first, ...rest] = drawn.splice(0, prompts[k]!.length).map(({ mask }): Mask => mask)
    const mask = first ? maskUnion(first, ...rest) : null
    return { text: texts[k]!, answer, form, frame, truth, target: record.mask, mask }
  })
}

export class Reason extends AskingTask<ReasonReply> {
  readonly name = 'reason'
  readonly title = 'thought -> boxes and points -> mask'
  protected readonly sampleText = '<think></think><answer>[{"bbox_2d":[1,1,9,9],"point_2d":[5,5]}]</answer>'
  declare protected readonly setup: ReasonSetup

  answer(items: readonly WorkItem[], groups: readonly (readonly PointWords[])[]): ReasonReply[][] {
    const opened = this.items.all(items)
    const reward = rewardOfReason(this.setup.reason)
    return items.map((work, b) => {
      const { query: reference, mask: given } = opened[b]!.record
      const texts = groups[b]!.map(({ text }) => text)
      return readReplies(this.setup, opened[b]!, texts).map((sample, k) => {
        const parts = scoreReason(sample, reward)
        const { mask, text } = sample
        const common = { id: `${work.id}#${k}`, reference, given, mask, text, record: recordContext(work) }
        return { answer: { ...common, reason: { ...sample, parts } }, metrics: answerMetrics(sample, parts) }
      })
    })
  }

  shown({ example }: WorkItem, { text }: PointWords, reply: ReasonReply | undefined): Shown[] {
    return shownReason(example.caption, example.mask, text, reply?.answer.reason)
  }
}

function answerMetrics({ answer: { objects } }: ReasonSample, { mask }: ReasonParts): Record<string, number> {
  return { final_iou: mask, invalid_rate: objects ? 0 : 1, ...(objects && { objects_per_output: objects.length }) }
}

/** What a person sees of an answer. */
export function shownReason(query: string, target: Mask, text: string, sample?: ReasonSample): Shown[] {
  const out = shownQuestion({ query, target, text })
  if (!sample) return out
  if (sample.mask) out.push({ kind: 'mask', by: 'policy', value: encodeRle(sample.mask) })
  const points = (sample.answer.objects ?? []).flatMap((object) => object.points)
  const dots = points.map((p) => rescale(p, sample.frame, target)).map(([x, y]) => ({ x, y, positive: true }))
  return [...out, { kind: 'points', by: 'policy', value: { size: [target.height, target.width], points: dots } }]
}

/** The terms with a weight, each a separate reward of the mix. */
export function reasonTerms(weights: Readonly<Record<TermName, number>>): TaskTerm[] {
  return termNames.flatMap((name) =>
    weights[name] > 0 ? [{ type: 'task', weight: weights[name], of: 'reason', reward: termOf(name) }] : [],
  )
}

const docs: Record<TermName, string> = {
  thinking: '1 if the text is a thought and then an answer.',
  format: 'Share of boxes and points in the form that was asked for.',
  mask: 'IoU of the drawn mask.',
  boxIou: 'Overlap of matched boxes.',
  boxL1: 'Matched boxes whose corners lie close.',
  point: 'Matched points that lie close, and inside their own box.',
  count: 'The smaller number of objects over the larger.',
  nonRepeat: '0 if two sentences repeat earlier ones.',
}

function termOf(name: TermName): SingleReward {
  const score = (answer: Answer) => (answer as ReasonAnswered).reason.parts[name]
  return defineReward({ name, range: [0, 1], doc: docs[name], score })
}
