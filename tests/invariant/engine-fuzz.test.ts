import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import test from 'node:test'
import { fileURLToPath } from 'node:url'

test('10,000 calls with arguments that fit or not: errors with a code, no crash, the engine sane afterwards', () => {
  const fromSources = import.meta.url.endsWith('.ts')
  const script = fileURLToPath(new URL(`./engine-fuzz.${fromSources ? 'ts' : 'js'}`, import.meta.url))
  const args = [...(fromSources ? ['--import', 'tsx'] : []), script, '7', '10000']
  const { status, signal, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', maxBuffer: 1 << 26 })
  assert.deepEqual({ status, signal }, { status: 0, signal: null }, stderr.slice(-2000))
  const report = JSON.parse(stdout) as { passed: number; refused: number; sane: boolean; codes: Record<string, number> }
  assert.ok(report.sane, stdout)
  assert.equal(report.passed + report.refused, 10_000)
  assert.ok(report.passed > 2000 && report.refused > 2000, stdout)
  const known = ['ERR_ARGUMENT', 'ERR_TORCH', 'ERR_TENSOR_DISPOSED', 'ERR_OOM']
  assert.deepEqual(
    Object.keys(report.codes).filter((code) => !known.includes(code)),
    [],
    stdout,
  )
})
