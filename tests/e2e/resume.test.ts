// kill -9 at random moments, then the same command again: nothing a seed decides may differ from a run that was left alone.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { newestValid } from '../../src/checkpoint/index.ts'
import { stream, streamId } from '../../src/core/index.ts'
import { makeToy, runBytes, scratch } from '../support/runs.ts'

const folder = scratch('resume')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

const work = fileURLToPath(new URL('./resume-work.ts', import.meta.url))

interface Ended {
  code: number | null
  signal: NodeJS.Signals | null
  text: string
}

/** A moment: so many milliseconds after the process has said that it is behind a step. */
interface Moment {
  step: number
  wait: number
}

async function run(output: string, passes: number, kill?: Moment): Promise<Ended> {
  const child = spawn(process.execPath, ['--import', 'tsx', work, toy, output, String(passes)], {
    env: { ...process.env, OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let text = ''
  let planned = false
  child.stderr.setEncoding('utf8').on('data', (some: string) => {
    text += some
  })
  child.stdout.setEncoding('utf8').on('data', (some: string) => {
    text += some
    if (!kill || planned || !text.includes(`at ${kill.step}\n`)) return
    planned = true
    void sleep(kill.wait).then(() => child.kill('SIGKILL'))
  })
  return new Promise((done) => {
    child.on('close', (code, signal) => done({ code, signal, text }))
  })
}

interface Killed {
  passes: number
  /** Step of the newest checkpoint that the kill left; -1: none. */
  left: number
  same: boolean
}

async function killOnce(name: string, passes: number, expected: Map<string, string>, moment: () => Moment) {
  for (let attempt = 0; attempt < 5; attempt++) {
    const output = join(folder, `${name}-${attempt}`)
    const first = await run(output, passes, moment())
    if (first.signal !== 'SIGKILL') continue // it had ended before
    const left = existsSync(output) ? (newestValid(output).checkpoint?.step ?? -1) : -1
    const second = await run(output, passes)
    assert.equal(second.code, 0, second.text)
    assert.match(second.text, /done 5/)
    const found = runBytes(output)
    assert.deepEqual(found, expected, `${name}, killed behind step ${left}`)
    assert.deepEqual(
      readdirSync(output).filter((f) => f.startsWith('.tmp-')),
      [],
    )
    rmSync(output, { recursive: true })
    return { passes, left, same: true } satisfies Killed
  }
  throw new Error(`${name}: five runs ended before they could be killed`)
}

test('20 runs killed with SIGKILL at random moments end with the bytes of a run that was not: one pass and two', async (t) => {
  const straight = await Promise.all(
    [1, 2].map(async (passes) => [passes, await run(join(folder, `straight-${passes}`), passes)] as const),
  )
  for (const [, ended] of straight) assert.equal(ended.code, 0, ended.text)
  const expected = new Map([1, 2].map((passes) => [passes, runBytes(join(folder, `straight-${passes}`))]))
  assert.ok([...expected.values()].every((files) => files.size === 2 + 2 * 7))
  assert.notDeepEqual(expected.get(1), expected.get(2))
  const random = stream(11, streamId.test, 'kills')
  /** From the start to behind the last step; the wait reaches into the next steps, the evaluations and the checkpoints. */
  const moment = () => ({ step: random.below(5), wait: random.uniform() * 500 })
  const killed: Killed[] = []
  let next = 0
  const worker = async () => {
    while (next < 20) {
      const i = next++
      const passes = 1 + (i % 2)
      killed.push(await killOnce(`run-${i}`, passes, expected.get(passes)!, moment))
    }
  }
  await Promise.all([worker(), worker()])
  assert.equal(killed.length, 20)
  const steps = killed.map((k) => k.left).sort((a, b) => a - b)
  t.diagnostic(`newest checkpoint left by each kill: ${steps.join(' ')}`)
  assert.ok(new Set(steps).size > 2, 'the kills hit different steps')
})
