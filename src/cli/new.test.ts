import assert from 'node:assert/strict'
import test from 'node:test'
import { startingPoint } from './new.ts'

test('a starting point carries its name, also in how it is used, and nothing of the example it comes from', () => {
  for (const [kind, old] of [
    ['task', /my-task|'short'/],
    ['reward', /my-reward|'colours'/],
    ['data', /my-data|'discs'/],
  ] as const) {
    // biome-ignore format: one line
    const text = startingPoint(kind, 'own')
    assert.match(text, /name: 'own'/)
    assert.match(text, /\.\/own\.ts/)
    assert.doesNotMatch(text, old)
  }
  assert.match(startingPoint('data', 'own'), /id: \(i\) => `own-\$\{i\}`/)
})
