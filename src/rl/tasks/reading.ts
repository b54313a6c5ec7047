// The two questions both loops ask: describe this region, find this phrase. Greedy or sampled, batched over rows.
import type { RandomStream } from '../../core/index.ts'
import { type Mask, maskArea } from '../../mask/index.ts'
import { type Features, type Generated, type GenerateOptions, generate, type Prompt } from '../../models/index.ts'
import { cleanCaption } from '../../rewards/index.ts'
import { noGrad, tidy } from '../../tensor/index.ts'
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
      return rows.map((row, i): Found => {
        const segs = row.ids.filter((id) => id === prompter.segId).length
        if (!row.segStates) return { mask: null, text: row.text, segs }
        const drawn = model.drawMasks(unique[i]!.features, model.segPrompts(row.segStates.narrow(0, 0, 1)))
        return { mask: model.finishMasks(unique[i]!.features, drawn.logits)[0]!, text: row.text, segs }
      })
    }),
  )
  return slot.map((i) => found[i]!)
}
