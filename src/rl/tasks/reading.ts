// The two questions both loops ask: describe this region, find this phrase. Greedy or sampled, batched over rows.
import type { RandomStream } from '../../core/index.ts'
import { type Mask, maskArea } from '../../mask/index.ts'
import {
  type Features,
  type Generated,
  type GenerateOptions,
  generate,
  type Prompt,
  type Sa2VA,
} from '../../models/index.ts'
import { cleanCaption } from '../../rewards/index.ts'
import { cat, noGrad, tidy } from '../../tensor/index.ts'
import { cleanCaption as cutAtStop } from '../../text/index.ts'
import type { TaskContext } from './task.ts'

export interface Sampled {
  samples: number
  random: (row: number, k: number) => RandomStream
}

function options({ learner, config }: TaskContext, sampled?: Sampled): GenerateOptions {
  const { prompter } = learner.loaded
  const { temperature, topK, topP, minP, repetitionPenalty, maxCompletionLength } = config.rl
  return {
    maxNewTokens: maxCompletionLength,
    stopStrings: prompter.template.stopWords,
    segId: prompter.segId,
    samples: sampled?.samples ?? 1,
    ...(sampled ? { sampling: { temperature, topK, topP, minP, repetitionPenalty }, random: sampled.random } : {}),
  }
}

/** Rows in prompt-major order; returned tensors belong to the current scope. */
export function ask(context: TaskContext, prompts: readonly Prompt[], sampled?: Sampled): Generated[] {
  const { model, prompter } = context.learner.loaded
  return generate(model, prompter.tokenizer, prompts, options(context, sampled))
}

export function captionOf(context: TaskContext, text: string): string {
  return cleanCaption(cutAtStop(text, context.learner.loaded.prompter.template.stopWords))
}

export interface Region {
  features: Features
  mask: Mask
}

/** Captions of regions, greedily; null for an empty mask, which cannot be asked about. */
export function describeAll(context: TaskContext, regions: readonly Region[]): (string | null)[] {
  const { prompter } = context.learner.loaded
  const askable = regions.map((r, i) => [r, i] as const).filter(([r]) => maskArea(r.mask) > 0)
  const texts = noGrad(() =>
    tidy(() =>
      ask(
        context,
        askable.map(([r]) => prompter.describe(r.features, r.mask, context.config.loop1.question)),
      ).map((g) => g.text),
    ),
  )
  const out: (string | null)[] = regions.map(() => null)
  askable.forEach(([, i], j) => {
    out[i] = captionOf(context, texts[j]!)
  })
  return out
}

export interface Phrase {
  features: Features
  caption: string
}

export interface Found {
  mask: Mask | null
  text: string
  /** [SEG] tokens in the answer. */
  segs: number
}

/** Masks of phrases, greedily; null when the answer has no [SEG]. Equal phrases of one image are asked once. */
export function segmentAll(context: TaskContext, phrases: readonly Phrase[]): Found[] {
  const { model, prompter } = context.learner.loaded
  const unique: Phrase[] = []
  const slot = phrases.map((p) => {
    const same = unique.findIndex((u) => u.features === p.features && u.caption === p.caption)
    return same >= 0 ? same : unique.push(p) - 1
  })
  const found = noGrad(() =>
    tidy(() => {
      const rows = ask(
        context,
        unique.map((p) => prompter.segment(p.features, p.caption)),
      )
      const masks = drawAll(model, unique, rows)
      return rows.map(({ ids, text }, i): Found => {
        return { mask: masks[i]!, text, segs: ids.filter((id) => id === prompter.segId).length }
      })
    }),
  )
  return slot.map((i) => found[i]!)
}

/** The mask of each answer's first [SEG]; those of one image are drawn together. */
function drawAll(model: Sa2VA, phrases: readonly Phrase[], rows: readonly Generated[]): (Mask | null)[] {
  const out: (Mask | null)[] = rows.map(() => null)
  const ofImage = new Map<Features, number[]>()
  rows.forEach(({ segStates }, i) => {
    const { features } = phrases[i]!
    if (segStates) ofImage.set(features, [...(ofImage.get(features) ?? []), i])
  })
  for (const [features, at] of ofImage) {
    tidy(() => {
      const states = cat(at.map((i) => rows[i]!.segStates!.narrow(0, 0, 1)))
      const { logits } = model.drawMasks(features, model.segPrompts(states))
      at.forEach((i, j) => {
        out[i] = model.finishMasks(features, logits.narrow(0, j, 1))[0]! // one at a time: an image may be large
      })
    })
  }
  return out
}
