import { z } from 'zod'
import { setting } from '../../config/index.ts'
import { refuseAt } from '../../core/index.ts'
import {
  type Answer,
  type BatchReward,
  defineReward,
  TaskRewards,
  type TaskTerm,
  TermConfig,
  termWeight,
} from '../../rewards/index.ts'
import { PointRewardConfig } from './answer-config.ts'
import { type PointSample, scorePoints, settledRewards } from './reward.ts'

/** What a reward sees of an answer that places points: also the parsed answer, with the masks before and after it. */
export interface PointsAnswer extends Answer {
  points: PointSample
}

const PointsTerm = z.strictObject({
  type: z.literal('points').describe('gain, placement and form of an answer that places points for SAM2'),
  weight: termWeight,
  of: setting(z.literal('points'), 'points', 'the answer with its masks'),
  parameters: PointRewardConfig.describe('what each part is worth'),
})

/** The terms every task may use, and the term of this one. */
export const PointsRewards = TaskRewards.extend({
  terms: z
    .array(z.discriminatedUnion('type', [...TermConfig.options, PointsTerm]))
    .min(1)
    .describe('what is scored; the reward is the weighted mean'),
  shaping: setting(z.literal('none'), 'none', 'no factor: an answer has no caption whose words count'),
})
export type PointsRewards = z.infer<typeof PointsRewards>

export function openTerm(term: PointsRewards['terms'][number], maxTurns: number): TermConfig | TaskTerm {
  if (term.type !== 'points') return term
  const { weight, of, parameters } = term
  return { type: 'task', weight, of, reward: pointsReward(parameters, maxTurns) }
}

/**
 * The points of an answer as one term of the mix. A group whose rewards differ by rounding alone has one reward. `maxTurns`: answers of a
 * trajectory (`points.turns`); each has its price.
 */
export function pointsReward(parameters: PointRewardConfig, maxTurns = Number.POSITIVE_INFINITY): BatchReward {
  return defineReward({
    name: 'points',
    range: rangeOf(parameters, maxTurns),
    doc: 'Overlap gained by the points, their placement and the form of the answer; penalties for duplicates and strays.',
    scoreBatch(answers) {
      const scores = answers.map(({ id, points }: Partial<PointsAnswer>) => {
        if (points) return scorePoints(points, parameters).reward
        return refuseAt(`sample ${id}`)('points', 'an answer that places points', 'none')
      })
      return settledRewards(scores)
    },
  })
}

/** No reward can be outside: the sum of what every part can give or take. */
function rangeOf(p: PointRewardConfig, maxTurns: number): readonly [number, number] {
  const placement = Math.abs(p.placement) * Math.max(p.alpha, p.beta, Math.abs(p.abstainBonus))
  const most = Math.abs(p.iou) + Math.abs(p.gain) + placement + Math.abs(p.format) + Math.abs(p.none)
  const least = most + p.dup + p.oob + p.extra + p.over + (p.turn > 0 ? p.turn * maxTurns : 0)
  return [Math.min(-least, p.invalid), Math.max(most, p.invalid)]
}
