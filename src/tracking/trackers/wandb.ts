// Weights & Biases, offline: the file that `wandb sync` takes. LevelDB's log blocks around protobuf `Record` messages.
import { randomBytes } from 'node:crypto'
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { atomicWrite, crc32, log, messageOf, readTextFile, sha256, writeAll } from '../../core/index.ts'
import type { Interval, Metrics } from '../events.ts'
import { fieldBytes, fieldMessage, fieldVarint } from '../protobuf.ts'
import type { Picture, TrackedRun, Tracker } from './tracker.ts'

const blockSize = 32_768
const chunkHead = 7
const [full, first, middle, last] = [1, 2, 3, 4]

/** Records in blocks of 32 KiB; a record that does not fit into the rest of a block is cut into chunks. */
export class LogBlocks {
  #fd: number
  #inBlock: number

  constructor(path: string) {
    this.#fd = openSync(path, 'wx')
    const head = Buffer.from([0x3a, 0x57, 0x26, 0x42, 0xe1, 0xbe, 0]) // ":W&B", magic 0xBEE1, version 0
    this.#write(head)
    this.#inBlock = head.length
  }

  append(data: Uint8Array): void {
    const out: Buffer[] = []
    let isFirst = true // not `at === 0`: where just a chunk's head has room, the first piece is empty
    for (let at = 0, isLast = false; !isLast; ) {
      const room = blockSize - this.#inBlock
      if (room < chunkHead) {
        out.push(Buffer.alloc(room))
        this.#inBlock = 0
        continue
      }
      const piece = data.subarray(at, at + room - chunkHead)
      isLast = at + piece.length === data.length
      const type = isFirst ? (isLast ? full : first) : isLast ? last : middle
      isFirst = false
      out.push(this.#chunk(type, piece))
      this.#inBlock += chunkHead + piece.length
      at += piece.length
    }
    this.#write(Buffer.concat(out))
  }

  #chunk(type: number, piece: Uint8Array): Buffer {
    const head = Buffer.alloc(chunkHead)
    head.writeUInt32LE(crc32(Uint8Array.of(type), piece), 0)
    head.writeUInt16LE(piece.length, 4)
    head[6] = type
    return Buffer.concat([head, piece])
  }

  #write(bytes: Buffer): void {
    writeAll(this.#fd, bytes)
  }

  close(): void {
    if (this.#fd >= 0) closeSync(this.#fd)
    this.#fd = -1
  }
}

/** {key = 1, value_json = 16}: the same in config, history and summary. */
const item = (field: number, key: string, value: unknown) =>
  fieldMessage(
    field,
    fieldBytes(1, key),
    fieldBytes(16, typeof value === 'number' ? String(value) : JSON.stringify(value)),
  )

const timestamp = (field: number, now: number) =>
  fieldMessage(field, fieldVarint(1, Math.floor(now / 1000)), fieldVarint(2, (now % 1000) * 1_000_000))

/** Time in the folder's name, as wandb's own has it: 20261116_093005. */
function stamp(now: number): string {
  const iso = new Date(now).toISOString()
  return `${iso.slice(0, 10).replaceAll('-', '')}_${iso.slice(11, 19).replaceAll(':', '')}`
}

/** What W&B takes as an id. It becomes part of file names, so nothing else of a run folder's file is used. */
const idForm = /^[A-Za-z0-9_-]{1,64}$/

/** One id for all starts of a run, so that they are one run at the other end. */
function runId(folder: string): string {
  const path = join(folder, 'id')
  const stored = existsSync(path) ? storedId(path) : null
  if (stored !== null) return stored
  const id = randomBytes(4).toString('hex')
  atomicWrite(path, `${id}\n`)
  return id
}

function storedId(path: string): string | null {
  try {
    const id = readTextFile(path).trim()
    if (idForm.test(id)) return id
    log.warn(`${path}: not used, W&B gets the run as a new one: not an id of letters, digits, _ and -`)
  } catch (error) {
    log.warn(`${path}: not used, W&B gets the run as a new one: ${messageOf(error)}`)
  }
  return null
}

const timeOf = (name: string) =>
  Date.parse(name.replace(/^offline-run-(....)(..)(..)_(..)(..)(..)-.*/, '$1-$2-$3T$4:$5:$6Z')) || 0

/** After all others, by which they are synced: a run may be started twice in one second, or the clock was set back. */
function lastName(folder: string, id: string, now: number): string {
  const time = Math.max(now, ...readdirSync(folder).map((name) => timeOf(name) + 1000))
  return join(folder, `offline-run-${stamp(time)}-${id}`)
}

export class WandbTracker implements Tracker {
  readonly path: string
  readonly #log: LogBlocks
  readonly #media: string
  readonly #began: number
  readonly #summary = new Map<string, unknown>()
  #number = 0
  #row: { step: number; values: Map<string, unknown>; now: number } | undefined

  constructor(folder: string, run: TrackedRun, now: number) {
    mkdirSync(folder, { recursive: true })
    const id = runId(folder)
    const offline = lastName(folder, id, now)
    this.#media = join(offline, 'files', 'media', 'images')
    mkdirSync(this.#media, { recursive: true })
    this.path = join(offline, `run-${id}.wandb`)
    this.#began = now
    this.#log = new LogBlocks(this.path)
    this.#record(21, fieldMessage(1, fieldBytes(1, '0.21.0'), fieldBytes(2, '0.20.0')))
    this.#record(17, ...this.#runFields(id, run, now))
  }

  #runFields(id: string, run: TrackedRun, now: number): Buffer[] {
    const config = Object.entries(run.settings).map(([key, value]) => item(1, key, value))
    const entity = process.env.WANDB_ENTITY
    return [
      fieldBytes(1, id),
      ...(entity ? [fieldBytes(2, entity)] : []),
      fieldBytes(3, process.env.WANDB_PROJECT ?? 'roundtrip'),
      fieldMessage(4, ...config),
      fieldBytes(8, process.env.WANDB_NAME ?? run.name),
      fieldBytes(13, hostname()),
      timestamp(17, now),
    ]
  }

  /** Record {num = 1, one of the kinds}. */
  #record(kind: number, ...fields: readonly Buffer[]): void {
    this.#log.append(Buffer.concat([fieldVarint(1, ++this.#number), fieldMessage(kind, ...fields)]))
  }

  step(step: number, metrics: Metrics, now: number): void {
    this.#add(step, Object.entries(metrics), now)
  }

  eval(step: number, metrics: Readonly<Record<string, Interval>>, now: number): void {
    const values = Object.entries(metrics).flatMap(([key, { mean, low, high }]): [string, number][] => [
      [`eval/${key}`, mean],
      [`eval/${key}/low`, low],
      [`eval/${key}/high`, high],
    ])
    this.#add(step, values, now)
  }

  pictures(step: number, pictures: readonly Picture[], now: number): void {
    const files: string[] = []
    const values = pictures.map(({ png, width, height, caption, sample }, i): [string, unknown] => {
      const sum = sha256(png)
      const path = `media/images/samples_${i}_${step}_${sum.slice(0, 20)}.png`
      writeFileSync(join(this.#media, path.split('/').at(-1)!), png)
      files.push(path)
      const value = { _type: 'image-file', path, sha256: sum, size: png.length, width, height, format: 'png', caption }
      return [`samples/${sample.loop}/${i}`, value]
    })
    // path = 1, policy = 2 (0: now), type = 3 (2: media)
    this.#record(6, ...files.map((path) => fieldMessage(1, fieldBytes(1, path), fieldVarint(2, 0), fieldVarint(3, 2))))
    // Pictures are rendered in parallel to the run and arrive late; steps must not fall, so they go into the row that is open.
    this.#add(Math.max(step, this.#row?.step ?? step), values, now)
  }

  /** One row a step: what comes for the same step goes into it, and the next step writes it. */
  #add(step: number, values: Iterable<readonly [string, unknown]>, now: number): void {
    if (this.#row && this.#row.step !== step) this.#flush()
    this.#row ??= { step, values: new Map(), now }
    for (const [key, value] of values) this.#row.values.set(key, value)
  }

  #flush(): void {
    if (!this.#row) return
    const { step, values, now } = this.#row
    this.#row = undefined
    values.set('_step', step)
    values.set('_timestamp', now / 1000)
    values.set('_runtime', (now - this.#began) / 1000)
    for (const [key, value] of values) this.#summary.set(key, value)
    this.#record(2, ...Array.from(values, ([key, value]) => item(1, key, value)), fieldMessage(2, fieldVarint(1, step)))
  }

  close(reason: string | undefined, now: number): void {
    this.#flush()
    this.#record(3, ...Array.from(this.#summary, ([key, value]) => item(1, key, value)))
    const code = reason === undefined ? 1 : 0
    this.#record(18, fieldVarint(1, code), fieldVarint(2, Math.round((now - this.#began) / 1000)))
    this.#log.close()
  }
}
