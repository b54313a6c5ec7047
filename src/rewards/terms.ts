import { Mismatch } from '../core/index.ts'
import { formatReward, iouReward, judgeReward, lengthReward, meteorReward } from './builtin.ts'
import type { LoopRewards, Produced, RewardsConfig, TermConfig } from './config.ts'
import { iouCounts } from './iou.ts'
import { Judge } from './judge/judge.ts'
import { loadReward } from './load.ts'
import { AvailabilityWatch, type ScoreOptions } from './mix.ts'
import { announce, checkProduced, resolveRewards } from './presets.ts'
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

export interface LoopScoring {
  terms: Term[]
  options: ScoreOptions
}

export interface OpenRewards {
  loop1: LoopScoring
  loop2: LoopScoring
  judge: Judge | undefined
  /** Told the groups of each step; throws when the judge is away too often. */
  watch: AvailabilityWatch
  metrics(): Record<string, number>
  close(): void
}

/** All a run needs to score both loops. What cannot work (a missing module, a judge that does not answer) is told here. */
export async function openRewards(
  config: RewardsConfig,
  produced: Record<'loop1' | 'loop2', readonly Produced[]>,
  env: NodeJS.ProcessEnv = process.env,
): Promise<OpenRewards> {
  const resolved = resolveRewards(config)
  checkProduced(resolved.loop1, produced.loop1, 'loop1')
  checkProduced(resolved.loop2, produced.loop2, 'loop2')
  announce(resolved)
  const asks = [resolved.loop1, resolved.loop2].some((loop) => loop.terms.some((t) => t.type === 'judge'))
  const judge = asks ? new Judge(config.judge, env) : undefined
  try {
    await judge?.health()
    const loop = async (rewards: LoopRewards, of: 'caption' | 'captionPrime'): Promise<LoopScoring> => {
      return { terms: await buildTerms(rewards, config, judge), options: scoreOptions(rewards, config, of) }
    }
    return {
      loop1: await loop(resolved.loop1, 'caption'),
      loop2: await loop(resolved.loop2, 'captionPrime'),
      judge,
      watch: new AvailabilityWatch(config.judge.maxUnavailableFraction),
      metrics: () => ({ ...judge?.metrics(), 'iou/nan': iouCounts.nan }),
      close: () => judge?.close(),
    }
  } catch (error) {
    judge?.close()
    throw error
  }
}
