// Pictures composed of cut-out objects: a target, distractors of its group, some of them in front of it, on a background. Picture i is a
// function of the package, the seed, the size and i.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type RandomStream, shuffled, stream, streamId } from '../../core/index.ts'
import { decodeRgba } from '../../image/index.ts'
import { maskFromDense } from '../../mask/index.ts'
import type { LabelledPicture } from '../scene.ts'
import { makeBackground } from './backgrounds.ts'
import { type Cutout, type CutoutGroup, type CutoutSet, couldMean, groupCutouts } from './cutouts.ts'
import { type Canvas, type PasteObject, type Placement, paste, toPasteObject } from './paste.ts'

/** Raised whenever the same seed gives other pictures: stored ones are composed again. */
export const composerVersion = 1

export interface Composer {
  /** The group of picture `index`: its pictures are held out together. */
  groupOf(index: number): string
  compose(index: number): Promise<LabelledPicture>
}

interface PicturePlan {
  group: CutoutGroup
  /** The target first. */
  objects: readonly Cutout[]
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
  const plan = (index: number, random: RandomStream): PicturePlan => {
    const { group, target } = targetOf(index)
    const others = group.members.filter((c) => c !== target && !couldMean(target, c))
    return { group, objects: [target, ...shuffled(others, random).slice(0, 2 + random.below(3))] }
  }
  return {
    groupOf: (index) => targetOf(index).group.key,
    compose: async (index) => {
      const random = stream(streamId.scenes, seed, set.name, 'picture', index)
      const { group, objects } = plan(index, random)
      const cutouts = await Promise.all(objects.map(({ file }) => readCutout(set.root, file)))
      const background = await makeBackground(photos, size, random)
      const canvas = arrange(objects, cutouts, background, size, random)
      const isTarget = canvas.owner.map((number) => (number === 1 ? 1 : 0))
      return {
        id: `${set.name}-${seed}-${index}`,
        image: { width: size, height: size, data: canvas.rgb },
        mask: maskFromDense(isTarget, size, size),
        caption: objects[0]!.caption,
        meta: { group: group.key, objects: objects.map(({ file, caption }) => ({ file, caption })) },
      }
    },
  }
}

async function readCutout(root: string, file: string): Promise<PasteObject> {
  const path = join(root, file)
  return toPasteObject(await decodeRgba(readFileSync(path), path))
}

const maxTries = 12
/** Share of an object that stays visible. */
const minVisible = { target: 0.5, other: 0.25 }

/** Paints the objects in random order until enough of each is visible; the last try paints the target in front of all others. */
function arrange(
  objects: readonly Cutout[],
  cutouts: readonly PasteObject[],
  background: Uint8Array,
  size: number,
  random: RandomStream,
): Canvas {
  for (let attempt = 1; ; attempt++) {
    const canvas = { size, rgb: background.slice(), owner: new Uint8Array(size * size) }
    const last = attempt === maxTries
    const order = last ? cutouts.map((_, i) => cutouts.length - 1 - i) : shuffled([...cutouts.keys()], random)
    const areas: number[] = []
    for (const i of order) areas[i] = paste(canvas, cutouts[i]!, i + 1, place(objects[i]!, cutouts[i]!, size, random))
    if (last || isVisible(canvas, areas)) return canvas
  }
}

function isVisible({ owner }: Canvas, areas: readonly number[]): boolean {
  const visible = new Uint32Array(areas.length + 1)
  for (const number of owner) visible[number]!++
  return areas.every((area, i) => visible[i + 1]! >= (i === 0 ? minVisible.target : minVisible.other) * area)
}

const maxTurn = Math.PI / 6
const maxEnlargement = 2

/** Somewhere inside the picture, a fifth to nearly a half of its side long. */
function place(object: Cutout, { width, height }: PasteObject, size: number, random: RandomStream): Placement {
  const wanted = size * (0.22 + 0.26 * random.uniform())
  const side = Math.max(0.15 * size, Math.min(wanted, maxEnlargement * Math.max(width, height)))
  const margin = side / 2
  const along = () => margin + random.uniform() * (size - 2 * margin)
  return {
    x: along(),
    y: along(),
    side,
    angle: maxTurn * (2 * random.uniform() - 1),
    mirrored: !object.oneWay && random.uniform() < 0.5,
  }
}
