import assert from 'node:assert/strict'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { stream } from '../../src/core/index.ts'
import { scratch } from '../support/runs.ts'
import { Kills, killedOften } from './lives.ts'

const folder = scratch('lives')
after(() => rmSync(folder, { recursive: true, force: true }))

const program = (code: string) => ({ args: ['-e', code], cwd: folder })
const moments = (seconds: number) => ({ seconds, lines: 1, lineSeconds: 0, ranks: 0 })

test('a kill counts when it hits, and the last life is let through', async () => {
  const gate = join(folder, 'gate')
  const kills = new Kills(2)
  const waiting = program(`setInterval(() => fs.existsSync(${JSON.stringify(gate)}) && process.exit(0), 10)`)
  const often = killedOften(waiting, kills, 2, moments(0.01), stream('lives', 1))
  while (kills.made < 2) await sleep(10)
  writeFileSync(gate, '')
  const { hits, last } = await often
  assert.deepEqual([hits, last.killed, last.through, kills.open], [2, false, true, false])
})

test('a kill that comes too late is repeated', async () => {
  const kills = new Kills(1)
  const { hits, last } = await killedOften(program(''), kills, 1, moments(1e6), stream('lives', 2))
  assert.deepEqual([hits, last.through, kills.made, kills.open], [0, true, 0, true])
})

test('kills that always come too late end with a clear message', () => {
  const kills = new Kills(1)
  const late = () => {
    for (;;) {
      assert.ok(kills.take(), 'one kill is left')
      kills.note(false)
    }
  }
  assert.throws(late, /24 kills came too late/)
})

test('a program that fails is not a kill', async () => {
  const failing = killedOften(program('process.exit(3)'), new Kills(1), 1, moments(1e6), stream('lives', 3))
  await assert.rejects(failing, /ended with 3/)
})
