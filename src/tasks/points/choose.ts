// Which records are worth training on. SAM2 draws the first mask of each from the positive prompt alone; where it misses the object
// the prompt means something else, and where it is right already there is nothing to learn but to abstain.
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Example } from '../../data/index.ts'
import { maskArea, maskIou } from '../../mask/index.ts'
import type { RecordChooser } from '../kind.ts'
import { keepRecords } from './click-geometry.ts'
import { type PointsConfig, rewardOfPoints } from './config.ts'
import { drawFirst, type PointSetup, positiveOf } from './item.ts'
import { pointRecord } from './records.ts'
import { errorAreas } from './reward.ts'

export function pointChooser(setup: Pick<PointSetup, 'sam' | 'config'>): RecordChooser | null {
  const { config } = setup
  const { keepEasy, mode, positivePrompt, multimask } = config
  if (keepEasy === null || mode === 'joint') return null
  const { tau } = rewardOfPoints(config)
  return {
    files: filesOf(config),
    settings: JSON.stringify({ mode, positivePrompt, multimask }),
    look: (example) => firstMaskOf(setup, example),
    choose(numbers) {
      const known = numbers.flatMap((row, i) => (row ? [{ i, iou0: row[0]!, error: row[1]!, target: row[2]! }] : []))
      const { kept, hard, easy, easyKept } = keepRecords(known, tau, keepEasy)
      const unread = numbers.flatMap((row, i) => (row ? [] : [i]))
      const positions = [...kept.map((k) => known[k]!.i), ...unread].sort((a, b) => a - b)
      const summary = `${kept.length} of ${known.length} records are trained on; ${hard} left out: the first mask misses the object (IoU below 0.05); ${easy} easy: nothing to correct, ${easyKept} of them kept`
      return { kept: positions, summary }
    },
  }
}

/** Overlap of the first mask, pixels where it is wrong, pixels of the object. */
function firstMaskOf(setup: Pick<PointSetup, 'sam' | 'config'>, example: Example): number[] {
  const record = pointRecord(example)
  const { mask } = drawFirst(setup, setup.sam.encode(record.image), record, positiveOf(record))
  const { errorArea } = errorAreas(record.mask, mask, setup.config.mode)
  return [maskIou(record.mask, mask), errorArea, maskArea(record.mask)]
}

/** The files that SAM2 was read from. */
function filesOf({ sam }: PointsConfig): string[] {
  if (!statSync(sam).isDirectory()) return [sam]
  const names = readdirSync(sam).filter((name) => /\.(json|safetensors|pt|bin)$/.test(name))
  return names.sort().map((name) => join(sam, name))
}
