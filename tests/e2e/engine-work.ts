// Functions that the tests of the engine thread run inside it.
import type { EnginePort } from '../../src/engine/index.ts'
import { backward, keep, memory, randn, tidy, zeros } from '../../src/tensor/index.ts'

export interface Computing {
  size: number
  /** Ends the work when it is not 0. */
  stop?: Int32Array
}

/** Matrix products and backward passes until `stop`, or for ten minutes; gives how many. */
export function compute({ size, stop }: Computing, port: EnginePort): number {
  port.send('computing')
  const weight = keep(randn([size, size])).requiresGrad_()
  const end = performance.now() + 600_000
  let steps = 0
  for (; performance.now() < end && !(stop && Atomics.load(stop, 0)); steps++)
    tidy(() => {
      backward(weight.matmul(weight).tanh().matmul(weight).sum())
      weight.setGrad(null)
    })
  return steps
}

export async function converse(input: { from: number }, port: EnginePort): Promise<unknown> {
  const doubled = await port.ask({ double: input.from })
  const refused = await port
    .ask({ refuse: true })
    .catch((error: Error & { code?: string }) => `${error.name}:${error.code}:${error.message}`)
  port.send({ progress: 1 })
  return { doubled, refused, live: memory().tensors }
}

export async function untilStopped(input: { steps: number }, port: EnginePort): Promise<unknown> {
  let why: unknown
  port.onControl((message) => {
    why = message
  })
  let steps = 0
  port.send('started')
  for (; why === undefined && steps < input.steps; steps++) {
    tidy(() => void randn([64, 64]).matmul(randn([64, 64])))
    await port.breathe()
  }
  return { why, finished: steps === input.steps }
}

export function failInOp(): void {
  tidy(() => void zeros([4]).add(zeros([3])))
}

export async function failLater(): Promise<void> {
  setTimeout(() => {
    throw new RangeError('thrown from a timer')
  }, 10)
  await new Promise((resolve) => setTimeout(resolve, 10_000))
}

export function leave(): never {
  process.exit(3)
}

/** Uses the engine and leaves tensors behind: the next thread must find a clean one. */
export function litter(): number {
  for (let i = 0; i < 10; i++) keep(randn([10]))
  return memory().tensors
}
