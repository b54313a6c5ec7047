// Shared by the tasks whose answer is a text about an image that a segmenter draws (points, reason). `group` names their settings.
import { refuseAt } from '../../core/index.ts'
import { trainGroupNames } from '../../models/index.ts'
import type { CommonSettings, LessonOptions } from '../kind.ts'

const otherGroups = trainGroupNames.filter((group) => group !== 'lora')
const noText = 'the answers are points, which only their masks score'

/** Common settings that are not used, and why. */
export function unusedByAsking(group: string): Record<string, string> {
  return {
    maxTiles: `images are stretched to ${group}.imageSize`,
    region: 'the object is marked in the words of the question',
    rounding: `the masks are drawn by ${group}.sam, which has no such choice`,
    adaptiveLoops: 'there is one loss to weigh',
    ...Object.fromEntries(otherGroups.map((name) => [`lrScale.${name}`, 'only lora learns'])),
    'rewards.judge': noText,
    'rewards.meteor': noText,
    'rewards.length': noText,
  }
}

export function checkAsking(group: string, sam: string, config: CommonSettings): void {
  const refuse = refuseAt('settings')
  const { model } = config as { model?: string }
  if (sam === '' && model) refuse(`${group}.sam`, 'a SAM2 checkpoint', 'nothing', `give --${group}.sam FILE`)
  const other = config.train.filter((name) => name !== 'lora')
  if (other.length > 0) refuse('train', 'lora: nothing else learns in this task', other.join(', '), '--train lora')
}

export function checkLessonOptions({ everything, maskWeight }: LessonOptions): void {
  const refuse = refuseAt('sft')
  if (everything) refuse('train', 'lora: nothing else learns in this task', 'all', '--train lora')
  if (maskWeight !== 1) refuse('maskWeight', 'nothing: this task has no mask loss', maskWeight)
}
