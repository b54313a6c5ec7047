// kill -9 at random moments, then the same command again: nothing a seed decides may differ from a run that was left alone.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { newestValid } from '../../src/checkpoint/index.ts'
import { stream, streamId } from '../../src/core/index.ts'
import { ownProgram } from '../support/own-program.ts'
import { makeToy, runBytes, scratch } from '../support/runs.ts'

const folder = scratch('resume')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

/** Enough that most kills come before the end. */
const steps = 8
const work = ownProgram('./resume-work.ts', import.meta.url)

interface Ended {
  code: number | null
  signal: NodeJS.Signals | null
  text: string
}

/** When to kill: `wait` ms after the process has printed more than `lines` lines "at N". */
interface Moment {
  lines: number
  wait: number
}

async function run(output: string, passes: number, kill?: Moment): Promise<Ended> {
  const child = spawn(process.execPath, [...work, toy, output, String(passes), String(steps)], {
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
    if (!kill || planned || (text.match(/^at \d+$/gm)?.length ?? 0) <= kill.lines) return
    planned = true
    void sleep(kill.wait).then(() => child.kill('SIGKILL'))
  })
  return new Promise((done) => {
    child.on('close', (code, signal) => done({ code, signal, text }))
  })
}

const random = stream(11, streamId.test, 'kills')
/** From the opened model to after the last step; the wait reaches into the next steps, the evaluations and the checkpoints. */
const moment = (): Moment => ({ lines: random.below(4), wait: random.uniform() * 500 })

const kills = 20
/** Newest checkpoint that each kill left; -1: none. */
const left: number[] = []

/** One run, killed again and again until it gets through or the kills are used up, and its bytes at the end. */
async function disturbed(output: string, passes: number): Promise<Map<string, string>> {
  for (;;) {
    const ended = await run(output, passes, left.length < kills ? moment() : undefined)
    if (ended.signal !== 'SIGKILL') {
      assert.equal(ended.code, 0, ended.text)
      assert.match(ended.text, new RegExp(`done ${steps}`))
      return runBytes(output)
    }
    left.push(existsSync(output) ? (newestValid(output).checkpoint?.step ?? -1) : -1)
  }
}

test('runs killed with SIGKILL at 20 random moments end with the bytes of a run that was not: one pass and two', async (t) => {
  const expected = new Map<number, Map<string, string>>()
  await Promise.all(
    [1, 2].map(async (passes) => {
      const ended = await run(join(folder, `straight-${passes}`), passes)
      assert.equal(ended.code, 0, ended.text)
      expected.set(passes, runBytes(join(folder, `straight-${passes}`)))
    }),
  )
  assert.ok(
    [...expected.values()].every((files) => files.size === 2 + 2 * 7),
    'events, samples and two checkpoints',
  )
  assert.notDeepEqual(expected.get(1), expected.get(2))
  const worker = async (passes: number) => {
    for (let i = 0; left.length < kills; i++) {
      const output = join(folder, `killed-${passes}-${i}`)
      assert.deepEqual(await disturbed(output, passes), expected.get(passes), `${output}, killed after ${left}`)
      assert.deepEqual(
        readdirSync(output).filter((f) => f.startsWith('.tmp-')),
        [],
      )
      rmSync(output, { recursive: true })
    }
  }
  await Promise.all([worker(1), worker(2)])
  t.diagnostic(`newest checkpoint left by each kill: ${left.join(' ')}`)
  assert.ok(left.length >= kills, `${left.length} kills`)
  assert.ok(new Set(left).size > 2, 'the kills hit different steps')
})
