// Pictures composed of cut-out objects: a target, distractors of its group, some of them in front of it, on a background. Picture i is a
// function of the package, the seed, the size and i.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type RandomStream, shuffled, stream, streamId } from '../../core/index.ts'
import { decodeRgba } from '../../image/index.ts'
import { maskFromDense } from '../../mask/index.ts'
import type { LabelledPicture } from '../scene.ts'
import { makeBackground } from './backgrounds.ts'
import { type Cutout, type CutoutSet, couldMean, groupCutouts } from './cutouts.ts'
import { type Canvas, makePatch, type Patch, paste } from './paste.ts'

/** Raised whenever the same seed gives other pictures: stored ones are composed again. */
export const composerVersion = 2

export interface Composer {
  /** The group of picture `index`: its pictures are held out together. */
  groupOf(index: number): string
  /** `owner`: row-major, 0 background, k + 1 object k of `meta.objects`; the target is the first. */
  compose(index: number): Promise<LabelledPicture & { owner: Uint8Array }>
}

export function openComposer(set: CutoutSet, photos: readonly string[], seed: number, size: number): Composer {
  const groups = groupCutouts(set.cutouts)
  const targets = groups.flatMap((group) => group.members.map((target) => ({ group, target })))
  const orders = new Map<number, typeof targets>()
  /** Every object is the target once before one is it again. */
  const targetOf = (index: number) => {
    const round = Math.floor(index / targets.length)
    const order = orders.get(round) ?? shuffled(targets, stream(streamId.scenes, seed, set.name, 'order', round))
    orders.set(round, order)
    return order[index % targets.length]!
  }
  return {
    groupOf: (index) => targetOf(index).group.key,
    compose: async (index) => {
      const random = stream(streamId.scenes, seed, set.name, 'picture', index)
      const { group, target } = targetOf(index)
      const others = group.members.filter((c) => c !== target && !couldMean(target, c))
      const objects = [target, ...shuffled(others, random).slice(0, 2 + random.below(3))]
      // all numbers are drawn before the first file is decoded
      const reading = objects.map((object) => readPatch(set.root, object, size, random))
      const [background, ...patches] = await Promise.all([makeBackground(photos, size, random), ...reading])
      const canvas = arrange(patches, background, size, random)
      const isTarget = canvas.owner.map((number) => (number === 1 ? 1 : 0))
      return {
        id: `${set.name}-${seed}-${index}`,
        image: { width: size, height: size, data: canvas.rgb },
        mask: maskFromDense(isTarget, size, size),
        caption: objects[0]!.caption,
        meta: { group: group.key, objects: objects.map(({ file, caption }) => ({ file, caption })) },
        owner: canvas.owner,
      }
    },
  }
}

const maxTurn = Math.PI / 6
const maxEnlargement = 2

/** A fifth to nearly a half of the picture's side long, turned and mirrored. */
async function readPatch(root: string, object: Cutout, size: number, random: RandomStream): Promise<Patch> {
  const wanted = size * (0.22 + 0.26 * random.uniform())
  const angle = maxTurn * (2 * random.uniform() - 1)
  const mirrored = random.uniform() < 0.5 && !object.oneWay
  const path = join(root, object.file)
  const image = await decodeRgba(readFileSync(path), path)
  const side = Math.max(0.15 * size, Math.min(wanted, maxEnlargement * Math.max(image.width, image.height)))
  return makePatch(image, { side, angle, mirrored })
}

const maxTries = 12
/** Share of an object that stays visible. */
const minVisible = { target: 0.5, other: 0.25 }

/** Paints the objects in random order until enough of each is visible; the last try paints the target in front of all others. */
function arrange(patches: readonly Patch[], background: Uint8Array, size: number, random: RandomStream): Canvas {
  for (let attempt = 1; ; attempt++) {
    const canvas = { size, rgb: background.slice(), owner: new Uint8Array(size * size) }
    const last = attempt === maxTries
    const order = last ? [...patches.keys()].reverse() : shuffled([...patches.keys()], random)
    const areas: number[] = []
    for (const i of order) {
      const margin = Math.min(size / 2, 0.4 * patches[i]!.side)
      const along = () => margin + random.uniform() * (size - 2 * margin)
      areas[i] = paste(canvas, patches[i]!, i + 1, along(), along())
    }
    if (last || isVisible(canvas, areas)) return canvas
  }
}

function isVisible({ owner }: Canvas, areas: readonly number[]): boolean {
  const visible = new Uint32Array(areas.length + 1)
  for (let i = 0; i < owner.length; i++) visible[owner[i]!]!++ // an iterator takes ten times as long
  return areas.every((area, i) => visible[i + 1]! >= (i === 0 ? minVisible.target : minVisible.other) * area)
}
