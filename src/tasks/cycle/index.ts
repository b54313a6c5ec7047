// The two round trips: mask -> caption -> mask' and caption -> mask -> caption'.
// Start reading at mask-to-caption.ts, then caption-to-mask.ts.
import type { TaskKind } from '../kind.ts'
import { CaptionToMask } from './caption-to-mask.ts'
import { type CycleConfig, checkCycle, hasOwnKl, requireGrounded } from './config.ts'
import { cycleEvaluator } from './evaluate.ts'
import { cycleLessons } from './lessons.ts'
import { MaskToCaption } from './mask-to-caption.ts'
import { resolvePreset, resolveRewards } from './rewards.ts'

const read = ['loop1.question', 'rewards.iou.multiSeg']

export const cycle: TaskKind<CycleConfig> = {
  name: 'cycle',
  doc: 'mask -> caption -> mask and caption -> mask -> caption',
  reads: { eval: read, sft: read, plan: ['loop2.maskLoss'] },
  check: checkCycle,
  hasOwnKl,
  resolve: ({ rewards }, input) => ({
    rewards: { ...rewards, preset: resolvePreset((input['rewards'] ?? {}) as object, rewards) },
  }),
  rewards: ({ rewards }) => resolveRewards(rewards),
  build(family, config) {
    const both = { family: requireGrounded(family), config }
    return [new MaskToCaption(both), new CaptionToMask(both)].filter((task) => task.weight > 0)
  },
  evaluator: (family, config) => cycleEvaluator({ family: requireGrounded(family), config }),
  lessons: {
    goal: (_, { maskWeight }) => `cross-entropy of both answers, BCE and Dice of the mask (weight ${maskWeight})`,
    open: (family, { checkpointing }, options) => cycleLessons(requireGrounded(family), { ...options, checkpointing }),
  },
}
