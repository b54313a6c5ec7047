import { Mismatch } from '../core/index.ts'
import { formatReward, iouReward, judgeReward, lengthReward, meteorReward } from './builtin.ts'
import type { LoopRewards, RewardsConfig, TermConfig } from './config.ts'
import type { Judge } from './judge/judge.ts'
import { loadReward } from './load.ts'
import type { ScoreOptions } from './mix.ts'
import type { Reward, Term } from './reward.ts'

async function rewardOf(term: TermConfig, config: RewardsConfig, judge: Judge | undefined): Promise<Reward> {
  switch (term.type) {
    case 'iou':
      return iouReward(term.of, config.iou)
    case 'meteor':
      return meteorReward(term.of, config.meteor)
    case 'length':
      return lengthReward(term.of, config.length)
    case 'format':
      return formatReward(term.of)
    case 'module':
      return loadReward(term.path)
    case 'judge':
      if (!judge)
        throw new Mismatch({
          where: 'rewards',
          field: 'judge',
          expected: 'a judge',
          got: 'none',
          hint: 'set judge.enabled',
        })
      return judgeReward(judge, term.of, config.meteor)
  }
}

/** A loop's terms, ready to score. */
export async function buildTerms(loop: LoopRewards, config: RewardsConfig, judge?: Judge): Promise<Term[]> {
  return Promise.all(
    loop.terms.map(async (term) => ({ reward: await rewardOf(term, config, judge), weight: term.weight })),
  )
}

/** How a loop's groups are scored: the judge's policy, and the shaping of the loop's own caption. */
export function scoreOptions(loop: LoopRewards, config: RewardsConfig, of: 'caption' | 'captionPrime'): ScoreOptions {
  const { onUnavailable } = config.judge
  return loop.shaping === 'none' ? { onUnavailable } : { onUnavailable, shaping: { of, length: loop.shaping } }
}
