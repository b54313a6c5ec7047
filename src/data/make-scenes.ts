import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { writeWholeFolder } from '../checkpoint/index.ts'
import { atomicWrite, Mismatch, namesIn } from '../core/index.ts'
import { encodePng } from '../image/index.ts'
import { encodeRle, maskFromDense } from '../mask/index.ts'
import { makeScene, type Scene } from '../scenes/index.ts'
import { type GarRow, writeGarArrow } from './arrow/write.ts'

export interface MakeScenesOptions {
  n: number
  out: string
  format: 'gar-arrow' | 'jsonl'
  seed?: number
  size?: number
  shardBytes?: number
  onProgress?: (done: number) => void
}

/** Writes a folder of generated scenes in a format the readers open, whole or not at all; returns how many. */
export async function makeScenes(options: MakeScenesOptions): Promise<number> {
  const { out, format } = options
  const [got] = namesIn(out, /^(images|scenes\.jsonl|state\.json|dataset_info\.json)$|\.arrow$/)
  if (got !== undefined)
    throw new Mismatch({ where: out, expected: 'a folder without records', got, hint: 'choose another --out' })
  const write = format === 'jsonl' ? writeJsonl : writeArrow
  return writeWholeFolder(out, (unfinished) => write({ ...options, out: unfinished }))
}

function* scenes({ n, seed = 0, size = 112, onProgress }: MakeScenesOptions): Generator<Scene> {
  for (let i = 0; i < n; i++) {
    yield makeScene(seed, i, { size })
    onProgress?.(i + 1)
  }
}

function rleOf(scene: Scene) {
  return encodeRle(maskFromDense(scene.mask, scene.image.height, scene.image.width))
}

async function writeArrow(options: MakeScenesOptions): Promise<number> {
  async function* rows(): AsyncGenerator<GarRow> {
    for (const scene of scenes(options)) {
      yield {
        image: { bytes: await encodePng(scene.image), path: null },
        conversations: [
          { from: 'human', value: '<image>\nPlease describe the region in the mask.' },
          { from: 'gpt', value: scene.caption },
        ],
        mask_rle: rleOf(scene),
        catagory: [scene.objects[scene.target]!.shape],
      }
    }
  }
  return await writeGarArrow(options.out, rows(), { shardBytes: options.shardBytes })
}

async function writeJsonl(options: MakeScenesOptions): Promise<number> {
  mkdirSync(join(options.out, 'images'))
  const lines: string[] = []
  for (const scene of scenes(options)) {
    const image = `images/${scene.id}.png`
    writeFileSync(join(options.out, image), await encodePng(scene.image))
    const category = [scene.objects[scene.target]!.shape]
    lines.push(JSON.stringify({ id: scene.id, image, mask: rleOf(scene), caption: scene.caption, category }))
  }
  atomicWrite(join(options.out, 'scenes.jsonl'), `${lines.join('\n')}\n`)
  return lines.length
}
