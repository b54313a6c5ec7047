// For tests: generated scenes in RefCOCO's layout, so that a model that can read them meets a benchmark end to end.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { encodePng } from '../../src/image/index.ts'
import { encodeRle, maskFromDense } from '../../src/mask/index.ts'
import { makeScene, type Scene } from '../../src/scenes/index.ts'

/** `count` images: the first half is val, then testA and testB in turn; two sentences each, the second a bare noun. */
export async function makeRefCoco(root: string, count: number, seed = 11): Promise<Scene[]> {
  const folder = join(root, 'ref_seg/refcoco')
  const images = join(root, 'train2014')
  mkdirSync(folder, { recursive: true })
  mkdirSync(images, { recursive: true })
  const scenes = Array.from({ length: count }, (_, i) => makeScene(seed, i))
  for (const scene of scenes) writeFileSync(join(images, `${scene.id}.png`), await encodePng(scene.image))
  const split = (i: number) => (i < count / 2 ? 'val' : i % 2 ? 'testA' : 'testB')
  const size = ({ image: { height, width } }: Scene) => ({ height, width })
  const instances = {
    images: scenes.map((scene, i) => ({ id: 100 + i, file_name: `${scene.id}.png`, ...size(scene) })),
    annotations: scenes.map((scene, i) => ({
      id: 1000 + i,
      image_id: 100 + i,
      iscrowd: 0,
      segmentation: encodeRle(maskFromDense(scene.mask, scene.image.height, scene.image.width)),
    })),
    categories: [],
  }
  const refs = scenes.map((scene, i) => ({
    ...{ ref_id: i, ann_id: 1000 + i, image_id: 100 + i, split: split(i) },
    sentences: [{ sent: scene.caption }, { sent: `the ${scene.objects[scene.target]!.shape}` }],
  }))
  writeFileSync(join(folder, 'instances.json'), JSON.stringify(instances))
  writeFileSync(join(folder, 'refs(unc).json'), JSON.stringify(refs))
  return scenes
}
