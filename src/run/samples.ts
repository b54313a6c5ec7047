// What samples.jsonl keeps of a group: the record, each sample, what was made of it, and how it was scored.
import type { World } from '../distributed/index.ts'
import { encodePng, type RgbImage } from '../image/index.ts'
import type { Group, Shown } from '../rl/index.ts'
import type { WorkItem } from '../tasks/index.ts'
import { type AlarmWatch, type MaskRle, prepareLine, type RunWriter, type Sample } from '../tracking/index.ts'
import type { Notices } from './notices.ts'

function shownAs<T>(shown: readonly Shown[], kind: Shown['kind'], by: Shown['by']): T | undefined {
  return shown.find((s) => s.kind === kind && s.by === by)?.value as T | undefined
}

interface SamplesOf {
  world: World
  writer: Pick<RunWriter, 'samples' | 'hasImage' | 'image' | 'imageName' | 'sampleBytes'>
  config: { samplesMiB: number }
  notices: Pick<Notices, 'report'>
  alarms: AlarmWatch
}

/** Rows of groups and pictures of records that were prepared; those that are written stay as an empty list. */
const preparedRows = new WeakMap<Group, readonly Sample[]>()
const preparedPngs = new WeakMap<RgbImage, Promise<Uint8Array>>()

/** Everything that `writeSamples` does with groups that have their scores, except the writing. Returns the new rows. */
export function prepareSamples(groups: readonly Group[], step: number, run: Omit<SamplesOf, 'notices'>) {
  const { alarms, world, writer, config } = run
  if (writer.sampleBytes >= config.samplesMiB * 2 ** 20) return []
  const fresh = groups.filter((group) => group.replies.length > 0 && !preparedRows.has(group))
  return fresh.flatMap((group) => {
    if (!writer.hasImage(group.item.id)) void pngOf((group.item as WorkItem).example.image)
    const image = writer.imageName(group.item.id)
    const rows = samplesOf(group, step).map((row) => ({ ...row, image }))
    preparedRows.set(group, rows)
    for (const row of rows) {
      alarms.traitsOf(row)
      if (world.size === 1) prepareLine(row) // otherwise a copy of it is written
    }
    return rows
  })
}

/** Each process reports the groups whose replies it has, with the images that are not kept yet; rank 0 writes and returns them in order. */
export async function writeSamples(groups: readonly Group[], step: number, run: SamplesOf): Promise<Sample[]> {
  const { alarms, world, writer, notices } = run
  const most = run.config.samplesMiB * 2 ** 20
  // the size that a resume finds is the size it was: a run that was disturbed keeps the same samples
  const isFull = () => writer.sampleBytes >= most
  const ids = groups.map(({ item }) => item.id)
  const [missing] = await world.gather(isFull() ? null : ids.filter((id) => !writer.hasImage(id)))
  if (!missing) return []
  const rowsOf = (group: Group) => preparedRows.get(group) ?? samplesOf(group, step)
  const own = groups.map((group) => (group.replies.length > 0 ? rowsOf(group) : null))
  const shown = groups.filter(({ item }, at) => own[at] && missing.includes(item.id))
  const traits = own.map((rows) => rows?.map((row) => alarms.traitsOf(row)))
  const shares = await world.gather({ own, traits, pngs: await encodeImages(shown) })
  for (const group of groups) preparedRows.set(group, [])
  if (world.rank > 0) return []
  const pngs = new Map(shares.flatMap((share) => share.pngs))
  const written = ids.flatMap((id, at) => {
    const image = writer.image(id, () => pngs.get(id)!)
    const share = shares.find((one) => one.own[at])
    const samples = (share?.own[at] ?? []).map((row) => Object.assign(row, { image }))
    for (const [k, sample] of samples.entries()) alarms.keep(sample, share!.traits[at]![k]!)
    writer.samples(samples)
    return samples
  })
  const text = `samples.jsonl has reached samplesMiB (${run.config.samplesMiB}): no more samples are kept`
  if (isFull()) notices.report({ kind: 'samples-full', text })
  return written
}

/** By record, of which several groups may be. */
function encodeImages(groups: readonly Group[]): Promise<(readonly [string, Uint8Array])[]> {
  const images = new Map(groups.map(({ item }) => [item.id, (item as WorkItem).example.image]))
  return Promise.all(
    Array.from(images, async ([id, image]) => {
      const png = await pngOf(image)
      preparedPngs.delete(image)
      return [id, png] as const
    }),
  )
}

/** Encoded by another thread, which begins at once. */
function pngOf(image: RgbImage): Promise<Uint8Array> {
  const png = preparedPngs.get(image) ?? encodePng(image)
  preparedPngs.set(image, png)
  png.catch(() => undefined) // an error is met where it is awaited
  return png
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
