import { z } from 'zod'
import { oneOf, optional, setting } from '../../config/index.ts'
import { type Refuse, refuseAt } from '../../core/index.ts'
import { type Family, type GroundedFamily, isGrounded } from '../../models/index.ts'
import { TaskRewards } from '../../rewards/index.ts'
import type { CommonSettings } from '../kind.ts'

/** Settings of the two round trips, under the names that runs and flags have always had. */
export const cycleSettings = {
  loop1: z
    .strictObject({
      weight: setting(z.number().nonnegative(), 1, 'weight of mask -> caption -> mask in the loss; 0 switches it off'),
      question: z.string().optional().describe("the question about a region; the model family's own if absent"),
    })
    .prefault({})
    .describe('mask -> caption -> mask'),
  loop2: z
    .strictObject({
      weight: setting(
        z.number().nonnegative(),
        1,
        'weight of caption -> mask -> caption in the loss; 0 switches it off',
      ),
      action: oneOf(
        ['both', 'field', 'embedding', 'text'],
        'what is sampled: the [SEG] prompt and the pooled mask logits drawn from it, one of the two, or the answer text alone',
      ),
      actionStd: setting(
        z.number().positive(),
        1,
        'noise on the mask logits, as a multiple of their spread over records, measured at the start',
      ),
      promptStd: setting(
        z.number().positive(),
        0.6,
        'noise on the [SEG] prompt, as a multiple of its spread over records, measured at the start',
      ),
      grid: setting(z.int().positive().max(256), 4, 'side of the grid of mask logits that is perturbed'),
      beta: optional(z.number().nonnegative(), 'weight of the KL term in this loop; rl.beta if null'),
      sampleText: setting(z.boolean(), false, 'sample the answer text instead of decoding it greedily'),
      maskLoss: setting(
        z.number().nonnegative(),
        0,
        'weight of the supervised BCE + Dice term on the undisturbed mask',
      ),
    })
    .prefault({})
    .describe('caption -> mask -> caption'),
} as const

export const presetNames = ['cycle', 'cycle-judge', 'caption', 'mixed'] as const
export type PresetName = (typeof presetNames)[number]

/** Settings of the rewards of the two round trips. */
export const cycleRewardSettings = {
  preset: oneOf(presetNames, 'terms of both loops, unless given below; caption if absent and judgeLoop1 is set'),
  loop1: TaskRewards.optional().describe('mask to caption to mask'),
  loop2: TaskRewards.optional().describe('caption to mask to caption'),
  judgeLoop1: setting(
    z.boolean(),
    false,
    'ask the judge (--use_llm_judge). Loop 1 is meteor 0.25 + judge 0.75 unless preset or loop1 is given; these keep their terms, and if no loop has a judge term, meteor 0.25 + judge 0.75 are added to loop 1',
  ),
  judgeLoop2: setting(
    z.boolean(),
    false,
    "ask the judge in loop 2 (--use_llm_judge_loop2): it takes three quarters of METEOR's weight, so meteor 1 becomes meteor 0.25 + judge 0.75",
  ),
} as const

const CycleSettings = z.object(cycleSettings)
const CycleRewardSettings = z.object(cycleRewardSettings)

export interface CycleConfig extends CommonSettings, z.infer<typeof CycleSettings> {
  readonly rewards: CommonSettings['rewards'] & z.infer<typeof CycleRewardSettings>
}

/** What both round trips ask with: a model that describes and draws, and the settings. */
export interface Cycle {
  readonly family: GroundedFamily
  readonly config: CycleConfig
}

export function requireGrounded(family: Family): GroundedFamily {
  if (isGrounded(family)) return family
  const hint = 'one that answers with points takes --task points or --task reason'
  return refuseAt(family.dir)('model', 'one that describes regions and draws masks', family.name, hint)
}

export type MaskActionKind = CycleConfig['loop2']['action']
export const usesPrompt = (action: MaskActionKind) => action === 'both' || action === 'embedding'
export const usesField = (action: MaskActionKind) => action === 'both' || action === 'field'

const refuse: Refuse = refuseAt('settings')

export function checkCycle(c: CycleConfig): void {
  if (c.loop1.weight === 0 && c.loop2.weight === 0)
    refuse('loop1.weight, loop2.weight', 'at least one loop with a weight', 0)
  if (c.loop2.action === 'text' && c.loop2.weight > 0 && !c.loop2.sampleText) {
    const hint = 'a greedy answer gives K equal masks: no spread, no gradient'
    refuse('loop2.sampleText', 'true with loop2.action text', false, hint)
  }
  if (c.rl.lossType === 'luspo' && (c.loop2.beta ?? 0) !== 0) refuse('loop2.beta', '0 or null for luspo', c.loop2.beta)
  checkKl(c)
  const unreached = unreachedGroups(c)
  if (unreached.length > 0) {
    const hint =
      'use loop2.action both, set loop2.maskLoss, or leave them out of train (--train mlp1,lora for the first loop alone)'
    refuse('train', 'groups that the enabled losses reach', unreached.join(', '), hint)
  }
}

/** Whether a loop has a KL term whatever `rl.beta` says. */
export const hasOwnKl = ({ loop2 }: Pick<CycleConfig, 'loop2'>): boolean => (loop2.beta ?? 0) > 0

/** Settings that say whether masks are learned from with supervision too: the answer is then read once more. */
export type MaskSupervision = { loop2: Pick<CycleConfig['loop2'], 'maskLoss'> }
export const supervisesMasks = ({ loop2 }: MaskSupervision): boolean => loop2.maskLoss > 0

/** A reference that moves, or a corrected KL, needs a loop that has a KL term. */
function checkKl({ rl, loop1, loop2 }: CycleConfig): void {
  if ((loop1.weight > 0 && rl.beta > 0) || (loop2.weight > 0 && (loop2.beta ?? rl.beta) > 0)) return
  const hint = 'no loop that is on has a KL term: set rl.beta or loop2.beta'
  for (const field of ['syncRefModel', 'useBiasCorrectionKl'] as const)
    if (rl[field]) refuse(`rl.${field}`, 'false', true, hint)
}

/** Groups no enabled loss has a path to: they would be called trainable and never move. */
export function unreachedGroups(c: CycleConfig): string[] {
  const { action, maskLoss, weight } = c.loop2
  const reached = new Set(['mlp1', 'lora', 'embeddings'])
  if (c.loop1.weight > 0 || c.loop2.sampleText || (c.loop2.beta ?? c.rl.beta) > 0) reached.add('head')
  if (weight > 0 && (usesPrompt(action) || maskLoss > 0)) reached.add('text_hidden_fcs')
  if (weight > 0 && (usesField(action) || maskLoss > 0)) {
    reached.add('mask_decoder')
    reached.add('prompt_encoder')
  }
  return c.train.filter((group) => !reached.has(group))
}
