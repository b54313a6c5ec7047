import { Mismatch, type MismatchInfo } from '../core/index.ts'
import type { RgbImage } from '../image/index.ts'
import type { Mask } from '../mask/index.ts'
import { ChangedFile } from './files.ts'

/** One region of one image with the text that describes it, decoded and checked: what training sees. */
export interface Example {
  id: string
  image: RgbImage
  /** What the model takes of the image, where a decoding thread prepared it. */
  prepared?: object
  /** At the image's own resolution. */
  mask: Mask
  /** As the source wrote it, outer white space removed. */
  caption: string
  category?: string[]
  /** The other regions of a record that speaks of several. */
  extraMasks?: Mask[]
  meta: Record<string, unknown>
}

/** An image: encoded bytes, a path, or decoded pixels. */
export type ImageData = { bytes: Uint8Array } | { path: string } | { rgb: RgbImage }

/** The same before decoding: the image still encoded, or left out when only text and mask were asked for. */
export interface Region {
  id: string
  /** File and record, for messages. */
  where: string
  image: ImageData | null
  mask: Mask
  caption: string
  category?: string[]
  extraMasks?: Mask[]
  meta: Record<string, unknown>
}

/** Why a record or a shard cannot be used. */
export const reasons = [
  'broken-shard',
  'image-missing',
  'image-unreadable',
  'image-too-small',
  'size-mismatch',
  'no-mask',
  'mask-unreadable',
  'empty-mask',
  'empty-caption',
  'not-utf8',
  'turn-count',
  'duplicate-id',
  'bad-record',
] as const
/** Why a record cannot be used. */
export type Reason = (typeof reasons)[number]

/** A record that cannot be used: a Mismatch that carries its reason, so that it can be counted. */
export class BadRecord extends Mismatch {
  readonly reason: Reason

  constructor(reason: Reason, info: MismatchInfo, options?: ErrorOptions) {
    super(info, options)
    this.name = 'BadRecord'
    this.reason = reason
  }
}

/** Turns the message of a lower room into a counted reason; anything that is not bad input passes through. */
export function asBadRecord(error: unknown, reason: Reason, where: string, field: string): unknown {
  if (error instanceof BadRecord || error instanceof ChangedFile || !(error instanceof Mismatch)) return error
  const { expected, got, hint } = error.info
  return new BadRecord(reason, { where, field, expected, got, hint }, { cause: error })
}

/** What a task asks of records beside the common rules. */
export interface RecordRules {
  /** Whether a record without a pixel inside its mask can be used; absent: never. Where it is told, others are no damage of the data. */
  usesEmpty?(region: Region): boolean
  /** Records that are read, in stored order; absent: all of the part. */
  only?: Uint32Array
  /** The task reads no captions; absent: a source without captions is rejected. */
  usesNoCaption?: boolean
}

/** What to read of a record. */
export interface RegionOptions {
  /** false leaves the image bytes on disk. */
  image?: boolean
}

/** A set of records with random access. Nothing but the index is held in memory. */
export interface Source {
  /** "gar-fine-grained", "refcocog", ...: the first part of every id. */
  readonly name: string
  /** What was detected, in words. */
  readonly format: string
  readonly length: number
  /** Names, sizes and count of what is read; equal for equal data wherever it lies. */
  readonly fingerprint: string
  /** Lines about the storage: columns, splits, fields. */
  readonly schema: readonly string[]
  /** Facts worth telling before a run: missing shards, left-out records. */
  readonly warnings: readonly string[]
  /** Records that the format holds but the settings leave out, by cause. */
  readonly leftOut: Readonly<Record<string, number>>
  /** Shards that could not be used (skipBrokenShards). */
  readonly broken: readonly BadRecord[]
  /** No record has a caption: they are empty. */
  readonly withoutCaptions?: boolean
  id(index: number): string
  /** What decides the part a record is in: its id without the names of folders and shards. */
  key(index: number): string
  /** What 0.1.0 called it: folder, shard and row. */
  place(index: number): string
  region(index: number, options?: RegionOptions): Promise<Region>
  /** Decoded and checked; throws BadRecord. */
  get(index: number): Promise<Example>
  close(): Promise<void>
}

/** What each format implements: `id` is the place of a record. openSource adds decoding and the rejection of empty sets. */
export interface RecordSource extends Omit<Source, 'get' | 'key' | 'place'> {
  /** Absent: the id without the source's name. */
  key?(index: number): string
  /** What tells records of several parts apart that have the same key. */
  part?(index: number): string
}
