import { Mismatch } from '../core/index.ts'
import type { PointRewardConfig } from './points-config.ts'
import { scorePoints, settledRewards } from './points-reward.ts'
import { type BatchReward, defineReward } from './reward.ts'

/** The points of an answer as one term of the mix. A group whose rewards differ by rounding alone has one reward. */
export function pointsReward(parameters: PointRewardConfig): BatchReward {
  return defineReward({
    name: 'points',
    range: rangeOf(parameters),
    doc: 'Overlap gained by the points, their placement and the form of the answer; penalties for duplicates and strays.',
    scoreBatch(answers) {
      const scores = answers.map(({ id, points }) => {
        if (points) return scorePoints(points, parameters).reward
        throw new Mismatch({
          where: `sample ${id}`,
          field: 'points',
          expected: 'an answer that places points',
          got: 'none',
        })
      })
      return settledRewards(scores)
    },
  })
}

/** No reward can lie outside: the sum of what every part can give or take. */
function rangeOf(p: PointRewardConfig): readonly [number, number] {
  const placement = Math.abs(p.placement) * Math.max(p.alpha, p.beta, Math.abs(p.abstainBonus))
  const most = Math.abs(p.iou) + Math.abs(p.gain) + placement + Math.abs(p.format) + Math.abs(p.none)
  const least = most + p.dup + p.oob + p.extra + p.over
  return [Math.min(-least, p.invalid), Math.max(most, p.invalid)]
}
