import assert from 'node:assert/strict'
import test from 'node:test'
import { alone, type World } from '../distributed/index.ts'
import { makeScene, sceneExample } from '../scenes/index.ts'
import { evaluateAll } from './evaluate-all.ts'

const examples = [0, 1, 2].map((i) => sceneExample(makeScene(5, i)))

test('an evaluation that was stopped gives nothing rather than metrics over a part', async () => {
  let done = 0
  const score = (batch: readonly unknown[]) => batch.map(() => ({ id: '' }))
  const seen = (n: number) => {
    done = n
  }
  assert.equal(await evaluateAll(examples, 1, score, seen, () => done >= 2), null)
  assert.equal(done, 2)
  assert.equal((await evaluateAll(examples, 2, score, seen))?.length, 3)
})

test('a stop after the last record keeps the scores', async () => {
  let done = 0
  const score = (batch: readonly { id: string }[]) => batch.map(({ id }) => ({ id }))
  const seen = (n: number) => {
    done = n
  }
  assert.equal((await evaluateAll(examples, 2, score, seen, () => done === 3))?.length, 3)
})

test('processes share the records in order, and a stop of one stops all', async () => {
  const run = async (stops: (rank: number) => boolean, batch = 1) => {
    let waiting: { value: unknown; done: (all: unknown[]) => void }[] = []
    const gather = (rank: number) => (value: unknown) =>
      new Promise<unknown[]>((done) => {
        waiting[rank] = { value, done }
        if (Object.keys(waiting).length < 2) return
        const all = waiting
        waiting = []
        for (const one of all) one.done(all.map((other) => other.value))
      })
    const evaluate = (rank: number) => {
      const world = { ...alone, rank, size: 2, gather: gather(rank) } as unknown as World
      const score = (batch: readonly { id: string }[]) => batch.map(({ id }) => ({ id }))
      return evaluateAll(
        examples,
        batch,
        score,
        () => undefined,
        () => stops(rank),
        world,
      )
    }
    return Promise.all([evaluate(0), evaluate(1)])
  }
  const ids = examples.map(({ id }) => ({ id }))
  assert.deepEqual(await run(() => false), [ids, ids])
  assert.deepEqual(await run(() => false, 2), [ids, ids], 'also in batches of two')
  assert.deepEqual(await run((rank) => rank === 1), [null, null])
})
