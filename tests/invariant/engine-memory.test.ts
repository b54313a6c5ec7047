import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import { backward, checkpoint, keep, memory, ones, type Tensor, tapeLength, tidy } from '../../src/tensor/index.ts'

function residentMb(): number {
  const kb = readFileSync('/proc/self/status', 'utf8').match(/^VmRSS:\s+(\d+)/m)
  return Number(kb![1]) / 1024
}

test('a million ops in one synchronous loop leave resident memory flat', () => {
  const a = keep(ones([16]))
  const loop = (ops: number) => {
    for (let i = 0; i < ops / 10; i++)
      tidy(() => {
        let x = a
        for (let k = 0; k < 10; k++) x = x.add(a)
      })
  }
  loop(100_000) // V8's young generation and the allocator settle
  const before = memory()
  const seen = [residentMb()]
  for (let part = 0; part < 5; part++) {
    loop(200_000)
    seen.push(residentMb())
  }
  // a leak of 8 bytes an op grows every part; the heap grows once in a while
  const growth = seen.slice(1).map((value, i) => value - seen[i]!)
  assert.ok(Math.min(...growth) < 1.5, seen.map((value) => value.toFixed(1)).join(', '))
  assert.equal(memory().bytes, before.bytes)
  assert.equal(memory().slots, before.slots)
  a.dispose()
})

test('an explicit dispose inside one long scope leaks nothing either', () => {
  const a = keep(ones([16]))
  const start = memory()
  tidy(() => {
    for (let i = 0; i < 50_000; i++) a.add(a).dispose()
    assert.equal(memory().tensors, start.tensors)
  })
  assert.equal(memory().bytes, start.bytes)
  a.dispose()
})

test('2,000 training steps with checkpoints hold the same number of tensors and bytes', () => {
  const w = keep(ones([8, 8])).requiresGrad_()
  const step = () =>
    tidy(() => {
      const h = checkpoint((t: Tensor) => t.matmul(w).tanh(), w.mul(0.1))
      backward(h.sum())
      w.setGrad(null)
    })
  for (let i = 0; i < 10; i++) step()
  const before = memory()
  for (let i = 0; i < 2000; i++) step()
  const after = memory()
  assert.deepEqual([after.tensors, after.bytes, after.slots], [before.tensors, before.bytes, before.slots])
  assert.equal(tapeLength(), 0)
  w.dispose()
})
