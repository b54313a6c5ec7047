// A record of the task from an example of any source: the caption is the query; a box and points of the record's own are kept.
import { sha256 } from '../../core/index.ts'
import { BadRecord, type Example } from '../../data/index.ts'
import type { Box, Point } from './frame.ts'
import type { PointRecord } from './record.ts'

export function pointRecord(example: Example): PointRecord {
  const { id, image, mask, caption } = example
  const unit = typeof example.meta.group === 'string' ? { unit: caption } : {}
  return { id, image, mask, query: caption, ...unit, ...placesOf({ where: `record ${id}`, meta: example.meta }) }
}

/** What an interval resamples together: the object of composed pictures, else the image by its pixels. */
export const unitOf = ({ unit, image }: PointRecord) => unit ?? sha256(image.data)

/** The record's own places. A record with others than the task knows is rejected. */
export function placesOf({ where, meta }: { where: string; meta: Example['meta'] }) {
  const { box, points } = meta
  const objects = places(meta.objects) ? meta.objects : undefined
  const bad = (field: string, expected: string, got: unknown): never => {
    throw new BadRecord('bad-record', { where, field, expected, got })
  }
  if (box !== undefined && !isBox(box)) return bad('box', '[x1, y1, x2, y2]', box)
  if (points !== undefined && !isPoints(points)) return bad('points', '[[x, y], ..]', points)
  const form = '[{"box": [..4], "point": [..2]}, ..]'
  if (objects !== undefined && !isObjects(objects)) return bad('objects', form, objects)
  const several = objects && { objects: objects.map((one) => ({ box: one.box, points: [one.point] })) }
  return { ...(box && { box }), ...(points && { points }), ...several }
}

/** Generated scenes list their shapes under the same name, without boxes and points. */
const places = (value: unknown): boolean =>
  !Array.isArray(value) || value.some((one) => one?.box !== undefined || one?.point !== undefined)

const isBox = (value: unknown): value is Box =>
  Array.isArray(value) && value.length === 4 && value.every((v) => Number.isFinite(v))

const isPoints = (value: unknown): value is Point[] =>
  Array.isArray(value) && value.every((p) => Array.isArray(p) && p.length === 2 && p.every((v) => Number.isFinite(v)))

const isObjects = (value: unknown): value is { box: Box; point: Point }[] =>
  Array.isArray(value) && value.length > 0 && value.every((one) => isBox(one?.box) && isPoints([one?.point]))
