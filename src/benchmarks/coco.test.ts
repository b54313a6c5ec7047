import assert from 'node:assert/strict'
import { test } from 'node:test'
import { annotationTarget, type CocoAnnotation, type Instances } from './coco.ts'

const image = { id: 1, file_name: 'a.jpg', height: 4, width: 4 }
const square = [0, 0, 2, 0, 2, 2, 0, 2]
const annotation = (id: number, iscrowd: number) =>
  [id, { id, image_id: 1, segmentation: [square], iscrowd } as unknown as CocoAnnotation] as const
const instances = {
  file: 'instances.json',
  images: new Map([[1, image]]),
  annotations: new Map([annotation(5, 1), annotation(6, 0)]),
} as unknown as Instances

test('a crowd is left out of a list of annotations, and drawn when it is the only one meant', () => {
  const area = (ids: number | number[]) =>
    annotationTarget(instances, image, ids, 'refs').parts.reduce((sum, v) => sum + v, 0)
  assert.equal(area(5), 4)
  assert.equal(area([5]), 0)
  assert.equal(area([5, 6]), 4)
})
