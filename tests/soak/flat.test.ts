import assert from 'node:assert/strict'
import { test } from 'node:test'
import { flatness, type Held } from './flat.ts'

const mib = 2 ** 20
const steps = (change: (step: number) => Partial<Held>): Held[] =>
  Array.from({ length: 2000 }, (_, i) => {
    const flat = { rss: 600 * mib, heap: 90 * mib, blocks: 2 * mib, files: 280 * mib, tensors: 969, handles: 30 }
    return { step: i + 1, ...flat, ...change(i + 1) }
  })

test('a run that holds the same is flat, whatever it holds between two collections', () => {
  const garbage = steps((step) => (step % 50 === 0 ? {} : { rss: 900 * mib }))
  assert.match(flatness(garbage), /^steps 1001 to 2000: 969 live tensors, 30 to 30 handles, 600 to 600 MiB, JavaScript/)
})

test('memory that grows is reported with the part that grew and the steps between which it did', () => {
  const grown = steps((step) => (step > 1480 ? { rss: 670 * mib, heap: 155 * mib } : {}))
  const words =
    /grew by 11\.67 %.*JavaScript 90 to 155, .*rise 70 MiB, steps 1450 to 1500: .*blocks of tensors 2 to 2, mapped files 280 to 280/
  assert.throws(() => flatness(grown), words)
})

test('a tensor or a file more every hundred steps is not flat', () => {
  const every = (step: number) => Math.floor(step / 100)
  assert.throws(() => flatness(steps((step) => ({ tensors: 969 + every(step) }))), /live tensors/)
  assert.throws(() => flatness(steps((step) => ({ handles: 30 + every(step) }))), /handles 40 to 50/)
})
