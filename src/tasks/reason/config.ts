import { z } from 'zod'
import { oneOf, refusalOf, setting } from '../../config/index.ts'
import type { CoordinateKind } from '../points/answer-config.ts'
import { PointsConfig } from '../points/config.ts'

export const reasonPresets = ['default', 'vision-reasoner', 'seg-zero', 'vlm-r1'] as const
export type ReasonPreset = (typeof reasonPresets)[number]

/** objects: a list with box and point of each; single: one box and two points; box: one box. */
export type AnswerForm = 'objects' | 'single' | 'box'

const weight = (doc: string) => z.number().nonnegative().describe(doc)

/** Weights of the terms, each from 0 to 1; 0 switches one off. */
export const ReasonRewardConfig = z.strictObject({
  thinking: weight('a thought before the answer'),
  format: weight('the form of the answer'),
  mask: weight('IoU of the mask'),
  boxIou: weight('IoU of matched boxes'),
  boxL1: weight('close corners of matched boxes'),
  point: weight('close points of matched objects'),
  count: weight('number of objects'),
  nonRepeat: weight('no repeated sentences'),
})
export type ReasonRewardConfig = z.infer<typeof ReasonRewardConfig>

export const termNames = ['thinking', 'format', 'mask', 'boxIou', 'boxL1', 'point', 'count', 'nonRepeat'] as const
export type TermName = (typeof termNames)[number]

const { sam, coords, imageSize, wording } = PointsConfig.shape

export const ReasonConfig = z.strictObject({
  sam: sam.describe('as points.sam'),
  coords: coords.describe('as points.coords'),
  imageSize: imageSize.describe('as points.imageSize'),
  wording: wording.describe('as points.wording'),
  multimask: setting(z.boolean(), true, "best of SAM2's three proposals instead of its single mask"),
  noTarget: oneOf(['drop', 'keep'], 'records with an empty mask; keep: [] is their answer'),
  preset: setting(z.enum(reasonPresets), 'default', 'form of the answer and rewards'),
  reward: ReasonRewardConfig.partial().default({}).describe('weights of reward terms; 0: off'),
  taughtNoise: setting(
    z.number().min(0).max(1),
    0,
    'sft: random shift of taught coordinates, as a share of the side: teaches the form without the place',
  ),
})
/** Of a known model: its coordinates are decided. */
export type ReasonConfig = Omit<z.infer<typeof ReasonConfig>, 'coords'> & { coords: CoordinateKind }
export type ReasonInput = z.input<typeof ReasonConfig>

/** `usual`: the coordinates that the model's family writes. */
export function resolveReason(input: ReasonInput = {}, usual: CoordinateKind = 'pixel'): ReasonConfig {
  const parsed = ReasonConfig.safeParse(input)
  if (parsed.success) return { ...parsed.data, coords: parsed.data.coords ?? usual }
  throw refusalOf(parsed.error, input, 'reason')
}

const visionReasoner: ReasonRewardConfig = {
  thinking: 1,
  format: 2,
  mask: 0,
  boxIou: 1,
  boxL1: 1,
  point: 1,
  count: 0,
  nonRepeat: 1,
}

/** The published weights; format of vision-reasoner counts twice because its score reaches 2 there. */
const rewardPresets: Record<ReasonPreset, ReasonRewardConfig> = {
  default: { ...visionReasoner, mask: 1 },
  'vision-reasoner': visionReasoner,
  'seg-zero': { ...visionReasoner, format: 1, nonRepeat: 0 },
  'vlm-r1': { ...visionReasoner, thinking: 0, format: 1, boxL1: 0, point: 0, nonRepeat: 0 },
}

export function rewardOfReason({ preset, reward }: Pick<ReasonConfig, 'preset' | 'reward'>): ReasonRewardConfig {
  const changes = Object.entries(reward).filter(([, value]) => value !== undefined)
  return { ...rewardPresets[preset], ...Object.fromEntries(changes) }
}

export function formOf(preset: ReasonPreset): AnswerForm {
  return preset === 'seg-zero' ? 'single' : preset === 'vlm-r1' ? 'box' : 'objects'
}
