import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import test from 'node:test'

const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js'
const module = new URL(`./early-exit.${extension}`, import.meta.url).href

function endOf(then: string): { status: number | null; stderr: string } {
  const source = `const { refuseEarlyExit } = await import(${JSON.stringify(module)}); const ended = refuseEarlyExit(); ${then}`
  const loader = extension === 'ts' ? ['--import', 'tsx'] : []
  return spawnSync(process.execPath, [...loader, '--input-type=module', '-e', source], { encoding: 'utf8' })
}

test('a module that ends the process with 0 inside a run is reported, and the exit code is not 0', () => {
  const early = endOf('process.exit(0)')
  assert.equal(early.status, 70)
  assert.match(
    early.stderr,
    /^error: run: expected to end by itself, got an exit with 0 before its end\. does a reward/,
  )
})

test('other codes stay, and so does the end of a run that is through', () => {
  assert.deepEqual([endOf('process.exit(3)').status, endOf('ended(); process.exit(0)').status], [3, 0])
})
