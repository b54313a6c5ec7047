// How an answer that places points is read, and what it is worth. Keys are those of the task's settings.
import { z } from 'zod'
import { oneOf, setting } from '../../config/index.ts'

export const pointModes = ['negatives', 'second-look', 'joint'] as const
export type PointMode = (typeof pointModes)[number]

export const coordinateKinds = ['pixel', 'thousand', 'unit'] as const
export type CoordinateKind = (typeof coordinateKinds)[number]

/** What decides how a text becomes points. */
export const PointAnswerConfig = z.strictObject({
  mode: oneOf(
    pointModes,
    'negatives: points outside the object; second-look: corrections of a mask it sees; joint: box and points',
  ),
  coords: z.enum(coordinateKinds).default('pixel'),
  thinking: setting(z.boolean(), false, 'whether the model thinks inside <think> before <answer>'),
  maxPoints: setting(
    z.int().positive().max(1024),
    3,
    'points that are kept of one list; the rest is dropped and counted',
  ),
  allowEmpty: setting(z.boolean(), true, 'whether an empty list of negative points is a valid answer'),
  oob: oneOf(['drop', 'invalid'], 'a point outside the image is dropped and counted, or makes the answer invalid'),
  dupRadius: setting(
    z.number().nonnegative().nullable(),
    0.01,
    'points nearer than this share of the longer side are duplicates; null keeps them',
  ),
  formatScore: oneOf(
    ['graded', 'binary'],
    'graded: 1 for exactly the asked form, 0.5 for every other valid one; binary: 1 for every valid one',
  ),
  turns: setting(z.int().positive().max(64), 1, 'second-look: how often the model may look and answer'),
})
export type PointAnswerConfig = z.infer<typeof PointAnswerConfig>

/** What an answer is worth. The weights are those of a sum, not of a mean. */
export const PointRewardConfig = z.strictObject({
  iou: z.number().describe('weight of the overlap after the answer'),
  gain: z.number().describe('weight of the overlap gained by the answer'),
  gainKind: z
    .enum(['absolute', 'relative'])
    .describe('the gain itself, or as a share of the best that error-centre clicks gain on the record'),
  gainEps: z.number().positive().describe('added to the divisor of the relative gain'),
  placement: z.number().describe('weight of the share of points in the right place minus that in a wrong one'),
  alpha: z.number().nonnegative().describe('what a point in a wrong place costs'),
  beta: z.number().nonnegative().describe('what a point in the right place earns'),
  format: z.number().describe('weight of the format score'),
  dup: z.number().nonnegative().describe('penalty for the share of duplicates'),
  oob: z.number().nonnegative().describe('penalty for the share of points outside the image'),
  extra: z.number().nonnegative().describe('penalty for more points than allowed'),
  abstainBonus: z.number().describe('placement of an empty answer if there is nothing to correct'),
  tau: z.number().nonnegative().describe('an error below this share of the object is nothing to correct'),
  over: z.number().nonnegative().describe('turns above 1: penalty for what was lost since the best turn'),
  turn: z.number().nonnegative().describe('turns above 1: price of a turn'),
  none: z.number().describe('records without a target: weight of saying or drawing nothing'),
  invalid: z.number().describe('reward of an answer that cannot be read'),
})
export type PointRewardConfig = z.infer<typeof PointRewardConfig>

/** Reward settings by the names of the specification and of the Python prototype. */
export const specifiedRewards: Readonly<Record<string, keyof PointRewardConfig>> = {
  w_iou: 'iou',
  w_gain: 'gain',
  gain: 'gainKind',
  gain_eps: 'gainEps',
  w_neg: 'placement',
  alpha: 'alpha',
  beta: 'beta',
  w_format: 'format',
  w_dup: 'dup',
  w_oob: 'oob',
  w_extra: 'extra',
  abstain_bonus: 'abstainBonus',
  tau: 'tau',
  w_over: 'over',
  w_turn: 'turn',
  w_none: 'none',
  r_invalid: 'invalid',
}

export const pointPresetNames = ['default', 'origin'] as const
export type PointPreset = (typeof pointPresetNames)[number]

const common: PointRewardConfig = {
  iou: 0,
  gain: 1,
  gainKind: 'absolute',
  gainEps: 0.05,
  placement: 0.3,
  alpha: 1,
  beta: 1,
  format: 0.1,
  dup: 0.1,
  oob: 0.2,
  extra: 0.1,
  abstainBonus: 0.5,
  tau: 0.01,
  over: 1,
  turn: 0.01,
  none: 1,
  invalid: -1,
}

/** In joint the overlap itself counts: a bad prompt of the policy's own would make a gain easy. */
export function pointRewardPreset(name: PointPreset, mode: PointMode): PointRewardConfig {
  const whole = { ...common, iou: 1, gain: 0 }
  if (name === 'default') return mode === 'joint' ? whole : common
  return { ...whole, dup: 0, oob: 0, extra: 0, abstainBonus: 0, over: 0, turn: 0, invalid: 0 }
}

/** What a preset changes in how answers are read. */
export function pointAnswerPreset(name: PointPreset): Partial<PointAnswerConfig> {
  return name === 'default' ? {} : { allowEmpty: false, oob: 'invalid', dupRadius: null, formatScore: 'binary' }
}
