// Masks of the objects in a picture without a user's prompt: a grid of clicks, of which the confident and stable masks stay.
import type { RgbImage } from '../image/index.ts'
import { type Mask, maskArea, maskIou } from '../mask/index.ts'
import { tidy } from '../tensor/index.ts'
import type { ClickMask, ClickPrompt, Segmenter } from './segmenter.ts'

/** When a mask of a click counts as an object. */
export interface ProposalRules {
  /** Clicks along the longer side of the picture. */
  clicks: number
  /** Lowest overlap with an object as the segmenter itself predicts it. */
  minConfidence: number
  /** Lowest overlap of the masks with logits above +1 and above -1: 1 is a sharp border. */
  minStability: number
  /** Of two masks with a larger overlap the less confident one is a duplicate. */
  maxOverlap: number
  /** Smallest and largest share of the picture. */
  area: readonly [number, number]
  /** Masks of one picture: the largest, objects rather than their parts. */
  max: number
}

export const proposalRules: ProposalRules = {
  clicks: 10,
  minConfidence: 0.88,
  minStability: 0.9,
  maxOverlap: 0.6,
  area: [0.01, 0.6],
  max: 8,
}

export interface Proposal {
  mask: Mask
  confidence: number
  stability: number
}

/** Duplicates are found on small masks; only those that stay are drawn in the size of the picture. */
const smallSide = 256

export function proposeMasks(segmenter: Segmenter, image: RgbImage, rules = proposalRules): Proposal[] {
  const { height, width } = image
  const scale = Math.min(1, smallSide / Math.max(height, width))
  const small = { height: Math.max(1, Math.round(height * scale)), width: Math.max(1, Math.round(width * scale)) }
  const features = segmenter.encode(image)
  try {
    const prompts = gridOfClicks(segmenter.inputSize(image), rules.clicks)
    const drawn = segmenter.draw(features, prompts, { ...small, multimask: true, keepLogits: true })
    const candidates = drawn.map((d, i) => ({ ...d, prompt: prompts[i]!, stability: stabilityOf(d) }))
    const unique = withoutDuplicates(candidates.filter(isObject(small, rules)), rules)
    const kept = unique.sort((a, b) => maskArea(b.mask) - maskArea(a.mask)).slice(0, rules.max)
    const chosen = kept.map(({ prompt }) => prompt)
    const full = segmenter.draw(features, chosen, { height, width, multimask: true })
    return kept.map(({ confidence, stability }, i) => ({ mask: full[i]!.mask, confidence, stability }))
  } finally {
    for (const tensor of Object.values(features)) tensor.dispose()
  }
}

/** Clicks in the middle of equal cells, in the frame of the segmenter's input. */
export function gridOfClicks({ height, width }: { height: number; width: number }, clicks: number): ClickPrompt[] {
  const cell = Math.max(height, width) / clicks
  const [rows, columns] = [Math.max(1, Math.round(height / cell)), Math.max(1, Math.round(width / cell))]
  return Array.from({ length: rows * columns }, (_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns]
    return { points: [[((column + 0.5) * width) / columns, ((row + 0.5) * height) / rows] as const], labels: [1] }
  })
}

/** Overlap of the masks at two thresholds of the logits, which are freed. */
function stabilityOf({ logits }: ClickMask): number {
  const count = (threshold: number) => tidy(() => logits!.gt(threshold).sum()).item()
  const [inner, outer] = [count(1), count(-1)]
  logits!.dispose()
  return outer === 0 ? 0 : inner / outer
}

function isObject({ height, width }: { height: number; width: number }, rules: ProposalRules) {
  return ({ mask, confidence, stability }: Proposal): boolean => {
    const share = maskArea(mask) / (height * width)
    const [least, largest] = rules.area
    return confidence >= rules.minConfidence && stability >= rules.minStability && share >= least && share <= largest
  }
}

/** The most confident first; what overlaps an earlier one too much is left out. */
export function withoutDuplicates<P extends Proposal>(proposals: readonly P[], { maxOverlap }: ProposalRules): P[] {
  const kept: P[] = []
  for (const proposal of [...proposals].sort((a, b) => b.confidence - a.confidence))
    if (kept.every(({ mask }) => maskIou(mask, proposal.mask) <= maxOverlap)) kept.push(proposal)
  return kept
}
