import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Mismatch } from '../core/index.ts'
import { readRunState } from './run-state-file.ts'

const root = mkdtempSync(join(tmpdir(), 'roundtrip-state-'))
after(() => rmSync(root, { recursive: true, force: true }))
const folder = join(root, 'checkpoint_step_6')
mkdirSync(folder)

function state(): Record<string, unknown> {
  const rejects = {}
  const loader = { version: 1, fingerprint: 'f', seed: 0, rank: 0, world: 1, epoch: 0, position: 3, seen: 3, rejects }
  const group = {
    task: 'loop1',
    record: 'r',
    rollouts: [{ ids: '', text: '', finished: true, logps: '' }],
    advantages: '',
  }
  return {
    version: 1,
    step: 6,
    fingerprint: 'f',
    loader,
    position: { events: 10, samples: 0 },
    actionScale: 1,
    balance: { loop1: 0.5, loop2: 0.5 },
    norms: { loop1: 0, loop2: 0 },
    entropy: { coef: 0.1, last: null },
    buffer: { groups: [group], next: 1 },
    flat: 0,
  }
}

function read(change: (s: Record<string, never>) => void): unknown {
  const value = state()
  change(value as Record<string, never>)
  writeFileSync(join(folder, 'state.json'), JSON.stringify(value))
  return readRunState(folder)
}

test('a state as it was written is read back', () => {
  assert.deepEqual(
    read(() => undefined),
    state(),
  )
  assert.ok(read((s) => delete s.entropy))
  assert.ok(read((s) => Object.assign(s, { buffer: null, later: { more: 1 } })))
})

test('values of another type or range are refused by field, and a step that is not the folder is too', () => {
  const wrong: [string, unknown][] = [
    ['step', -5],
    ['step', 1e9],
    ['step', '6'],
    ['version', '1'],
    ['actionScale', null],
    ['loader.position', -1],
    ['loader.position', 1.5],
    ['loader.epoch', -3],
    ['loader', undefined],
    ['position', null],
    ['position.events', -1],
    ['balance', 5],
    ['norms', undefined],
    ['entropy', { coef: 'x' }],
    ['buffer', { groups: [{ task: 'loop9' }], next: 0 }],
    ['buffer.next', 5],
    ['flat', -1],
  ]
  for (const [path, value] of wrong) {
    const keys = path.split('.')
    const change = (s: Record<string, never>) => {
      const last = keys.slice(0, -1).reduce<Record<string, unknown>>((o, k) => o[k] as Record<string, unknown>, s)
      last[keys.at(-1)!] = value
    }
    const named = (error: unknown) =>
      error instanceof Mismatch && error.message.startsWith(`${join(folder, 'state.json')}: ${path}`)
    assert.throws(() => read(change), named, `${path} = ${JSON.stringify(value)}`)
  }
})

test('a state written by a later release is refused with a message that says so', () => {
  const later = /state\.json: version: expected 1 or 2, got 3\. a later release wrote it/
  assert.throws(() => read((s) => Object.assign(s, { version: 3 })), later)
  assert.throws(() => read((s) => delete s.version), /state\.json: version: expected 1 or 2, got nothing$/)
})

test('a state that is not a JSON object names its file', () => {
  for (const text of ['', '[]', 'null', '{', 'version https://git-lfs.github.com/spec/v1\n']) {
    writeFileSync(join(folder, 'state.json'), text)
    assert.throws(() => readRunState(folder), /state\.json: expected/)
  }
})
