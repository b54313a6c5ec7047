import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import type { EngineInfo } from './info.ts'

const fromSources = import.meta.url.endsWith('.ts')
const door = new URL(`./info.${fromSources ? 'ts' : 'js'}`, import.meta.url).href

function info(args: string[], env: NodeJS.ProcessEnv = process.env): string {
  const source = `import { command } from ${JSON.stringify(door)}
    await command().parseAsync(['node', 'info', ...${JSON.stringify(args)}])`
  const loader = fromSources ? ['--import', 'tsx'] : []
  const done = spawnSync(process.execPath, [...loader, '--input-type=module', '-e', source], { encoding: 'utf8', env })
  assert.equal(done.status, 0, done.stderr)
  return done.stdout
}

test('info names torch, devices, threads, BLAS and Node', () => {
  const report = JSON.parse(info(['--json'])) as EngineInfo
  assert.equal(report.problem, null)
  assert.equal(report.node, process.version)
  assert.match(report.engine!.version, /^\d+\.\d+/)
  assert.ok(report.engine!.threads >= 1 && report.engine!.blas.length > 0)
  assert.match(info([]), /^torch +\d[\s\S]*^devices +cpu/m)
})

test('before the set-up info says what to run instead of failing', () => {
  const { ROUNDTRIP_ADDON: _, ...env } = process.env
  const out = info([], { ...env, ROUNDTRIP_CACHE: mkdtempSync(join(tmpdir(), 'roundtrip-info-')) })
  assert.match(out, /not built yet: run `npx roundtrip-rl setup` once/)
  assert.match(out, /problem +engine: expected a built addon/)
})
