// The segmenter next to a policy: opened once for the task of a run and its evaluation, and closed with their items.

import { statSync } from 'node:fs'
import { join } from 'node:path'
import { FeatureStore, featureVersion } from '../../checkpoint/index.ts'
import { log, refuseAt } from '../../core/index.ts'
import { type Family, isVqa, type VqaFamily, weightStates } from '../../models/index.ts'
import { openSegmenter, SamPredictor, type Segmenter } from '../../sam/index.ts'
import type { CommonSettings } from '../kind.ts'
import type { CoordinateKind } from './answer-config.ts'
import type { PointsConfig } from './config.ts'
import type { PointSetup } from './item.ts'
import { OpenItems } from './open-items.ts'

export function requireAsking(family: Family): VqaFamily {
  if (isVqa(family)) return family
  const expected = 'one that answers questions about an image, such as qwen2_5_vl or qwen3_vl'
  return refuseAt(family.dir)('model', expected, family.name)
}

/** What is open next to a family: one segmenter for the task of a run and its evaluation, and their items. */
interface Beside {
  path: string
  sam: Segmenter
  items: OpenItems[]
}
const beside = new WeakMap<Family, Beside>()

/** The segmenter on the device and in the dtype of the family. */
export function openBeside(
  family: VqaFamily,
  { sam: path, coords }: Pick<PointsConfig, 'sam' | 'coords'>,
  { featureCache }: Pick<CommonSettings, 'featureCache'>,
  group = 'points',
): Beside {
  const known = beside.get(family)
  if (known?.path === path) return known
  closeBeside(family)
  const { device, dtype } = family.placement
  const opened = { path, sam: openSegmenter(path, { device, dtype }), items: [] }
  if (featureCache) {
    const fingerprint = JSON.stringify([path, weightStates(path), opened.sam.model.config, dtype, featureVersion])
    opened.sam.store = new FeatureStore(featureCache, fingerprint, device)
  }
  beside.set(family, opened)
  log.info(coordinatesText(family, coords, group))
  return opened
}

const units = { pixel: 'pixels of the resized image', thousand: '0 to 1000 of the sides', unit: '0 to 1 of the sides' }

/** One line at the start: in a wrong frame nearly every answer would be wrong while it parses well. */
export function coordinatesText(
  { name, coords: usual }: Pick<VqaFamily, 'name' | 'coords'>,
  coords: CoordinateKind,
  group = 'points',
): string {
  const text = `${group}.coords ${coords}: coordinates are ${units[coords]}`
  return coords === usual ? text : `warning: ${text}, but ${name} was trained to write ${usual}`
}

export function closeBeside(family: Family): void {
  const opened = beside.get(family)
  if (!opened) return
  for (const items of opened.items) items.close()
  opened.sam.dispose()
  beside.delete(family)
}

/** Items kept open: a step's records stay while it samples, answers and learns. MobileSAM's features are one map of 4 MiB. */
const maxOpen = { mobilesam: 1024, sam2: 48 }

export function openItems(setup: PointSetup): OpenItems {
  const items = new OpenItems(setup, setup.sam instanceof SamPredictor ? maxOpen.mobilesam : maxOpen.sam2)
  beside.get(setup.policy)!.items.push(items)
  return items
}

/** Values of the segmenter next to the policy of a run, in a float32 file or in a folder with one; 0 without. */
export function valuesBeside(config: { task: string; points: { sam: string }; reason: { sam: string } }): number {
  const path = { points: config.points.sam, reason: config.reason.sam }[config.task] ?? ''
  const files = [path, join(path, 'model.safetensors')].map((file) => statSync(file, { throwIfNoEntry: false }))
  return path === '' ? 0 : (files.find((file) => file?.isFile())?.size ?? 0) / 4
}
