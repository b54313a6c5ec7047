// The world of several processes. One queue owns the group: what is called first is sent first, on every rank.
import { deserialize, serialize } from 'node:v8'
import { log, messageOf } from '../core/index.ts'
import { aten, keep, noGrad, type Tensor, tidy, tidyNoGrad } from '../tensor/index.ts'
import { gpuName } from './backend.ts'
import { layBuckets, packGradients, requireFloating, unpackGradients } from './buckets.ts'
import { Exchange, type Kind } from './exchange.ts'
import { requireSameLayout } from './handshake.ts'
import type { Link } from './link.ts'
import type { NamedTensors, World } from './world.ts'

export class GroupWorld implements World {
  readonly rank: number
  readonly size: number
  readonly #link: Link
  readonly #exchange: Exchange
  #queue: Promise<unknown> = Promise.resolve()
  readonly #layouts = new Set<string>()
  #closed = false
  #waited = 0

  constructor(link: Link) {
    this.#link = link
    this.rank = link.place.rank
    this.size = link.place.size
    this.#exchange = new Exchange(link)
  }

  get sent(): number {
    return this.#link.sent
  }

  get waited(): number {
    return this.#waited
  }

  /** After what was called before; a failure there does not stop this call from failing by itself. */
  #next<T>(work: () => Promise<T>): Promise<T> {
    const timed = async () => {
      const startedAt = performance.now()
      try {
        return await work()
      } finally {
        this.#waited += (performance.now() - startedAt) / 1000
      }
    }
    const result = this.#queue.then(timed, timed)
    this.#queue = result.catch(() => undefined)
    return result
  }

  #all(kind: Kind, message: Uint8Array): Promise<Uint8Array[]> {
    return this.#next(() => this.#exchange.all(kind, message))
  }

  async sum(values: readonly number[]): Promise<number[]> {
    const all = await this.#all('sum', new Uint8Array(Float64Array.from(values).buffer))
    const rows = all.map((bytes) => new Float64Array(bytes.slice().buffer))
    return values.map((_, i) => rows.slice(1).reduce((total, row) => total + row[i]!, rows[0]![i]!))
  }

  async gather<T>(value: T): Promise<T[]> {
    const all = await this.#all('gather', serialize(value))
    return all.map((bytes) => deserialize(bytes) as T)
  }

  async agree(flags: readonly boolean[]): Promise<boolean[]> {
    const all = await this.#all('agree', Uint8Array.from(flags, Number))
    return flags.map((_, i) => all.some((bytes) => bytes[i] === 1))
  }

  async barrier(): Promise<void> {
    await this.#all('barrier', new Uint8Array())
  }

  async sumGradients(parameters: NamedTensors): Promise<void> {
    requireFloating(parameters)
    await this.#agreeOnLayout(parameters)
    const names = [...parameters.keys()]
    const flags = await this.agree(tidy(() => names.map((name) => parameters.get(name)!.grad() !== null)))
    const used = new Set(names.filter((_, i) => flags[i]))
    await this.#next(async () => {
      await this.#openDevices(parameters)
      const packed = layBuckets(parameters).map((bucket) => {
        const flat = this.#readable(packGradients(bucket))
        return { bucket, flat, sent: this.#link.allReduce(flat) } // in flight while the next bucket is packed
      })
      await landed(packed, ({ bucket, flat }) => unpackGradients(bucket, flat, used))
    })
  }

  async broadcast(tensors: NamedTensors, from = 0): Promise<void> {
    await this.#agreeOnLayout(tensors)
    await this.#next(async () => {
      await this.#openDevices(tensors)
      const sent = [...tensors.values()].map((tensor) => {
        const flat = this.#readable(bytesOf(tensor))
        return { tensor, flat, sent: this.#link.broadcast(flat, from) }
      })
      await landed(sent, ({ tensor, flat }) => writeBytes(tensor, flat))
    })
  }

  /** A difference in sizes would abort the receiving process, so the lists are compared first, once for each list. */
  async #agreeOnLayout(tensors: NamedTensors): Promise<void> {
    const layout = [...tensors].map(([name, t]) => `${name} ${t.dtype} ${t.shape.join('x')}`).join('\n')
    if (this.#layouts.has(layout)) return
    await requireSameLayout(this, layout)
    this.#layouts.add(layout)
  }

  async #openDevices(tensors: NamedTensors): Promise<void> {
    const device = [...tensors.values()].find((t) => t.device !== 'cpu')?.device
    if (device === undefined || this.#link.cudaBackend) return
    const all = await this.#exchange.all('gather', serialize(gpuName(device)))
    const gpus = all.map((bytes) => deserialize(bytes) as string)
    await this.#link.openCuda(device, gpus)
  }

  /** The flat tensor, or its copy in host memory if Gloo sends it: pinned, which the GPU copies to and from directly. Frees what it replaces. */
  #readable(flat: Tensor): Tensor {
    if (flat.device === 'cpu' || this.#link.cudaBackend === 'nccl') return flat
    const host = keep(aten('empty.memory_format', [flat.numel], { dtype: flat.dtype, pinMemory: true }))
    noGrad(() => void host.copy_(flat))
    flat.dispose()
    return host
  }

  note(step: number, phase: string): void {
    if (!this.#closed) this.#link.note(step, phase)
  }

  fail(error: unknown): Promise<void> {
    return this.#link.fail(error)
  }

  async close(): Promise<void> {
    if (this.#closed) return
    try {
      await this.barrier()
      this.#closed = true
      await this.#link.close()
      this.#exchange.dispose()
    } catch (error) {
      log.debug(`the group was not closed in order: ${messageOf(error)}`)
    }
  }
}

interface Sent {
  flat: Tensor
  sent: Promise<void>
}

/** Waits for all, in order; every flat tensor is freed, also after a failure, when nothing is in flight any more. */
async function landed<T extends Sent>(all: readonly T[], use: (one: T) => void): Promise<void> {
  const results = await Promise.allSettled(all.map((one) => one.sent))
  const failed = results.find((result) => result.status === 'rejected')
  if (!failed) for (const one of all) use(one)
  for (const { flat } of all) flat.dispose()
  if (failed) throw failed.reason
}

/** The tensor's memory as bytes where it is contiguous, else a copy. */
function bytesOf(tensor: Tensor): Tensor {
  return tidyNoGrad(() => {
    const flat = tensor.detach().contiguous().reshape([tensor.numel])
    return keep(aten('view.dtype', flat, 'uint8') as Tensor)
  })
}

function writeBytes(tensor: Tensor, bytes: Tensor): void {
  tidyNoGrad(
    () => void tensor.detach().copy_((aten('view.dtype', bytes, tensor.dtype) as Tensor).reshape([...tensor.shape])),
  )
}
