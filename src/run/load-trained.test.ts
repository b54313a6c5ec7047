import assert from 'node:assert/strict'
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { scratch } from '../../tests/support/runs.ts'
import { writeCheckpoint, writeSafetensors } from '../checkpoint/index.ts'
import type { Family } from '../models/index.ts'
import { Linear, Module } from '../nn/index.ts'
import { loadTrained } from './load-trained.ts'

const folder = scratch('trained')
after(() => rmSync(folder, { recursive: true, force: true }))
const family = { module: { slots: () => [] }, placement: { device: 'cpu' } } as unknown as Family

test('of a run the newest whole checkpoint is taken, and a newer one that is damaged is reported', (t) => {
  const run = join(folder, 'run')
  const files = { 'trainables.safetensors': (file: string) => writeSafetensors(file, []) }
  for (const step of [1, 2]) writeCheckpoint(run, step, files)
  rmSync(join(run, 'checkpoint_step_2', 'trainables.safetensors'))
  const written = t.mock.method(process.stderr, 'write', () => true)
  assert.equal(loadTrained(family, run), join(run, 'checkpoint_step_1'))
  const said = written.mock.calls.map(({ arguments: [text] }) => String(text)).join('')
  assert.match(said, /warn: .*checkpoint_step_2: not used: trainables\.safetensors: expected \d+ bytes, got no file/)
})

test('a checkpoint that is named itself is refused when a file of it is not as it was written', () => {
  const path = writeCheckpoint(folder, 3, {
    'trainables.safetensors': (file) => writeSafetensors(file, []),
    'state.json': '{"step":3}',
  })
  assert.equal(loadTrained(family, path), path)
  const best = join(folder, 'best')
  renameSync(path, best)
  assert.equal(loadTrained(family, best), best, 'under another name')
  writeFileSync(join(best, 'state.json'), '{"step":4}')
  assert.throws(
    () => loadTrained(family, best),
    /best: adapter: expected a checkpoint as it was .*state\.json: its SHA/,
  )
  writeFileSync(join(best, 'manifest.json'), '{')
  assert.throws(() => loadTrained(family, best), /best: adapter: expected a checkpoint as it was written/)
  rmSync(join(best, 'manifest.json'))
  assert.equal(loadTrained(family, best), best, 'without a manifest it is an adapter like any other')
})

class Net extends Module {
  readonly head = new Linear(2, 1, { bias: false })
}

test('the trained weights are put in place, with `ema` the EMA copies, and `ema` without a file is refused', () => {
  const net = new Net()
  const family = { module: net, placement: { device: 'cpu' } } as unknown as Family
  const weights = (...values: number[]) => {
    const data = new Uint8Array(Float32Array.from(values).buffer)
    return (file: string) => writeSafetensors(file, [{ name: 'head.weight', dtype: 'F32', shape: [1, 2], data }])
  }
  const files = { 'trainables.safetensors': weights(1, 2), 'ema.safetensors': weights(3, 4) }
  const path = writeCheckpoint(join(folder, 'averaged'), 1, files)
  loadTrained(family, path)
  assert.deepEqual(net.head.weight.numbers(), [1, 2])
  loadTrained(family, path, { ema: true })
  assert.deepEqual(net.head.weight.numbers(), [3, 4])
  const bare = writeCheckpoint(join(folder, 'bare'), 1, { 'trainables.safetensors': weights(1, 2) })
  assert.throws(() => loadTrained(family, bare, { ema: true }), /ema\.safetensors: expected a file, got none/)
  const other = (file: string) =>
    writeSafetensors(file, [{ name: 'head.weight', dtype: 'F32', shape: [2, 1], data: new Uint8Array(8) }])
  const turned = writeCheckpoint(join(folder, 'turned'), 1, { 'trainables.safetensors': other })
  assert.throws(() => loadTrained(family, turned), /head\.weight: expected \[1,2\], got \[2,1\]/)
  net.head.weight.dispose()
})
