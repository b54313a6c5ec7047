// What samples.jsonl keeps of a group: the record, each sample, what was made of it, and how it was scored.
import type { World } from '../distributed/index.ts'
import { encodePng, type RgbImage } from '../image/index.ts'
import type { Group, Shown } from '../rl/index.ts'
import type { WorkItem } from '../tasks/index.ts'
import {
  imageName,
  lineBytes,
  type MaskRle,
  type RunWriter,
  type Sample,
  type SampleLine,
  type Traits,
  traitsOf,
} from '../tracking/index.ts'
import type { Notices } from './notices.ts'

function shownAs<T>(shown: readonly Shown[], kind: Shown['kind'], by: Shown['by']): T | undefined {
  return shown.find((s) => s.kind === kind && s.by === by)?.value as T | undefined
}

interface SamplesOf {
  world: World
  writer: Pick<RunWriter, 'samples' | 'hasImage' | 'image' | 'sampleBytes'>
  config: { samplesMiB: number }
  notices: Pick<Notices, 'report'>
}

/** A sample as it is written and as the alarms see it: what it takes to encode it is done by the process that has it. */
interface Row extends SampleLine {
  traits: Traits
}

/** Of one process, for the groups of a step. */
export interface SampleShare {
  isFull: boolean
  own: (readonly Row[] | null)[]
  pngs: (readonly [string, Uint8Array])[]
}

/** The samples and pictures of a run on their way to its folder. */
export class SampleLog {
  readonly #run: SamplesOf
  /** Of groups that were prepared; those that are written stay as an empty list. */
  readonly #rows = new WeakMap<Group, readonly Row[]>()
  readonly #pngs = new WeakMap<RgbImage, Promise<Uint8Array>>()
  /** Records whose picture was sent since the start. */
  readonly #pictured = new Set<string>()
  #isFull = false

  constructor(run: SamplesOf) {
    this.#run = run
  }

  /** The size that a resume finds is the size it was: a run that was disturbed keeps the same samples. */
  get #hasRoom(): boolean {
    const { config, writer } = this.#run
    return !this.#isFull && writer.sampleBytes < config.samplesMiB * 2 ** 20
  }

  /** Everything that `write` does with groups that have their scores, except the writing. */
  prepare(groups: readonly Group[], step: number): void {
    if (!this.#hasRoom) return
    for (const group of groups) {
      if (group.replies.length === 0 || this.#rows.has(group)) continue
      if (this.#lacksImage(group)) void this.#pngOf(group)
      this.#rows.set(group, rowsOf(group, step))
    }
  }

  /** What this process reports: the groups whose replies it has, with pictures that may not be kept yet. */
  async share(groups: readonly Group[], step: number): Promise<SampleShare> {
    const isFull = this.#isFull || !this.#hasRoom
    const mine = groups.map((group) => !isFull && group.replies.length > 0)
    const own = groups.map((group, at) => (mine[at] ? (this.#rows.get(group) ?? rowsOf(group, step)) : null))
    const pngs = await this.#encode(groups.filter((group, at) => mine[at] && this.#lacksImage(group)))
    return { isFull, own, pngs }
  }

  /** Writes what all processes reported, on rank 0, and returns it in the order of the groups. */
  write(groups: readonly Group[], all: readonly { samples: SampleShare }[]): Traits[] {
    const { notices, world, writer } = this.#run
    if (this.#isFull) return []
    const shares = all.map((one) => one.samples)
    this.#isFull = shares[0]!.isFull
    for (const group of groups) {
      this.#rows.set(group, [])
      this.#pictured.add(group.item.id)
    }
    if (world.rank > 0 || this.#isFull) return []
    for (const [id, png] of shares.flatMap((share) => share.pngs)) writer.image(id, png)
    const written = groups.map((_, at) => shares.flatMap((share) => share.own[at] ?? []))
    for (const rows of written) writer.samples(rows)
    const text = `samples.jsonl has reached samplesMiB (${this.#run.config.samplesMiB}): no more samples are kept`
    if (!this.#hasRoom) notices.report({ kind: 'samples-full', text })
    return written.flatMap((rows) => rows.map(({ traits }) => traits))
  }

  /** Rank 0 sees the folder; what the others sent is there. */
  #lacksImage({ item }: Group): boolean {
    const { world, writer } = this.#run
    return world.rank === 0 ? !writer.hasImage(item.id) : !this.#pictured.has(item.id)
  }

  /** By record, of which several groups may be. */
  #encode(groups: readonly Group[]): Promise<(readonly [string, Uint8Array])[]> {
    const byRecord = new Map(groups.map((group) => [group.item.id, group]))
    return Promise.all(
      Array.from(byRecord, async ([id, group]) => {
        const png = await this.#pngOf(group)
        this.#pngs.delete(imageOf(group))
        return [id, png] as const
      }),
    )
  }

  /** Encoded by another thread, which begins at once. */
  #pngOf(group: Group): Promise<Uint8Array> {
    const image = imageOf(group)
    const png = this.#pngs.get(image) ?? encodePng(image)
    this.#pngs.set(image, png)
    png.catch(() => undefined) // an error is met where it is awaited
    return png
  }
}

const imageOf = ({ item }: Group): RgbImage => (item as WorkItem).example.image

function rowsOf(group: Group, step: number): Row[] {
  const image = imageName(group.item.id)
  return samplesOf(group, step).map((sample) => {
    const traits = { ...traitsOf(sample), answer: '' } // no alarm compares answers, and masks are long
    return { step, loop: group.task.name, line: lineBytes({ ...sample, image }), traits }
  })
}

function samplesOf(group: Group, step: number): Sample[] {
  return group.samples.map((sample, k) => {
    const shown = group.task.shown(group.item, sample, group.replies[k])
    const answer = shownAs<string>(shown, 'text', 'ema')
    const masks = shown.filter((s) => s.kind === 'mask')
    const drawn = masks.find((s) => s.by === 'policy') ?? masks.find((s) => s.by === 'ema')
    return {
      step,
      loop: group.task.name,
      id: group.item.id,
      k,
      text: sample.text,
      ...(answer === undefined ? {} : { answer }),
      reference: shownAs<string>(shown, 'text', 'record'),
      given: shownAs<MaskRle>(shown, 'mask', 'record') ?? null,
      made: (drawn?.value as MaskRle | undefined) ?? null,
      ...(drawn ? { madeBy: drawn.by } : {}),
      rewards: group.scores[k]!.parts,
      total: group.scores[k]!.total,
      advantage: group.advantages[k]!,
      logp: sample.logps.reduce((a, b) => a + b, 0),
      length: sample.ids.length,
      ...(sample.finished ? {} : { truncated: true }),
      // masks and texts have separate fields above
      ...(shown.some((s) => s.kind !== 'mask' && s.kind !== 'text') ? { shown: shown as Sample['shown'] } : {}),
    }
  })
}
