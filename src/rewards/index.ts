// Rewards: mask overlap, METEOR, an LLM judge, length, form and rewards of the user's own, and how they are mixed.
// May import core, config, image and mask. Sees strings and masks, never tensors.
// Start reading at reward.ts, then mix.ts.
import { formatReward, iouReward, lengthReward, meteorReward } from './builtin.ts'

export { formatReward, iouReward, judgeReward, lengthReward, maskConfidenceReward, meteorReward } from './builtin.ts'
export { cleanCaption, countWords } from './caption.ts'
export { ciderD } from './cider.ts'
export * from './config.ts'
export { iouOf } from './iou.ts'
export { JudgeClient } from './judge/client.ts'
export { talksToJudge } from './judge/hostile.ts'
export { Judge } from './judge/judge.ts'
export { parseChoice } from './judge/reply.ts'
export * from './judge/stats.ts'
export { askedJudge, describeJudge, judgedTasks, judgeTarget, requireOwnWord } from './judge/target.ts'
export * from './load.ts'
export * from './meteor/index.ts'
export { type ScoredRow, scoreGroup } from './mix.ts'
export * from './reward.ts'
export * from './terms.ts'

/** The rewards that need no server, by name, with the settings and fields of the default preset. */
export const rewards = {
  iou: iouReward('maskPrime'),
  meteor: meteorReward('captionPrime'),
  length: lengthReward('caption'),
  format: formatReward('text'),
}
