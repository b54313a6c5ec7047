// One run on two hosts: network namespaces with their own addresses and names, the variables that torchrun sets, a shared run folder.
// Every fault ends with a message that names host and cause, long before the 600 s of a collective, with the checkpoint intact.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { newestValid } from '../../src/checkpoint/index.ts'
import { program, type Started, startProgram } from '../e2e/cli.ts'
import { heldReward } from '../support/held-reward.ts'
import { makeToy, scratch } from '../support/runs.ts'
import { noHosts, openHosts } from '../support/two-hosts.ts'
import { startRanks } from './distributed-ranks.ts'

const skip = { skip: noHosts }
const hosts = noHosts ? null : openHosts()
const folder = scratch('two-hosts')
const at = (name: string) => join(folder, name)
const hour = 3_600_000
after(() => {
  hosts?.close()
  rmSync(folder, { recursive: true, force: true })
})

const on = (rank: number) => hosts!.on(rank)
const meeting = (port: number, host = hosts!.addresses[0]) => {
  return { MASTER_ADDR: host, MASTER_PORT: String(port), LOCAL_RANK: '0', LOCAL_WORLD_SIZE: '1' }
}

async function inFiveMinutes<T>(work: Promise<T>): Promise<T> {
  const startedAt = performance.now()
  const result = await work
  const seconds = (performance.now() - startedAt) / 1000
  assert.ok(seconds < 300, `${seconds} s`)
  return result
}

async function checkpointed(step: number): Promise<void> {
  while (!existsSync(join(at('run'), `checkpoint_step_${step}`))) await new Promise((done) => setTimeout(done, 50))
}

test(
  'two hosts train; one that disappears is named, SIGTERM is obeyed meanwhile, and the run resumes',
  skip,
  async () => {
    makeToy(at('toy'))
    const reward = heldReward(at('spread.mjs'), 4) // of its second step: a rank scores four samples a step
    // the clock of the second host is an hour ahead
    writeFileSync(at('clock.mjs'), `const now = Date.now\nDate.now = () => now() + ${hour}\n`)
    const settings = [
      ...[
        '--model',
        at('toy'),
        '--dataPath',
        'scenes:12',
        '--data.workers',
        '0',
        '--evalRecords',
        '0',
        '--device',
        'cpu',
      ],
      ...[
        '--per_device_batch_size',
        '1',
        '--rl.numGenerations',
        '2',
        '--rl.maxCompletionLength',
        '8',
        '--lora.rank',
        '4',
      ],
      ...[
        '--lora.alpha',
        '8',
        '--saveSteps',
        '1',
        '--maxSteps',
        '2',
        '--checkGroups',
        'false',
        '--reward',
        reward.path,
      ],
    ]
    const startOn = (rank: number): Started => {
      const variables = { RANK: String(rank), WORLD_SIZE: '2', ...meeting(29511) }
      const clock = rank === 1 ? [`NODE_OPTIONS=--import=${at('clock.mjs')}`] : []
      const words = [...Object.entries(variables).map(([name, value]) => `${name}=${value}`), ...clock]
      const [path, ...args] = [...on(rank), 'env', ...words, process.execPath, program, 'train', ...settings]
      return startProgram(path!, ...args, '--output', at('run'))
    }
    reward.hold()
    const first = [startOn(0), startOn(1)] as const
    await checkpointed(1)
    while (reward.waiting() < 2) await new Promise((done) => setTimeout(done, 50))
    hosts!.link('down')
    reward.release()
    first[1].signal('SIGTERM')
    const [lost, stopped] = await inFiveMinutes(Promise.all(first.map((run) => run.ended)))
    assert.equal(lost!.code, 75, lost!.err)
    assert.match(
      lost!.err,
      new RegExp(`rank 1 on ${hosts!.names[1]} silent for \\d+ s \\(stopped, or its host or the network is down\\)`),
    )
    assert.match(lost!.err, /last good checkpoint: .*checkpoint_step_1/)
    assert.doesNotMatch(lost!.err, /silent for \d{4}/, 'clocks that differ are not silence')
    assert.match(stopped!.err, /SIGTERM: finishing the step/)
    assert.deepEqual([newestValid(at('run')).checkpoint?.step, newestValid(at('run')).invalid], [1, []])
    hosts!.link('up')
    const again = await Promise.all([startOn(0), startOn(1)].map((run) => run.ended))
    assert.deepEqual(
      again.map(({ code }) => code),
      [0, 0],
      again.map(({ err }) => err).join('\n'),
    )
    assert.match(again[0]!.err, /resume .*checkpoint_step_1/)
    assert.match(again[0]!.err, /by 2 processes: batchSize 2 over all, 1 per process/)
    const steps = readFileSync(join(at('run'), 'events.jsonl'), 'utf8').matchAll(/^\{.*?"t":"step".*?"step":(\d+)/gm)
    assert.deepEqual(
      [...steps].map((m) => m[1]),
      ['1', '2'],
    )
  },
)

test('each side names the other when the link goes down in a collective', skip, async () => {
  const ranks = startRanks(2, 'forever', { on, env: { ...meeting(29512), TEST_BEAT: '0.5' } })
  await Promise.all(ranks.map((rank) => rank.said('beaten')))
  hosts!.link('down')
  const ended = await inFiveMinutes(Promise.all(ranks.map((rank) => rank.ended)))
  hosts!.link('up')
  assert.deepEqual(
    ended.map(({ code }) => code),
    [75, 75],
  )
  assert.match(
    ended[0]!.stderr,
    new RegExp(`rank 1 on ${hosts!.names[1]} silent for \\d s .*last phase of rank 1: learn`),
  )
  assert.match(
    ended[1]!.stderr,
    new RegExp(`rank 0 on ${hosts!.names[0]} has not answered for \\d s: its host or the network`),
  )
})

test('a wrong MASTER_ADDR and a port that another program uses are named on both hosts', skip, async () => {
  const [address] = hosts!.addresses
  const nowhere = startRanks(2, 'collectives', { on, env: meeting(29513, '10.77.0.9') })
  const listens = "require('net').createServer(() => {}).listen(29514, () => console.log('listening'))"
  const [path, ...args] = [...on(0), process.execPath, '-e', listens]
  const other = spawn(path!, args, { stdio: ['ignore', 'pipe', 'ignore'] })
  await new Promise((done) => other.stdout.once('data', done))
  const taken = startRanks(2, 'collectives', { on, env: meeting(29514) })
  await Promise.all([...nowhere, ...taken].map((rank) => rank.said('joining')))
  const ended = await inFiveMinutes(Promise.all([...nowhere, ...taken].map((rank) => rank.ended)))
  other.kill('SIGKILL')
  assert.deepEqual(
    ended.map(({ code }) => code),
    [2, 2, 2, 2],
    ended.map(({ stderr }) => stderr).join('\n'),
  )
  for (const rank of [0, 1])
    assert.match(
      ended[rank]!.stderr,
      /MASTER_ADDR=10\.77\.0\.9 MASTER_PORT=29513: expected the store of rank 0, got .*(EHOSTUNREACH|no answer)/,
    )
  assert.match(ended[0]!.stderr, new RegExp(`this process is rank 0 and listens on ${hosts!.names[0]} \\(${address}`))
  assert.match(ended[2]!.stderr, new RegExp(`MASTER_ADDR=${address} MASTER_PORT=29514: expected a free port`))
  assert.match(
    ended[3]!.stderr,
    new RegExp(`MASTER_ADDR=${address} MASTER_PORT=29514: expected the store of rank 0, got no answer`),
  )
})

test('a slow network that loses packets slows the sums down and ends nothing', skip, async (t) => {
  if (!hosts!.slow('50ms', '1%')) return t.skip('this kernel has no netem: no delay and loss here')
  const ranks = startRanks(2, 'collectives', { on, env: meeting(29515) })
  const ended = await inFiveMinutes(Promise.all(ranks.map((rank) => rank.ended)))
  assert.deepEqual(
    ended.map(({ code }) => code),
    [0, 0],
  )
})
