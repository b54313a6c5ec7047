// For tests: several ranks in one process. They meet in memory, and a call that differs between them fails on all. What travels is copied.
import type { NamedTensors, World } from '../../src/distributed/index.ts'
import { noGrad, type Tensor, tensor, tidy } from '../../src/tensor/index.ts'

interface Call {
  kind: string
  values: unknown[]
  arrived: number
  all: Promise<unknown[]>
  complete(values: unknown[]): void
}

class Meeting {
  readonly size: number
  readonly #calls: Call[] = []

  constructor(size: number) {
    this.size = size
  }

  /** Every rank's value of the call of this number. */
  async at<T>(number: number, rank: number, kind: string, value: T): Promise<T[]> {
    this.#calls[number] ??= this.#open(kind)
    const call = this.#calls[number]
    if (call.kind !== kind) throw new Error(`rank ${rank} is at ${kind}, another at ${call.kind} (call ${number})`)
    call.values[rank] = structuredClone(value)
    if (++call.arrived === this.size) call.complete(call.values)
    return structuredClone((await call.all) as T[])
  }

  #open(kind: string): Call {
    let complete: Call['complete'] = () => undefined
    const all = new Promise<unknown[]>((resolve) => {
      complete = resolve
    })
    return { kind, values: new Array(this.size).fill(null), arrived: 0, all, complete }
  }
}

class RankTogether implements World {
  readonly rank: number
  readonly size: number
  readonly sent = 0
  readonly waited = 0
  readonly #meeting: Meeting
  #calls = 0

  constructor(rank: number, meeting: Meeting) {
    this.rank = rank
    this.size = meeting.size
    this.#meeting = meeting
  }

  #all<T>(kind: string, value: T): Promise<T[]> {
    return this.#meeting.at(this.#calls++, this.rank, kind, value)
  }

  async sum(values: readonly number[]): Promise<number[]> {
    const rows = await this.#all('sum', values)
    return values.map((_, i) => rows.slice(1).reduce((total, row) => total + row[i]!, rows[0]![i]!))
  }

  gather<T>(value: T): Promise<T[]> {
    return this.#all('gather', value)
  }

  async agree(flags: readonly boolean[]): Promise<boolean[]> {
    const all = await this.#all('agree', flags)
    return flags.map((_, i) => all.some((row) => row[i]))
  }

  async barrier(): Promise<void> {
    await this.#all('barrier', null)
  }

  async sumGradients(parameters: NamedTensors): Promise<void> {
    const own = [...parameters].map(([name, t]) => ({ name, grad: tidy(() => t.grad()?.array() ?? null) }))
    const all = (await this.#all('gradients', own)) as { name: string; grad: Float32Array | null }[][]
    own.forEach(({ name }, i) => {
      const grads = all.flatMap((rank) => rank[i]!.grad ?? [])
      if (grads.length > 0) giveGradient(parameters.get(name)!, grads)
    })
  }

  async broadcast(tensors: NamedTensors, from = 0): Promise<void> {
    const own = [...tensors.values()].map((t) => t.detach().array())
    const theirs = (await this.#all(`broadcast of ${from}`, own))[from]!
    const values = [...tensors.values()]
    noGrad(() => tidy(() => values.forEach((t, i) => void t.detach().copy_(tensor(theirs[i]!, [...t.shape])))))
  }

  note(): void {}
  async fail(): Promise<void> {}
  async close(): Promise<void> {}
}

function giveGradient(parameter: Tensor, grads: readonly Float32Array[]): void {
  const [first, ...others] = grads as [Float32Array, ...Float32Array[]]
  const total = first.map((v, i) => others.reduce((sum, grad) => Math.fround(sum + grad[i]!), v))
  noGrad(() => tidy(() => parameter.setGrad(tensor(total, [...parameter.shape]))))
}

export function worldsTogether(size: number): World[] {
  const meeting = new Meeting(size)
  return Array.from({ length: size }, (_, rank) => new RankTogether(rank, meeting))
}
