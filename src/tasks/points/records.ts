// A record of the task from an example of any source: the caption is the query; a box and points of the record's own are kept.
import { Mismatch } from '../../core/index.ts'
import type { Example } from '../../data/index.ts'
import type { Box, Point } from './frame.ts'
import type { PointRecord } from './record.ts'

export function pointRecord({ id, image, mask, caption, meta }: Example): PointRecord {
  const { box, points } = meta
  const objects = places(meta.objects) ? meta.objects : undefined
  if (box !== undefined && !isBox(box)) bad(id, 'box', '[x1, y1, x2, y2]', box)
  if (points !== undefined && !isPoints(points)) bad(id, 'points', '[[x, y], ..]', points)
  if (objects !== undefined && !isObjects(objects)) bad(id, 'objects', '[{"box": [..4], "point": [..2]}, ..]', objects)
  return {
    ...{ id, image, mask, query: caption, ...(box !== undefined && { box }), ...(points !== undefined && { points }) },
    ...(objects !== undefined && { objects: objects.map((one) => ({ box: one.box, points: [one.point] })) }),
  }
}

/** Generated scenes list their shapes under the same name, without boxes and points. */
const places = (value: unknown): boolean =>
  !Array.isArray(value) || value.some((one) => one?.box !== undefined || one?.point !== undefined)

function bad(id: string, field: string, expected: string, got: unknown): never {
  throw new Mismatch({ where: `record ${id}`, field, expected, got })
}

const isBox = (value: unknown): value is Box =>
  Array.isArray(value) && value.length === 4 && value.every((v) => Number.isFinite(v))

const isPoints = (value: unknown): value is Point[] =>
  Array.isArray(value) && value.every((p) => Array.isArray(p) && p.length === 2 && p.every((v) => Number.isFinite(v)))

const isObjects = (value: unknown): value is { box: Box; point: Point }[] =>
  Array.isArray(value) && value.length > 0 && value.every((one) => isBox(one?.box) && isPoints([one?.point]))
