import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SlowPathLog } from './slow-path.ts'

test('a reason is logged once, from sampling, and not from a pass outside of it', () => {
  const lines: string[] = []
  const log = new SlowPathLog((text) => lines.push(text))
  log.note('adapters are apart') // a calibration pass
  assert.deepEqual(lines, [])
  log.whileSampling(() => log.note('adapters are apart'))
  log.whileSampling(() => log.note('adapters are apart'))
  log.whileSampling(() => log.note('float32'))
  const head = 'decoding uses PyTorch ops instead of the custom kernels: '
  assert.deepEqual(lines, [`${head}adapters are apart`, `${head}float32`])
})

test('sampling ends with its function, also when that throws or samples inside', () => {
  const lines: string[] = []
  const log = new SlowPathLog((text) => lines.push(text))
  const fail = () => {
    throw new Error('no memory')
  }
  assert.throws(() => log.whileSampling(fail), /no memory/)
  log.note('one')
  assert.equal(lines.length, 0)
  log.whileSampling(() => {
    log.whileSampling(() => {})
    log.note('two')
  })
  assert.equal(lines.length, 1)
})
