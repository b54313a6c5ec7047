// Supervised fine-tuning: cross-entropy on both answers of a record, and the mask loss on its [SEG]. B records, S hidden.
import { Mismatch, type RandomStream } from '../../core/index.ts'
import type { Example } from '../../data/index.ts'
import { type GroundedFamily, type PromptIds, teacherForceRows } from '../../models/index.ts'
import { cat, noGrad, type Tensor } from '../../tensor/index.ts'
import { regionQuestions, segmentAnswers, segmentQuestions } from '../../text/index.ts'
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

/** A record with its image prepared; those of one batch have the same shape. */
export interface SupervisedRecord {
  example: Example
  input: object
}

/** One batch of records, each read twice: region -> caption, caption -> [SEG] and mask. Wording is drawn from `random`. */
export function supervisedLoss(
  family: GroundedFamily,
  batch: readonly SupervisedRecord[],
  random: RandomStream,
  options: SupervisedOptions,
): SupervisedLoss {
  const encode = () => family.encodeTogether(batch.map((r) => r.input))
  const { all, rows } = options.trainEncoders ? encode() : noGrad(encode)
  const described = batch.map(({ example }, i) => describeRow(family, rows[i]!, example, random))
  const segmented = batch.map(({ example }, i) => segmentRow(family, rows[i]!, example.caption, random))
  const { caption, answer, states } = readRows(family, described, segmented, options)
  const drawn = family.drawMasks(all, family.segPrompts(states))
  const mask = maskLoss(
    drawn.logits,
    batch.map((r) => r.example.mask),
  )
  const loss = caption.add(answer).add(mask.loss.mul(options.maskWeight))
  return {
    loss,
    report: () => ({ caption: caption.item(), answer: answer.item(), bce: mask.bce.item(), dice: mask.dice.item() }),
  }
}

/** One pass over both kinds of rows: nll per token of each kind, and the [SEG] states [B, S] of the second. */
export function readRows(
  family: GroundedFamily,
  described: readonly SupervisedRow[],
  segmented: readonly SupervisedRow[],
  { checkpointing }: Pick<SupervisedOptions, 'checkpointing'> = {},
): { caption: Tensor; answer: Tensor; states: Tensor } {
  const rows = [...described, ...segmented]
  const pass = teacherForceRows(
    family.model,
    rows.map((r) => r.prompt),
    rows.map((r) => r.answer),
    { checkpointing },
  )
  const { logps } = pass.logProbs() // [2B, T]
  const nll = (from: number, kind: readonly SupervisedRow[]) =>
    logps
      .narrow(0, from, kind.length)
      .sum()
      .div(-kind.reduce((n, r) => n + r.answer.length, 0))
  const first = described.length
  return {
    caption: nll(0, described),
    answer: nll(first, segmented),
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

function describeRow(family: GroundedFamily, features: object, example: Example, random: RandomStream): SupervisedRow {
  const prompt = family.describe(features, example.mask, random.pick(regionQuestions))
  return { prompt, answer: family.completion(example.caption, { words: true }) }
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
