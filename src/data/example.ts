import { Mismatch, type MismatchInfo } from '../core/index.ts'
import type { RgbImage } from '../image/index.ts'
import type { Mask } from '../mask/index.ts'
import { ChangedFile } from './files.ts'

/** One region of one image with the text that describes it, decoded and checked: what training sees. */
export interface Example {
  id: string
  image: RgbImage
  /** The model's inputs for this image, if a decoding thread prepared them. */
  prepared?: object
  /** At the image's own resolution. */
  mask: Mask
  /** As the source wrote it, outer white space removed. */
  caption: string
  category?: string[]
  /** The other regions, if the text of the record is about several. */
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

/** Turns a Mismatch into a BadRecord with a reason that is counted; other errors are returned unchanged. */
export function asBadRecord(error: unknown, reason: Reason, where: string, field?: string): unknown {
  if (error instanceof BadRecord || error instanceof ChangedFile || !(error instanceof Mismatch)) return error
  const { expected, got, hint } = error.info
  return new BadRecord(reason, { where, field, expected, got, hint }, { cause: error })
}

/** Rules of a task for its records, in addition to the common ones. */
export interface RecordRules {
  /** Whether a record with an empty mask can be used; absent: never. If given, rejected empty masks do not count as damaged data. */
  usesEmpty?(region: Region): boolean
  /** Throws BadRecord for one whose other fields the task cannot use. */
  check?(region: Region): void
  /** Indices of the records to read, in stored order; absent: all of the split. */
  only?: Uint32Array
  /** The task reads no captions; absent: a source without captions is rejected. */
  usesNoCaption?: boolean
}

/** What to read of a record. */
export interface RegionOptions {
  /** false leaves the image bytes on disk. */
  image?: boolean
  /** A record without a caption is read too, with an empty one. */
  usesNoCaption?: boolean
}

/** A set of records with random access. Only the index is in memory. */
export interface Source {
  /** "gar-fine-grained", "refcocog", ...: the first part of every id. */
  readonly name: string
  /** The detected format, for messages. */
  readonly format: string
  readonly length: number
  /** Hash of names, sizes and counts; the same for the same data in another folder. */
  readonly fingerprint: string
  /** Lines about the storage: columns, splits, fields. */
  readonly schema: readonly string[]
  /** Printed before a run: missing shards, left-out records. */
  readonly warnings: readonly string[]
  /** Number of records that the settings leave out, by cause. */
  readonly leftOut: Readonly<Record<string, number>>
  /** Shards that could not be used (skipBrokenShards). */
  readonly broken: readonly BadRecord[]
  /** No record has a caption: they are empty. */
  readonly withoutCaptions?: boolean
  id(index: number): string
  /** Decides the split a record is in: its id without the names of folders and shards. */
  key(index: number): string
  /** Its id in version 0.1.0: folder, shard and row. */
  place(index: number): string
  region(index: number, options?: RegionOptions): Promise<Region>
  /** Decoded and checked; throws BadRecord. */
  get(index: number, rules?: RecordRules): Promise<Example>
  close(): Promise<void>
}

/** What each format implements; `id` is the location of a record. openSource adds decoding and rejects empty sets. */
export interface RecordSource
  extends Pick<Source, 'name' | 'format' | 'length' | 'fingerprint' | 'schema' | 'id' | 'region'>,
    Partial<Pick<Source, 'warnings' | 'leftOut' | 'broken' | 'withoutCaptions' | 'close'>> {
  /** Absent: the id without the source's name. */
  key?(index: number): string
  /** Distinguishes records of several parts that have the same key. */
  part?(index: number): string
}
