// What every rank sees when one of them fails, with real processes and real signals. Bounds are those of the design with room for
// slow machines: they are far below the time limit of a collective (60 s unless a test says otherwise).
import assert from 'node:assert/strict'
import { createServer } from 'node:net'
import { test } from 'node:test'
import { type Ended, freePort, type Rank, startRanks } from './distributed-ranks.ts'

const patience = 15_000 // ms, for what takes 2 s on two idle cores

async function allRunning(ranks: readonly Rank[]): Promise<void> {
  await Promise.all(ranks.map((rank) => rank.said('running')))
}

async function endsOf(ranks: readonly Rank[]): Promise<Ended[]> {
  return Promise.all(ranks.map((rank) => rank.ended))
}

for (const { victim, port } of [
  { victim: 2, port: false },
  { victim: 0, port: true },
]) {
  test(`when rank ${victim} is killed, the others end with 75 and name it${port ? ', although the store died with it' : ''}`, async () => {
    const ranks = startRanks(3, 'forever', port ? { port: await freePort() } : {})
    await allRunning(ranks)
    const killedAt = performance.now()
    ranks[victim]!.process.kill('SIGKILL')
    const ended = await endsOf(ranks)
    for (const [rank, end] of ended.entries()) {
      if (rank === victim) continue
      assert.equal(end.code, 75, end.stderr)
      assert.ok(end.at - killedAt < patience, `${end.at - killedAt} ms`)
      assert.match(end.stderr, new RegExp(`rank ${victim} is gone`))
    }
  })
}

test('a stopped rank is named as silent, and the others end with 75 at the time limit', async () => {
  const ranks = startRanks(3, 'forever', { env: { TEST_LIMIT: '4', TEST_BEAT: '0.5' } })
  await allRunning(ranks)
  await new Promise((done) => setTimeout(done, 1500)) // three heartbeats
  const stoppedAt = performance.now()
  ranks[1]!.process.kill('SIGSTOP')
  const ended = await Promise.all([ranks[0]!.ended, ranks[2]!.ended])
  ranks[1]!.process.kill('SIGKILL')
  for (const end of ended) {
    assert.equal(end.code, 75, end.stderr)
    assert.match(end.stderr, /rank 1 silent for \d+ s/)
    assert.match(end.stderr, /last phase of rank 1: learn, step \d+/)
    assert.ok(end.at - stoppedAt < 4000 + patience, `${end.at - stoppedAt} ms`)
  }
})

test('a rank that throws tells why, and the others end with 75 and its words', async () => {
  const ended = await endsOf(startRanks(3, 'announces'))
  assert.equal(ended[1]!.code, 70)
  for (const rank of [0, 2]) {
    assert.equal(ended[rank]!.code, 75, ended[rank]!.stderr)
    assert.match(ended[rank]!.stderr, /rank 1 failed in step 7 \(rollout\): the judge said no/)
  }
})

test('a rank that leaves with 0 in the middle ends the others with 75', async () => {
  const ended = await endsOf(startRanks(2, 'leaves'))
  assert.deepEqual(
    ended.map((end) => end.code),
    [75, 0],
  )
  assert.match(ended[0]!.stderr, /rank 1 is gone/)
})

test('tensors of different sizes are refused by name with 2, and no process aborts', async () => {
  const ended = await endsOf(startRanks(2, 'layouts'))
  for (const end of ended) {
    assert.equal(end.code, 2, end.stderr)
    assert.equal(end.signal, null)
    assert.match(end.stderr, /tensors of rank 1: entry 2 of 2: expected other float32 10, got other float32 12/)
  }
})

test('ranks that call different things are told so with 70', async () => {
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
  const ended = await endsOf(startRanks(3, 'collectives', { only: [0, 1], env: { TEST_MEETING: '2' } }))
  for (const end of ended) {
    assert.equal(end.code, 75, end.stderr)
    assert.match(end.stderr, /after 2 s ranks 2 of 3 had not come/)
  }
})

test('a port that is taken is named at once', async () => {
  const server = createServer()
  await new Promise<void>((done) => server.listen(0, () => done()))
  const { port } = server.address() as { port: number }
  const startedAt = performance.now()
  const [end] = await endsOf(startRanks(2, 'collectives', { only: [0], port }))
  server.close()
  assert.equal(end!.code, 2, end!.stderr)
  assert.match(end!.stderr, new RegExp(`MASTER_PORT=${port}: expected a free port`))
  assert.ok(end!.at - startedAt < patience)
})

test('a server that is not there is named with host and port', async () => {
  const port = await freePort()
  const [end] = await endsOf(startRanks(2, 'collectives', { only: [1], port, env: { TEST_MEETING: '2' } }))
  assert.equal(end!.code, 2, end!.stderr)
  assert.match(end!.stderr, new RegExp(`MASTER_ADDR=127.0.0.1 MASTER_PORT=${port}: expected the store of rank 0`))
})
