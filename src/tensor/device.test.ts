// Graph capture without a GPU: the calls of the addon are replaced. What CUDA does is checked in tests/gpu.
import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { type Native, native } from '../engine/index.ts'
import { CudaGraph, cuda, sideBySide } from './device.ts'

/** A device that behaves until `fail()`, and then refuses every call, as CUDA does after an illegal access. */
function fakeDevice(t: { after(fn: () => void): void }) {
  const calls: string[] = []
  let failed = false
  const call = (name: string) => {
    calls.push(name)
    if (failed) throw new Error(`${name}: an error of the device`)
  }
  const replace = (name: keyof Native, fn: (...args: never[]) => unknown) => {
    const replaced = mock.method(native() as unknown as Record<string, () => unknown>, name, fn as never)
    t.after(() => replaced.mock.restore())
  }
  replace('cudaSideStream', ((on: boolean) => call(on ? 'to the side' : 'back')) as never)
  replace('cudaSynchronize', () => call('synchronize'))
  replace('cudaFork', () => call('fork'))
  replace('cudaBeside', ((on: boolean) => call(on ? 'second stream' : 'joined')) as never)
  replace('graphBegin', () => {
    call('begin')
    return 0
  })
  for (const name of ['graphEnd', 'graphFree'] as const) replace(name, () => call(name))
  return {
    calls,
    fail: () => {
      failed = true
    },
  }
}

test('a capture runs on the side stream and comes back from it', (t) => {
  const { calls } = fakeDevice(t)
  const { graph, result } = CudaGraph.capture(() => 7, { device: 'cuda:0', warmups: 1 })
  assert.equal(result, 7)
  assert.deepEqual(calls, ['to the side', 'synchronize', 'begin', 'graphEnd', 'back'])
  graph.dispose()
})

test('an error of the step is reported, the capture is ended and the stream left', (t) => {
  const { calls } = fakeDevice(t)
  const step = () => {
    throw new Error('of the step')
  }
  assert.throws(() => CudaGraph.capture(step, { device: 'cuda:0', warmups: 0 }), /of the step/)
  assert.deepEqual(calls, ['to the side', 'synchronize', 'begin', 'graphEnd', 'graphFree', 'back'])
})

for (const warmups of [1, 0])
  test(`where the device fails in ${warmups ? 'a run before' : 'a capture'}, its first error is reported, not that of leaving`, (t) => {
    const device = fakeDevice(t)
    const step = () => {
      device.fail()
      throw new Error('illegal access in the step')
    }
    assert.throws(() => CudaGraph.capture(step, { device: 'cuda:0', warmups }), /illegal access in the step/)
    assert.equal(device.calls.at(-1), 'back')
  })

test('the second of two parts goes to a second stream, which begins where the first does; what follows waits for both', (t) => {
  const { calls } = fakeDevice(t)
  const part = (name: string) => () => calls.push(name)
  sideBySide('cuda:0', part('here'), part('beside'))
  assert.deepEqual(calls.splice(0), ['fork', 'here', 'second stream', 'beside', 'joined'])
  const fail = () => {
    throw new Error('no memory')
  }
  assert.throws(() => sideBySide('cuda:0', part('here'), fail), /no memory/)
  assert.deepEqual(calls.splice(0), ['fork', 'here', 'second stream', 'joined'])
  assert.deepEqual(sideBySide('cpu', part('here'), part('beside')), [1, 2])
  assert.deepEqual(calls, ['here', 'beside'])
})

test('a GPU that does not exist is refused with a clear message before it is used', () => {
  const words =
    /settings: device: expected (cpu: the engine sees no CUDA device|one of \d+ CUDA devices), got cuda:\d+\. /
  for (const ask of [cuda.use, cuda.requireDevice]) assert.throws(() => ask(`cuda:${cuda.count()}`), words)
})
