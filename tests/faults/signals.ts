// Real processes and real signals. A run that must still be running waits in its scoring.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { newestValid } from '../../src/checkpoint/index.ts'
import type { Started } from '../e2e/cli.ts'
import { heldReward } from '../support/held-reward.ts'
import { type Bench, reached } from './bench.ts'
import { type Row, row } from './row.ts'

const program = fileURLToPath(new URL('../../bin/roundtrip.mjs', import.meta.url))
const endless = ['--maxSteps', '1000000']

interface Ending {
  code: number | null
  seconds: number
  step: number
}

async function ending(bench: Bench, output: string, run: Started, signal: NodeJS.Signals): Promise<Ending> {
  const from = performance.now()
  run.signal(signal)
  const { code, err } = await run.ended
  const seconds = (performance.now() - from) / 1000
  const { checkpoint, invalid } = newestValid(bench.at(output))
  assert.deepEqual(invalid, [], err)
  return { code, seconds, step: checkpoint?.step ?? -1 }
}

/** A checkpoint is being written at this moment. */
function saving(folder: string): boolean {
  return existsSync(folder) && readdirSync(folder).some((name) => name.startsWith('.tmp-'))
}

async function terminated(bench: Bench): Promise<string> {
  const reward = heldReward(bench.at('term.mjs'), 4)
  const phases: Record<string, { more?: string[]; held?: boolean; when(run: Started, output: string): Promise<void> }> =
    {
      load: { when: (run) => run.seen(/model/) },
      evaluation: { more: ['--evalRecords', '6'], when: (run) => run.seen(/evaluation/) },
      reward: { held: true, when: (run) => run.seen(/train .* 1\/1000000 /) },
      save: { more: ['--saveSteps', '1'], when: (run, output) => reached(run, () => saving(bench.at(output))) },
      step: { when: (run) => run.seen(/train .* 1\/1000000 /) },
    }
  const seen: string[] = []
  for (const [name, { more = [], held, when }] of Object.entries(phases)) {
    if (held) reward.hold()
    const output = `term-${name}`
    const evaluated = name === 'evaluation' ? ['--data.evalFraction', '0.3'] : []
    const run = bench.start(output, ...endless, '--reward', reward.path, ...more, ...evaluated)
    const early = run.ended.then(({ err }) => assert.fail(`${name}: the run ended: ${err.slice(-300)}`))
    await Promise.race([when(run, output), early])
    const { code, seconds } = await ending(bench, output, run, 'SIGTERM')
    reward.release()
    assert.equal(code, 143, `${name}: exit code`)
    seen.push(`${name} ${seconds.toFixed(1)} s`)
  }
  return `exit 143 in every phase: ${seen.join(', ')}`
}

async function hangingJudge(bench: Bench): Promise<string> {
  let asked = 0
  const server = createServer((request, response) => {
    if (request.method === 'GET') response.end('{"data": []}')
    else if (++asked === 1) response.setHeader('content-type', 'application/json').end(reply('7'))
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
  const terms = JSON.stringify([{ type: 'judge', weight: 1, of: 'caption' }])
  const judge = [
    '--rewards.judge.enabled',
    'true',
    '--rewards.judge.baseUrl',
    baseUrl,
    '--rewards.judge.mode',
    'number',
  ]
  const more = ['--rewards.loop1.terms', terms, '--rewards.judge.cacheDir', bench.at('judge-cache'), ...judge]
  const run = bench.start('hanging', ...endless, ...more)
  await reached(run, () => asked >= 2)
  const { code, seconds } = await ending(bench, 'hanging', run, 'SIGTERM')
  server.close()
  server.closeAllConnections()
  assert.equal(code, 143)
  return `exit 143 after ${seconds.toFixed(1)} s, with the judge still silent`
}

const reply = (content: string) =>
  JSON.stringify({ choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content } }] })

async function interrupted(bench: Bench): Promise<string> {
  const reward = heldReward(bench.at('int.mjs'), 4)
  reward.hold()
  const once = bench.start('int', ...endless, '--reward', reward.path)
  await once.seen(/train .* 1\/1000000 /)
  const first = await ending(bench, 'int', once, 'SIGINT')
  assert.deepEqual([first.code, first.step], [0, 1])
  const twice = bench.start('int', ...endless, '--reward', reward.path)
  await twice.seen(/resume/)
  process.kill(twice.pid, 'SIGSTOP') // both are there when it wakes
  twice.signal('SIGTERM')
  twice.signal('SIGINT')
  const second = await ending(bench, 'int', twice, 'SIGCONT')
  reward.release()
  assert.deepEqual([second.code, second.step], [130, 1])
  return 'once: saved, exit 0; twice: exit 130, the checkpoint whole'
}

/** The reader of both streams goes away after the first bytes; then the terminal is lost as well. */
async function lostTerminal(bench: Bench): Promise<string> {
  const reward = heldReward(bench.at('lost.mjs'), 4)
  reward.hold()
  const args = bench.command('lost', ...endless, '--reward', reward.path)
  const child = spawn(process.execPath, [program, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  const ended = new Promise<number | null>((done) => child.on('close', done))
  child.stderr.once('data', () => {
    child.stderr.destroy()
    child.stdout.destroy()
  })
  const log = bench.at('lost/events.jsonl')
  const stepped = () => existsSync(log) && readFileSync(log, 'utf8').includes('"t":"step"')
  while (child.exitCode === null && !stepped()) await sleep(50)
  child.kill('SIGHUP')
  const code = await ended
  reward.release()
  assert.equal(code, 129)
  assert.equal(newestValid(bench.at('lost')).checkpoint?.step, 1)
  return 'the run outlives both closed pipes; SIGHUP saves, exit 129'
}

export const signals: readonly Row[] = [
  row(16, 'sigterm', 'SIGTERM while it loads, evaluates, scores, saves, steps', 'ends', terminated),
  row(17, 'sigterm-judge', 'SIGTERM while the judge does not answer', 'ends', hangingJudge),
  row(18, 'sigint', 'SIGINT once, and twice', 'ends', interrupted),
  row(21, 'terminal', 'output pipes closed, then SIGHUP', 'ends', lostTerminal),
]
