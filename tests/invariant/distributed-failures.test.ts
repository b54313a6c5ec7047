// What every rank sees when one of them fails, with real processes and real signals, within seconds of the event. The time limit of a
// collective, 600 s, is never what ends a case unless the case says so.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { readRank } from '../../src/distributed/environment.ts'
import { openStore } from '../../src/distributed/meeting.ts'
import { native } from '../../src/engine/index.ts'
import { inTime } from '../support/in-time.ts'
import { type Ended, freePort, type Rank, startRanks } from './distributed-ranks.ts'

const bound = 2000 // ms on an idle machine; see inTime

async function allSaid(ranks: readonly Rank[], word: string): Promise<void> {
  await Promise.all(ranks.map((rank) => rank.said(word)))
}

async function endsOf(ranks: readonly Rank[]): Promise<Ended[]> {
  return Promise.all(ranks.map((rank) => rank.ended))
}

for (const { victim, port } of [
  { victim: 2, port: false },
  { victim: 0, port: true },
]) {
  test(`when rank ${victim} is killed, the others end with 75 and name it${port ? ', although the store died with it' : ''}`, async (t) => {
    const ranks = startRanks(3, 'forever', port ? { port: await freePort() } : {})
    await allSaid(ranks, 'running')
    ranks[victim]!.process.kill('SIGKILL')
    const ended = await inTime(t, 'killed', bound, endsOf(ranks))
    for (const [rank, end] of ended.entries()) {
      if (rank === victim) continue
      assert.equal(end.code, 75, end.stderr)
      assert.match(end.stderr, new RegExp(`rank ${victim} on \\S+ ended without a message`))
    }
  })
}

test('a stopped rank is named as silent, and the others end with 75 after six heartbeats, long before the time limit', async (t) => {
  const limit = 6 // heartbeats of a second
  const ranks = startRanks(3, 'forever')
  await allSaid(ranks, 'beaten')
  ranks[1]!.process.kill('SIGSTOP')
  const ended = await inTime(t, 'stopped', 1000 * limit + bound, Promise.all([ranks[0]!.ended, ranks[2]!.ended]))
  ranks[1]!.process.kill('SIGKILL')
  for (const end of ended) {
    assert.equal(end.code, 75, end.stderr)
    assert.match(end.stderr, /rank 1 on \S+ silent for \d+ s/)
    assert.match(end.stderr, /last phase of rank 1: learn, step \d+/)
  }
})

test('a rank that ends because of a stopped one names it to a rank that has not noticed yet', async () => {
  const ranks = startRanks(3, 'forever', { env: { TEST_BEAT: '1' } })
  await allSaid(ranks, 'beaten')
  for (const rank of [1, 0]) ranks[rank]!.process.kill('SIGSTOP')
  await new Promise((done) => setTimeout(done, 3000)) // half of the beats after which rank 2 ends: rank 0 observes none of them
  ranks[0]!.process.kill('SIGCONT')
  const [first] = await Promise.all([ranks[0]!.ended, ranks[2]!.ended])
  ranks[1]!.process.kill('SIGKILL')
  assert.match(first.stderr, /rank 1 on \S+ silent for \d+ s/)
  assert.doesNotMatch(first.stderr, /rank 2 on \S+ ended without a message/)
})

test('a rank that does not respond is reported long before the time limit', async () => {
  const ranks = startRanks(2, 'forever')
  await allSaid(ranks, 'beaten')
  ranks[1]!.process.kill('SIGSTOP')
  await ranks[0]!.warned(/rank 1 on \S+ silent for \d+ s, last phase learn, step \d+/)
  for (const { process } of ranks) process.kill('SIGKILL')
  await endsOf(ranks)
})

test('a rank that throws reports why, and the others end with 75 and its message', async (t) => {
  const ranks = startRanks(3, 'announces')
  await allSaid(ranks, 'met')
  const ended = await inTime(t, 'failed', bound, endsOf(ranks))
  assert.equal(ended[1]!.code, 70)
  for (const rank of [0, 2]) {
    assert.equal(ended[rank]!.code, 75, ended[rank]!.stderr)
    assert.match(ended[rank]!.stderr, /rank 1 on \S+ failed in step 7 \(rollout\): the judge said no/)
  }
})

test('a rank that leaves with 0 in the middle ends the others with 75', async (t) => {
  const ranks = startRanks(2, 'leaves')
  await allSaid(ranks, 'met')
  const ended = await inTime(t, 'left', bound, endsOf(ranks))
  assert.deepEqual(
    ended.map((end) => end.code),
    [75, 0],
  )
  assert.match(ended[0]!.stderr, /rank 1 on \S+ ended without a message/)
})

test('tensors of different sizes are refused by name with 2, and no process aborts', async () => {
  const ended = await endsOf(startRanks(2, 'layouts'))
  for (const end of ended) {
    assert.equal(end.code, 2, end.stderr)
    assert.equal(end.signal, null)
    assert.match(end.stderr, /tensors of rank 1: entry 2 of 2: expected other float32 10, got other float32 12/)
  }
})

test('a version, a setting or a file that differs is named with both values and hosts before any collective', async () => {
  const common = { torch: '2.11.0', product: '0.1.0', dtype: 'bfloat16', kernels: 'on', data: '9 records, aa' }
  for (const other of [{ torch: '1.13.0' }, { data: '9 records, ab' }]) {
    const facts = JSON.stringify([common, { ...common, ...other }])
    const [[name, value]] = Object.entries(other) as [[keyof typeof common, string]]
    for (const end of await endsOf(startRanks(2, 'collectives', { env: { TEST_FACTS: facts } }))) {
      assert.equal(end.code, 2, end.stderr)
      assert.match(
        end.stderr,
        new RegExp(`rank 1 on \\S+: ${name}: expected ${common[name]}, as on rank 0 on \\S+, got ${value}`),
      )
    }
  }
})

test('ranks of worlds of different sizes are named with both sizes', async () => {
  for (const [size, other] of [
    [2, 3],
    [3, 2],
  ] as const) {
    const port = await freePort()
    const start = (rank: number, of: number) => startRanks(of, 'collectives', { only: [rank], port })[0]!
    const [first, second] = await endsOf([start(0, size), start(1, other)])
    const [finds, hears] = size < other ? [first!, second!] : [second!, first!] // who waits for a third hears of it
    assert.equal(finds.code, 2, finds.stderr)
    assert.match(
      finds.stderr,
      new RegExp(`rank 1 on \\S+: world size: expected ${size}, as on rank 0 on \\S+, got ${other}`),
    )
    assert.notEqual(hears.code, 0, hears.stderr)
  }
})

test('a program that writes garbage into the store of rank 0 is named as that rank', async () => {
  for (const garbage of ['garbage', 'null', '{"facts": null}']) {
    const port = await freePort()
    const ranks = startRanks(2, 'collectives', { only: [0], port })
    const env = { RANK: '1', WORLD_SIZE: '2', LOCAL_RANK: '1', MASTER_ADDR: '127.0.0.1', MASTER_PORT: String(port) }
    const place = readRank(env)
    const store = await openStore(place, place.meeting!, 60)
    await native().storeSet(store, 'process/1', garbage)
    const [end] = await endsOf(ranks)
    native().storeClose(store)
    assert.equal(end!.code, 2, end!.stderr)
    assert.match(end!.stderr, /rank 1: world size: expected 2, as on rank 0 on \S+, got none/)
  }
})

test('ranks that call different collectives end with 70 and a message', async () => {
  for (const end of await endsOf(startRanks(2, 'different'))) {
    assert.equal(end.code, 70, end.stderr)
    assert.match(end.stderr, /rank 0 is at sum \(call 2\), rank 1 at gather \(call 2\)/)
  }
})

test('weights that drifted apart by one bit are named with 70', async () => {
  for (const end of await endsOf(startRanks(2, 'diverged'))) {
    assert.equal(end.code, 70, end.stderr)
    assert.match(end.stderr, /step 20: second of rank 1 is not that of rank 0/)
  }
})

test('a rank that never comes is named when the time to meet is up', async () => {
  const gate = mkdtempSync(join(tmpdir(), 'roundtrip-gate-'))
  const ranks = startRanks(3, 'collectives', {
    only: [0, 1],
    env: { TEST_MEETING: '8', TEST_GATE: join(gate, 'open') },
  })
  await allSaid(ranks, 'joining')
  writeFileSync(join(gate, 'open'), '') // the time to meet is short: it begins for both at once
  for (const end of await endsOf(ranks)) {
    assert.equal(end.code, 75, end.stderr)
    assert.match(end.stderr, /after 8 s ranks 2 of 3 had not come/)
  }
  rmSync(gate, { recursive: true })
})

test('a port that is taken is named at once', async (t) => {
  const server = createServer()
  await new Promise<void>((done) => server.listen(0, () => done()))
  const { port } = server.address() as { port: number }
  const ranks = startRanks(2, 'collectives', { only: [0], port })
  await allSaid(ranks, 'joining')
  const [end] = await inTime(t, 'port taken', bound, endsOf(ranks))
  server.close()
  assert.equal(end!.code, 2, end!.stderr)
  assert.match(end!.stderr, new RegExp(`MASTER_PORT=${port}: expected a free port`))
})

test('a server that is not there is named with host and port', async () => {
  const port = await freePort()
  const [end] = await endsOf(startRanks(2, 'collectives', { only: [1], port, env: { TEST_MEETING: '2' } }))
  assert.equal(end!.code, 2, end!.stderr)
  assert.match(end!.stderr, new RegExp(`MASTER_ADDR=127.0.0.1 MASTER_PORT=${port}: expected the store of rank 0`))
})
