// From the policy's texts to masks and scores. All candidates of a record are drawn together on one reading of its image.
import type { RandomStream } from '../../core/index.ts'
import { type Generated, generate, type PromptIds } from '../../llm/index.ts'
import type { Mask } from '../../mask/index.ts'
import type { Sample } from '../../rl/index.ts'
import type { ClickMask, ClickPrompt } from '../../sam/index.ts'
import { generateOptions, type SampleOptions } from '../generate-options.ts'
import { rewardOfPoints } from './config.ts'
import { type Point, rescale } from './frame.ts'
import { clickPrompt, drawOptions, type PointItem, type PointSetup, positiveClicks, withClicks } from './item.ts'
import { errorCentreCurve } from './known-clicks.ts'
import { type PointAnswer, parsePointAnswer } from './parse.ts'
import { type PointParts, type PointSample, type PointTurn, scorePoints } from './reward.ts'

/** What the policy wrote: the text up to the stop, special tokens removed. */
export type PointText = Sample

/** How answers are drawn; `random` of an item, a sample of it, and how many looks were before. */
export interface SampledPoints extends Omit<SampleOptions, 'random'> {
  random: (item: number, sample: number, look: number) => RandomStream
}

/** K texts for each item. */
export function askPoints(setup: PointSetup, items: readonly PointItem[], sampled?: SampledPoints): PointText[][] {
  return askPrompts(
    setup,
    items.map((item) => item.prompt),
    sampled && { ...sampled, random: (row, k) => sampled.random(row, k, 0) },
  )
}

/** K texts for each prompt; one greedy text without `sampled`. */
export function askPrompts(setup: PointSetup, prompts: readonly PromptIds[], sampled?: SampleOptions): PointText[][] {
  const { model, tokenizer, imageIds, stopWords } = setup.policy
  const rows = generate(model, tokenizer, prompts, {
    ...generateOptions(setup.maxNewTokens, stopWords, sampled),
    suppressIds: imageIds,
  })
  const out: PointText[][] = prompts.map(() => [])
  for (const row of rows) out[row.prompt]![row.sample] = textOf(setup, row)
  return out
}

function textOf({ policy: { tokenizer } }: PointSetup, { ids, finished, logps, samplerLogps }: Generated): PointText {
  const spoken = finished ? ids.subarray(0, ids.length - 1) : ids
  const text = tokenizer.decode(spoken, { skipSpecial: true })
  return { ids, text, finished, logps, ...(samplerLogps && { samplerLogps }) }
}

/** A text read, and the masks it makes. */
export interface PointReply {
  answer: PointAnswer
  /** Each answer with the mask after it; one, unless there were several looks. */
  turns: readonly PointTurn[]
  /** What SAM2 is given before the corrections: the record's own, or in joint the policy's; null where that gives none. */
  prompt: ClickPrompt | null
  /** Before the corrections; null if nothing is drawn (joint's none, an invalid answer of joint). */
  mask0: Mask | null
  /** After them; null if no correction was kept. */
  mask1: Mask | null
  /** SAM2's expected overlap of the last mask, and whether the corrections changed which of its masks it chose. */
  confidence: number
  switched: boolean
}

export function replyTo(setup: PointSetup, item: PointItem, texts: readonly PointText[]): PointReply[] {
  const answers = texts.map((t) => parsePointAnswer(t.text, item.frame, setup.config, !t.finished))
  const starts = startsOf(setup, item, answers)
  const wanted = answers.flatMap((answer, k) => (answer.counts.kept > 0 && starts[k] ? [k] : []))
  const prompts = wanted.map((k) => corrected(setup, item, answers[k]!, starts[k]!))
  const options = { ...drawOptions(setup, item.record), keepLogits: false }
  const masks = drawOnce(setup, item, prompts, options)
  const drawn = new Map(wanted.map((k, i) => [k, masks[i]!]))
  const replies = answers.map((answer, k) => replyOf(answer, starts[k] ?? null, drawn.get(k) ?? null))
  if (setup.config.mode === 'joint') for (const start of starts) start?.mask.logits?.dispose()
  return replies
}

/** Candidates that say the same are drawn once. */
export function drawOnce(
  { sam }: PointSetup,
  item: PointItem,
  prompts: readonly ClickPrompt[],
  options: ReturnType<typeof drawOptions>,
): ClickMask[] {
  const keys = prompts.map(({ points, labels, box }) => JSON.stringify([points, labels, box]))
  const first = [...new Set(keys)].map((key) => keys.indexOf(key))
  const masks = sam.draw(
    item.sam,
    first.map((i) => prompts[i]!),
    options,
  )
  const byKey = new Map(first.map((i, n) => [keys[i]!, masks[n]!]))
  return keys.map((key) => byKey.get(key)!)
}

/** What SAM2 is given, and what it drew from it. */
export interface Start {
  prompt: ClickPrompt
  mask: ClickMask
}

/** The prompt and mask before the corrections: the record's own, or in joint the policy's. */
function startsOf(setup: PointSetup, item: PointItem, answers: readonly PointAnswer[]): (Start | null)[] {
  if (setup.config.mode !== 'joint') {
    const prompt = positiveClicks(setup, item.record, item.positive)
    return answers.map(() => ({ prompt, mask: item.first! }))
  }
  const there = answers.flatMap((a, k) => (a.valid && !a.none ? [k] : []))
  const prompts = there.map((k) => {
    const { box, positives } = answers[k]!
    return clickPrompt(setup.sam.inputSize(item.record.image), item.frame, { box, points: positives })
  })
  const masks = setup.sam.draw(item.sam, prompts, drawOptions(setup, item.record))
  const starts: (Start | null)[] = answers.map(() => null)
  there.forEach((k, i) => {
    starts[k] = { prompt: prompts[i]!, mask: masks[i]! }
  })
  return starts
}

/** The kept points of an answer on top of what SAM2 was given. */
export function corrected(
  { sam, config }: PointSetup,
  item: PointItem,
  answer: PointAnswer,
  start: Start,
): ClickPrompt {
  const side = sam.inputSize(item.record.image)
  const move = (points: readonly Point[]) => points.map((p) => rescale(p, item.frame, side))
  const more = config.mode === 'second-look' ? withClicks(start.prompt, move(answer.positives), 1) : start.prompt
  const all = withClicks(more, move(answer.negatives), 0)
  return config.previousMask === 'logits' ? { ...all, previous: start.mask.logits } : all
}

function replyOf(answer: PointAnswer, start: Start | null, end: ClickMask | null): PointReply {
  const first = start?.mask ?? null
  const confidence = (end ?? first)?.confidence ?? 0
  const switched = first !== null && end !== null && first.token !== end.token
  const masks = { mask0: first?.mask ?? null, mask1: end?.mask ?? null }
  const turns = [{ answer, mask: masks.mask1 }]
  return { answer, turns, prompt: start?.prompt ?? null, ...masks, confidence, switched }
}

/** What a reward sees of a reply. */
export function sampleOf(setup: PointSetup, item: PointItem, reply: PointReply): PointSample {
  return {
    target: item.record.mask,
    mask0: reply.mask0,
    frame: item.frame,
    mode: setup.config.mode,
    turns: reply.turns,
    manyTurns: setup.config.turns > 1,
    iouOracle: iouOracleOf(setup, item),
  }
}

/** Only the relative gain asks for it; in joint the first mask is the policy's own, and no curve belongs to the record. */
function iouOracleOf(setup: PointSetup, item: PointItem): number | null {
  const { mode, previousMask } = setup.config
  if (mode === 'joint' || rewardOfPoints(setup.config).gainKind === 'absolute') return null
  item.iouOracle ??= Math.max(
    item.iou0,
    ...errorCentreCurve(setup, item, positiveClicks(setup, item.record, item.positive), previousMask === 'logits'),
  )
  return item.iouOracle
}

export function scoreReplies(setup: PointSetup, item: PointItem, replies: readonly PointReply[]): PointParts[] {
  const weights = rewardOfPoints(setup.config)
  return replies.map((reply) => scorePoints(sampleOf(setup, item, reply), weights))
}
