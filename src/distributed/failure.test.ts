import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import { Mismatch, Unavailable } from '../core/index.ts'
import { Disagreement, Divergence, exitCodeOf, exitCodes, mayRestart, PeerFailure, writeErrorFile } from './failure.ts'

const info = { where: 'here', expected: 'one thing', got: 'another' }

test('the codes that launchers and scripts know do not change', () => {
  assert.deepEqual(exitCodes, {
    finished: 0,
    configuration: 2,
    unavailable: 69,
    internal: 70,
    peer: 75,
    nonFinite: 76,
    disk: 77,
    interrupted: 130,
    terminated: 143,
  })
})

test('an error has the code it brings, or that of its kind', () => {
  const system = (code: string) => Object.assign(new Error(code), { code })
  for (const [error, code] of [
    [new Mismatch(info), 2],
    [new Disagreement(info), 2],
    [new Unavailable(info), 69],
    [new Divergence('weights differ'), 70],
    [new PeerFailure('rank 1 does not respond'), 75],
    [Object.assign(new Mismatch(info), { exitCode: 76 }), 76],
    [system('ENOSPC'), 77],
    [system('EDQUOT'), 77],
    [system('EIO'), 70],
    [{ code: 'ERR_MISMATCH' }, 2], // it crossed threads
    [new TypeError('a bug'), 70],
    [null, 70],
    ['text', 70],
  ] as const)
    assert.equal(exitCodeOf(error), code, `${String(error)}`)
})

test('another start can help after a crash, a kill or a lost peer, never after an error that the user must fix', () => {
  const again = [70, 75, 134, 137, 139]
  for (const code of [0, 1, 2, 69, 70, 75, 76, 77, 130, 134, 137, 139, 143])
    assert.equal(mayRestart(code, null), again.includes(code), `code ${code}`)
  for (const [
    signal,
    expected,
  ] of [['SIGKILL', true], ['SIGSEGV', true], ['SIGINT', false], ['SIGTERM', false]] as const) // biome-ignore format: pairs
    assert.equal(mayRestart(null, signal), expected, signal)
})

test('torchrun finds the message of the rank that failed in the file it names', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'failure-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const path = join(folder, 'error.json')
  writeErrorFile(new Error('it broke'), {})
  writeErrorFile(new Error('it broke'), { TORCHELASTIC_ERROR_FILE: path })
  const { message } = JSON.parse(readFileSync(path, 'utf8'))
  assert.equal(message.message, 'it broke')
  assert.match(message.extraInfo.timestamp, /^\d{10}$/)
  assert.match(message.extraInfo.py_callstack, /it broke[\s\S]*failure\.test/)
})
