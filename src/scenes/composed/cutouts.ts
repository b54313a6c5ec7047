// Cut-out objects with names, and their groups. A picture shows objects of one group only, and a group is held out as a whole. So a
// held-out object is in no training picture.
import { shuffled, stream, streamId } from '../../core/index.ts'

export interface Cutout {
  /** Path below the package's folder: the name of the object. */
  file: string
  /** Folder or category, broad to narrow, separated by `/`. */
  kind: string
  caption: string
  /** Left and right may not be exchanged: letters, coins. */
  oneWay?: boolean
  photo?: boolean
}

export interface CutoutSet {
  name: string
  /** Folder that the files are below. */
  root: string
  /** Of the files: another package has another one. */
  version: string
  cutouts: readonly Cutout[]
}

interface CutoutGroup {
  /** What decides whether its pictures are held out. */
  key: string
  members: readonly Cutout[]
}

/** Objects of a group: enough for distractors of the same kind, few enough that a share of the groups is a share of the objects. */
const groupSize = 6

/** Groups of objects of the same kind; photographs and drawings are never in one group. They depend on the package alone, not on a seed. */
export function groupCutouts(cutouts: readonly Cutout[]): CutoutGroup[] {
  const styles = { photos: cutouts.filter((c) => c.photo), drawings: cutouts.filter((c) => !c.photo) }
  return Object.entries(styles).flatMap(([style, members]) =>
    byKind(members).flatMap(([kind, same]) => {
      const order = shuffled(same, stream(streamId.scenes, 'groups', style, kind))
      const count = Math.max(1, Math.floor(order.length / groupSize))
      const groups = Array.from({ length: count }, (_, i) => order.filter((_, j) => j % count === i))
      return groups.map((members, i) => ({
        key: [style, kind, i + 1].filter((part) => part !== '').join('/'),
        members,
      }))
    }),
  )
}

/** The narrowest kinds that have enough objects for a group; what remains is joined one level up, at last under ''. */
function byKind(cutouts: readonly Cutout[]): [string, Cutout[]][] {
  const kinds: [string, Cutout[]][] = []
  let rest = [...cutouts]
  const path = ({ kind }: Cutout) => kind.split('/')
  for (let depth = Math.max(0, ...rest.map((c) => path(c).length)); depth >= 0; depth--) {
    const at = rest.filter((c) => path(c).length >= depth)
    const nameOf = (c: Cutout) => path(c).slice(0, depth).join('/')
    for (const kind of new Set(at.map(nameOf))) {
      const same = at.filter((c) => nameOf(c) === kind)
      if (same.length < groupSize && depth > 0) continue
      kinds.push([kind, same])
      rest = rest.filter((c) => !same.includes(c))
    }
  }
  return kinds
}

/** Whether the caption of `target` could also mean `other`: all its words are in the other caption. */
export function couldMean(target: Cutout, other: Cutout): boolean {
  const words = new Set(wordsOf(other.caption))
  return wordsOf(target.caption).every((word) => words.has(word))
}

const wordsOf = (caption: string) =>
  caption
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => !/^(the|a|an|of)?$/.test(word))
