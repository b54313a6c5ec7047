import assert from 'node:assert/strict'
import test from 'node:test'
import { makeScene, sceneExample } from '../data/index.ts'
import { evaluateAll } from './evaluate-all.ts'

const examples = [0, 1, 2].map((i) => sceneExample(makeScene(5, i)))

test('an evaluation that was stopped gives nothing rather than figures over a part', async () => {
  let done = 0
  const score = (batch: readonly unknown[]) => batch.map(() => ({ id: '' }))
  const seen = (n: number) => {
    done = n
  }
  assert.equal(await evaluateAll(examples, 1, score, seen, () => done >= 2), null)
  assert.equal(done, 2)
  assert.equal((await evaluateAll(examples, 2, score, seen))?.length, 3)
})
