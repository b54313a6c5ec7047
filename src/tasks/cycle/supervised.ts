// Supervised fine-tuning: cross-entropy on both answers of a record, and the mask loss on its [SEG]. B records, S hidden.
import { Mismatch, type RandomStream } from '../../core/index.ts'
import type { Example } from '../../data/index.ts'
import { type PromptIds, teacherForceGroups } from '../../llm/index.ts'
import type { GroundedFamily } from '../../models/index.ts'
import { cat, noGrad, type Tensor } from '../../tensor/index.ts'
import { type QuestionAbout, regionQuestions, segmentAnswers, segmentQuestions } from '../../text/index.ts'
import { maskLoss } from './mask-loss.ts'

export interface SupervisedOptions {
  /** Gradient into the vision encoders too: only when they train. */
  trainEncoders: boolean
  maskWeight: number
  checkpointing?: boolean
}

export interface SupervisedLoss {
  loss: Tensor
  report: () => { caption: number; answer: number; bce: number; dice: number }
}

/** A record with its image prepared, null where another process reads it; those of one batch have the same shape. */
export interface SupervisedRecord {
  example: Example
  input: object | null
}

/** Wording of a record's two questions and of the answer to the second. */
interface Wording {
  region: string
  question: QuestionAbout
  answer: string
}

/** Drawn for all records, also for those of other processes: whose they are changes no word. */
function drawWordings(batch: readonly { example: Pick<Example, 'caption'> }[], random: RandomStream): Wording[] {
  const regions = batch.map(() => random.pick(regionQuestions))
  return batch.map(({ example }, i) => {
    const question = random.pick(segmentQuestions(example.caption))
    return { region: regions[i]!, question, answer: random.pick(segmentAnswers) }
  })
}

/**
 * One batch of records, each read twice: region -> caption, caption -> [SEG] and mask. Wording is drawn from `random`. Losses are this
 * process's part of the means over the whole batch: over all processes they add up to them.
 */
export function supervisedLoss(
  family: GroundedFamily,
  batch: readonly SupervisedRecord[],
  random: RandomStream,
  options: SupervisedOptions,
): SupervisedLoss {
  const own = batch.flatMap(({ example, input }, at) => (input ? [{ example, input, at }] : []))
  const wordings = drawWordings(batch, random)
  const captions = batch.map(({ example }) => family.completion(example.caption, { words: true }))
  const answers = wordings.map(({ answer }) => family.completion(answer))
  const encode = () => family.encodeTogether(own.map((r) => r.input))
  const { all, rows } = options.trainEncoders ? encode() : noGrad(encode)
  const described = own.map(({ example, at }, i): SupervisedRow => {
    return { prompt: family.describe(rows[i]!, example.mask, wordings[at]!.region), answer: captions[at]! }
  })
  const segmented = own.map(({ at }, i): SupervisedRow => {
    return { prompt: family.segment(rows[i]!, { question: wordings[at]!.question }), answer: answers[at]! }
  })
  const tokens = { caption: tokensOf(captions), answer: tokensOf(answers) }
  const { caption, answer, states } = readRows(family, described, segmented, options, tokens)
  const drawn = family.drawMasks(all, family.segPrompts(states))
  const mask = maskLoss(
    drawn.logits,
    own.map((r) => r.example.mask),
  )
  const share = own.length / batch.length
  const loss = caption.add(answer).add(mask.loss.mul(options.maskWeight * share))
  return {
    loss,
    report: () => ({
      caption: caption.item(),
      answer: answer.item(),
      bce: share * mask.bce.item(),
      dice: share * mask.dice.item(),
    }),
  }
}

const tokensOf = (answers: readonly Int32Array[]) => answers.reduce((n, ids) => n + ids.length, 0)

/** One pass over both kinds of rows: nll per token of each kind, and the [SEG] states [B, S] of the second. */
export function readRows(
  family: GroundedFamily,
  described: readonly SupervisedRow[],
  segmented: readonly SupervisedRow[],
  { checkpointing }: Pick<SupervisedOptions, 'checkpointing'> = {},
  tokens = { caption: tokensOf(described.map((r) => r.answer)), answer: tokensOf(segmented.map((r) => r.answer)) },
): { caption: Tensor; answer: Tensor; states: Tensor } {
  const rows = [...described, ...segmented]
  const pass = teacherForceGroups(
    family.model,
    rows.map((r) => r.prompt),
    rows.map((r) => [r.answer]),
    { checkpointing },
  )
  const { logps } = pass.logProbs() // [2B, T]
  const first = described.length
  return {
    caption: logps.narrow(0, 0, first).sum().div(-tokens.caption),
    answer: logps.narrow(0, first, segmented.length).sum().div(-tokens.answer),
    states: cat(segmented.map((r, i) => pass.stateAt(first + i, segIndex(family, r.answer)))),
  }
}

function segIndex(family: GroundedFamily, ids: Int32Array): number {
  const at = ids.indexOf(family.segId)
  if (at < 0 || at === ids.length - 1)
    throw new Mismatch({ where: 'sft', field: 'answer', expected: '[SEG] before the last token', got: Array.from(ids) })
  return at
}

export interface SupervisedRow {
  prompt: PromptIds
  answer: Int32Array
}

export function segmentRow(
  family: GroundedFamily,
  features: object,
  caption: string,
  random: RandomStream,
): SupervisedRow {
  const prompt = family.segment(features, { question: random.pick(segmentQuestions(caption)) })
  return { prompt, answer: family.completion(random.pick(segmentAnswers)) }
}
