// The two questions both loops ask: describe this region, find this phrase. Greedy or sampled, batched over rows.
import { type Generated, type GenerateOptions, generate, type PromptIds } from '../../llm/index.ts'
import { isEmptyMask, type Mask, maskUnion } from '../../mask/index.ts'
import type { GroundedFamily } from '../../models/index.ts'
import { cleanCaption, type MaskConfidence } from '../../rewards/index.ts'
import { cat, tidy, tidyNoGrad } from '../../tensor/index.ts'
import { cutAnswer } from '../../text/index.ts'
import { generateOptions, type SampleOptions } from '../generate-options.ts'
import { confidencesOf } from './action.ts'
import type { Cycle } from './config.ts'

export interface AskOptions {
  /** Absent: greedy. */
  sampled?: Omit<SampleOptions, 'rl'>
  /** The answer is a caption: it may hold no [SEG] and nothing that stands for images and regions. */
  caption?: boolean
}

function options({ family, config }: Cycle, { sampled, caption }: AskOptions): GenerateOptions {
  const { rl } = config
  return {
    ...generateOptions(rl.maxCompletionLength, family.stopWords, sampled && { rl, ...sampled }),
    segId: family.segId,
    ...(caption ? { suppressIds: family.captionSuppressIds } : {}),
  }
}

/** Rows in prompt-major order; returned tensors belong to the current scope. */
export function ask(cycle: Cycle, prompts: readonly PromptIds[], asked: AskOptions = {}): Generated[] {
  const { model, tokenizer } = cycle.family
  return generate(model, tokenizer, prompts, options(cycle, asked))
}

/** The caption in an answer, as rewards and the other model see it. */
export function captionOf({ family }: Pick<Cycle, 'family'>, text: string): string {
  return cleanCaption(cutAnswer(text, family.stopWords))
}

export interface Region {
  features: object
  mask: Mask
}

/** What `ask` says of those that can be asked about, in their places; null for the others. */
export function askSome<T, R>(
  all: readonly T[],
  askable: (one: T) => boolean,
  ask: (some: readonly T[]) => readonly R[],
): (R | null)[] {
  const places = all.map((_, i) => i).filter((i) => askable(all[i]!))
  const said = ask(places.map((i) => all[i]!))
  const out: (R | null)[] = all.map(() => null)
  places.forEach((i, j) => {
    out[i] = said[j]!
  })
  return out
}

/** Captions of regions, greedily; null for an empty mask, which cannot be asked about. */
export function describeAll(cycle: Cycle, regions: readonly Region[]): (string | null)[] {
  const texts = (some: readonly Region[]) =>
    tidyNoGrad(() =>
      ask(
        cycle,
        some.map((r) => cycle.family.describe(r.features, r.mask, cycle.config.loop1.question)),
        { caption: true },
      ).map((g) => captionOf(cycle, g.text)),
    )
  return askSome(regions, (r) => !isEmptyMask(r.mask), texts)
}

export interface Phrase {
  features: object
  caption: string
}

export interface Found {
  mask: Mask | null
  text: string
  /** [SEG] tokens in the answer. */
  segs: number
  /** Of the first [SEG]'s mask. */
  confidence: MaskConfidence | null
}

/** Masks of phrases, greedily; null when the answer has no [SEG]. Equal phrases of one image are asked once. */
export function segmentAll(cycle: Cycle, phrases: readonly Phrase[]): Found[] {
  const { family } = cycle
  const unique: Phrase[] = []
  const slot = phrases.map((p) => {
    const same = unique.findIndex((u) => u.features === p.features && u.caption === p.caption)
    return same >= 0 ? same : unique.push(p) - 1
  })
  const found = tidyNoGrad(() => {
    const rows = ask(
      cycle,
      unique.map((p) => family.segment(p.features, p.caption)),
    )
    const masks = drawAll(family, unique, rows, cycle.config.rewards.iou.multiSeg)
    return rows.map(({ ids, text }, i): Found => {
      return { ...masks[i]!, text, segs: ids.filter((id) => id === family.segId).length }
    })
  })
  return slot.map((i) => found[i]!)
}

/** Masks drawn in one pass, whatever images they are of: what the decoder holds grows with them. */
const drawnTogether = 16

/** The mask of each answer's first [SEG], or the union of all of them. */
function drawAll(
  family: GroundedFamily,
  phrases: readonly Phrase[],
  rows: readonly Generated[],
  several: 'first' | 'union',
): Pick<Found, 'mask' | 'confidence'>[] {
  const out: Pick<Found, 'mask' | 'confidence'>[] = rows.map(() => ({ mask: null, confidence: null }))
  const segs = rows.flatMap(({ segStates }, row) => {
    const used = !segStates ? 0 : several === 'first' ? 1 : segStates.size(0)
    const { features } = phrases[row]!
    return Array.from({ length: used }, (_, j) => ({ row, features, state: segStates!.narrow(0, j, 1) }))
  })
  for (let from = 0; from < segs.length; from += drawnTogether) {
    const some = segs.slice(from, from + drawnTogether)
    tidy(() => {
      const drawn = family.drawMasks(
        some.map((s) => s.features),
        family.segPrompts(cat(some.map((s) => s.state))),
      )
      const sure = confidencesOf(drawn)
      const masks = family.finishMasks(
        some.map((s) => s.features),
        drawn.logits,
      )
      some.forEach(({ row }, j) => {
        const mask = masks[j]!
        const before = out[row]!
        out[row] = before.mask ? { ...before, mask: maskUnion(before.mask, mask) } : { mask, confidence: sure[j]! }
      })
    })
  }
  return out
}
