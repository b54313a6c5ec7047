// The live page as a process with few file handles, and peers that use them up.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { RunWriter } from '../../src/tracking/index.ts'
import { program } from './cli.ts'

test('connections that take every file handle do not end the page, and afterwards it has what came meanwhile', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'handles-'))
  t.after(() => rmSync(root, { recursive: true, force: true }))
  const writer = RunWriter.create(join(root, 'run'), { config: {}, environment: {} })
  writer.step(1, { loss: 1 }, {})
  writer.close()
  const command = `ulimit -n 256; exec "${process.execPath}" "${program}" watch "${root}" --port 0`
  const page = spawn('bash', ['-c', command], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => page.kill())
  const url = String((await once(page.stdout, 'data'))[0]).trim()
  const live = await fetch(new URL('/api/live', url)) // somebody looks, so the logs are read
  const sockets: Socket[] = Array.from({ length: 500 }, () => connect(Number(new URL(url).port), '127.0.0.1'))
  for (const socket of sockets) socket.on('error', () => {}) // the page may close what it cannot hold
  for (let step = 2; step <= 8; step++) {
    await new Promise((done) => setTimeout(done, 300))
    appendFileSync(join(root, 'run', 'events.jsonl'), `{"t":"step","step":${step},"metrics":{"loss":1}}\n`)
  }
  assert.equal(page.exitCode, null)
  for (const socket of sockets) socket.destroy()
  await live.body?.cancel()
  for (const end = performance.now() + 600_000; ; ) {
    const answer = await fetch(new URL('/api/runs', url)).catch(() => null)
    const { runs } = answer ? ((await answer.json()) as { runs: { step: number; problems: number }[] }) : { runs: [] }
    if (runs[0]?.step === 8 && runs[0].problems === 0) break
    assert.ok(performance.now() < end, JSON.stringify(runs))
    await new Promise((done) => setTimeout(done, 100))
  }
})
