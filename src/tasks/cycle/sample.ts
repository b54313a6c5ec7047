// What both round trips sample, and how it is kept in a checkpoint.
import { inSpareTime } from '../../core/index.ts'
import { decodeRle, encodeRle, type Mask } from '../../mask/index.ts'
import type { Answer, MaskConfidence } from '../../rewards/index.ts'
import type { Json, Sample, Shown } from '../../rl/index.ts'
import { maskValues } from '../../tracking/index.ts'
import type { WorkItem } from '../kind.ts'
import type { MaskAction } from './action.ts'
import type { Cycle } from './config.ts'

export interface CycleSample extends Sample {
  readonly action: MaskAction | null
  /** What the EMA copy is asked about: a caption, or a mask (null: none was produced). */
  readonly caption: string | null
  readonly mask: Mask | null
  /** Of `mask`. */
  readonly confidence?: MaskConfidence
}

/** What the EMA copy made of a sample, and what the rewards see of both. */
export interface CycleReply {
  readonly answer: Answer
  /** The mask of this trip: redrawn from the caption, or sampled. */
  readonly mask: Mask | null
  readonly text: string | null
}

const pack = (a: Float32Array | Int32Array) => Buffer.from(a.buffer, a.byteOffset, a.byteLength).toString('base64')
const bytes = (text: string) => new Uint8Array(Buffer.from(text, 'base64')).buffer

interface StoredSample {
  ids: string
  text: string
  finished: boolean
  logps: string
  action: { value: string; choice: number; prompt?: string } | null
  caption: string | null
  mask: ReturnType<typeof encodeRle> | null
  /** Absent in checkpoints of 0.1.0. */
  sampled?: boolean
  samplerLogps?: string
  confidence?: { iou: number; object: number }
}

type StoredAction = NonNullable<StoredSample['action']>

function storeAction({ value, choice, prompt }: MaskAction): StoredAction {
  return { value: pack(value), choice, ...(prompt ? { prompt: pack(prompt) } : {}) }
}

function restoreAction({ value, choice, prompt }: StoredAction): MaskAction {
  const numbers = (text: string) => new Float32Array(bytes(text))
  return { value: numbers(value), choice, ...(prompt ? { prompt: numbers(prompt) } : {}) }
}

export function storeSample(s: CycleSample): Json {
  const stored: StoredSample = {
    ids: pack(s.ids),
    text: s.text,
    finished: s.finished,
    logps: pack(s.logps),
    action: s.action ? storeAction(s.action) : null,
    caption: s.caption,
    mask: s.mask ? encodeRle(s.mask) : null,
    ...(s.sampled === false ? { sampled: false } : {}),
    ...(s.samplerLogps ? { samplerLogps: pack(s.samplerLogps) } : {}),
    ...(s.confidence ? { confidence: { ...s.confidence } } : {}),
  }
  return stored as unknown as Json
}

export function restoreSample(json: Json): CycleSample {
  const s = json as unknown as StoredSample
  return {
    ids: new Int32Array(bytes(s.ids)),
    text: s.text,
    finished: s.finished,
    logps: new Float32Array(bytes(s.logps)),
    action: s.action ? restoreAction(s.action) : null,
    caption: s.caption,
    mask: s.mask ? decodeRle(s.mask) : null,
    ...(s.sampled === false ? { sampled: false } : {}),
    ...(s.samplerLogps ? { samplerLogps: new Float32Array(bytes(s.samplerLogps)) } : {}),
    ...(s.confidence ? { confidence: s.confidence } : {}),
  }
}

/** The record's mask and words, and what the trip made of them. */
export function shownOf({ example }: WorkItem, reply: CycleReply | undefined, drawnBy: 'policy' | 'ema'): Shown[] {
  const shown: Shown[] = [
    { kind: 'mask', by: 'record', value: encodeRle(example.mask) },
    { kind: 'text', by: 'record', value: example.caption },
  ]
  const drawn = reply?.mask ? encodeRle(reply.mask) : null
  if (reply) shown.push({ kind: 'mask', by: drawnBy, value: drawn }) // null: it drew none
  if (reply && reply.text !== null) shown.push({ kind: 'text', by: 'ema', value: reply.text })
  return shown
}

/** What the samples' log and its alarms will ask about a mask is computed while a device decodes. */
export function prepareShown({ family }: Cycle, drawn: Mask | null, { example }: WorkItem): void {
  if (!drawn || family.placement.device === 'cpu') return
  inSpareTime(() => {
    encodeRle(drawn)
    maskValues(drawn, example.mask)
  })
}
