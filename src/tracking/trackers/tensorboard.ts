// TensorBoard event file without a library: TFRecord frames around protobuf `Event` messages that hold summaries.
import { closeSync, mkdirSync, openSync, readdirSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { crc32c, writeAll } from '../../core/index.ts'
import type { Interval, Metrics } from '../events.ts'
import { noRoomError } from '../json-lines.ts'
import { fieldBytes, fieldDouble, fieldFloat, fieldMessage, fieldVarint } from '../protobuf.ts'
import { meansOf, type Picture, type TrackedRun, type Tracker } from './tracker.ts'

/** TFRecord stores checksums rotated and shifted, so that a checksum of data that holds checksums stays useful. */
function masked(bytes: Uint8Array): number {
  const c = crc32c(bytes)
  return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0
}

/** [u64 length][masked crc of it][data][masked crc of it], little-endian. */
function frame(data: Uint8Array): Buffer {
  const out = Buffer.alloc(16 + data.length)
  out.writeBigUInt64LE(BigInt(data.length), 0)
  out.writeUInt32LE(masked(out.subarray(0, 8)), 8)
  out.set(data, 12)
  out.writeUInt32LE(masked(data), 12 + data.length)
  return out
}

/** Event { wall_time = 1 (seconds), step = 2, body }. */
function event(seconds: number, step: number, body: Buffer): Buffer {
  return frame(Buffer.concat([fieldDouble(1, seconds), fieldVarint(2, step), body]))
}

/** Summary = 5 { repeated Value = 1 { tag = 1, simple_value = 2 } }. */
function summary(metrics: Metrics): Buffer {
  const values = Object.entries(metrics).map(([tag, value]) =>
    fieldBytes(1, Buffer.concat([fieldBytes(1, tag), fieldFloat(2, value)])),
  )
  return fieldBytes(5, Buffer.concat(values))
}

/** SummaryMetadata = 9 { plugin_data = 1 { plugin_name = 1, content = 2 } }: which part of TensorBoard shows a value. */
function plugin(name: string, content: Uint8Array = Buffer.alloc(0)): Buffer {
  return fieldMessage(9, fieldMessage(1, fieldBytes(1, name), fieldBytes(2, content)))
}

/** TensorProto = 8 { dtype = 1, tensor_shape = 2 { dim = 2 { size = 1 } }, values }: one value. */
function oneValue(dtype: number, value: Buffer): Buffer {
  return fieldMessage(8, fieldVarint(1, dtype), fieldMessage(2, fieldMessage(2, fieldVarint(1, 1))), value)
}
const [floatType, stringType] = [1, 7]

/** google.protobuf.Value: number_value = 2, string_value = 3, bool_value = 4. */
function anyValue(value: string | number | boolean): Buffer {
  if (typeof value === 'number') return fieldDouble(2, value)
  return typeof value === 'string' ? fieldBytes(3, value) : fieldVarint(4, value ? 1 : 0)
}

/**
 * TensorBoard files under the run folder: scalars, pictures with their captions, settings as hparams. One file per process start. A
 * resumed run says so by a session-log START event (field 7, status 1), on which TensorBoard forgets the points at that step and later.
 */
export class TensorboardTracker implements Tracker {
  readonly path: string
  readonly #fd: number

  constructor(folder: string, { name, settings, resumedAt }: TrackedRun, now: number) {
    mkdirSync(folder, { recursive: true })
    const startOf = (name: string) => Number(/^events\.out\.tfevents\.(\d+)\./.exec(name)?.[1] ?? 0)
    // TensorBoard reads files in the order of their names: the newest comes last, whatever the clock says
    const seconds = Math.max(Math.floor(now / 1000), ...readdirSync(folder).map((name) => startOf(name) + 1))
    this.path = join(
      folder,
      `events.out.tfevents.${String(seconds).padStart(10, '0')}.${hostname()}.${process.pid}.${now % 1000}`,
    )
    this.#fd = openSync(this.path, 'a')
    this.#write(event(now / 1000, 0, fieldBytes(3, 'brain.Event:2')))
    if (resumedAt === undefined) this.#hparams(name, settings, now)
    else this.#write(event(now / 1000, resumedAt + 1, fieldBytes(7, fieldVarint(1, 1)))) // the checkpoint's own step is kept
  }

  step(step: number, metrics: Metrics, now: number): void {
    this.#write(event(now / 1000, step, summary(metrics)))
  }

  eval(step: number, metrics: Readonly<Record<string, Interval>>, now: number): void {
    this.step(step, meansOf(metrics), now)
  }

  pictures(step: number, pictures: readonly Picture[], now: number): void {
    pictures.forEach((picture, i) => {
      const tag = `samples/${picture.sample.loop}/${i}`
      this.#image(step, tag, picture, now)
      // TensorBoard shows text as Markdown: four spaces make a block in which nothing is read as markup.
      this.#text(step, tag, picture.caption.replace(/^/gm, '    '), now)
    })
  }

  /** SessionEndInfo = 4 { status = 1 (1 success, 2 failure), end_time_secs = 2 }. */
  close(reason: string | undefined, now: number): void {
    const end = fieldMessage(4, fieldVarint(1, reason === 'done' ? 1 : 2), fieldDouble(2, now / 1000))
    this.#hparamsData('_hparams_/session_end_info', end, now)
    closeSync(this.#fd)
  }

  /** Image = 4 { height = 1, width = 2, colorspace = 3, encoded_image_string = 4 }. */
  #image(step: number, tag: string, { png, width, height }: Picture, now: number): void {
    const colours = 3 // RGB
    const image = [fieldVarint(1, height), fieldVarint(2, width), fieldVarint(3, colours), fieldBytes(4, png)]
    this.#value(step, now, fieldBytes(1, tag), fieldMessage(4, ...image))
  }

  #text(step: number, tag: string, text: string, now: number): void {
    this.#value(step, now, fieldBytes(1, tag), plugin('text'), oneValue(stringType, fieldBytes(8, text)))
  }

  /** SessionStartInfo = 3 { hparams = 1 { key = 1, value = 2 }, group_name = 4, start_time_secs = 5 } of the hparams plugin. */
  #hparams(run: string, settings: TrackedRun['settings'], now: number): void {
    const pairs = Object.entries(settings).map(([key, value]) =>
      fieldMessage(1, fieldBytes(1, key), fieldBytes(2, anyValue(value))),
    )
    const start = fieldMessage(3, ...pairs, fieldBytes(4, run), fieldDouble(5, now / 1000))
    this.#hparamsData('_hparams_/session_start_info', start, now)
  }

  #hparamsData(tag: string, data: Buffer, now: number): void {
    this.#value(0, now, fieldBytes(1, tag), plugin('hparams', data), oneValue(floatType, fieldFloat(5, 0)))
  }

  /** Summary = 5 { Value = 1 { ... } }. */
  #value(step: number, now: number, ...fields: readonly Buffer[]): void {
    this.#write(event(now / 1000, step, fieldMessage(5, fieldMessage(1, ...fields))))
  }

  // A reader stops at a torn frame and waits for the rest, so a kill in between loses that frame alone.
  #write(bytes: Buffer): void {
    try {
      writeAll(this.#fd, bytes)
    } catch (error) {
      throw noRoomError(error, this.path, bytes.length)
    }
  }
}
