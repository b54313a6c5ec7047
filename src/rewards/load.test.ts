import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { reward as example } from '../../examples/my-reward.ts'
import { loadReward } from './load.ts'
import { scoreGroup } from './mix.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-reward-'))
after(() => rmSync(folder, { recursive: true, force: true }))

function module(name: string, text: string): string {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}

const answers = [
  { id: 's0', reference: 'a red dog with a blue collar', caption: 'a red dog' },
  { id: 's1', reference: 'a red dog with a blue collar', caption: 'a dog' },
]

test('the example loads and scores', async () => {
  const reward = await loadReward(fileURLToPath(new URL('../../examples/my-reward.ts', import.meta.url)))
  assert.equal(reward.name, example.name)
  const rows = await scoreGroup([{ reward, weight: 1 }], answers)
  assert.deepEqual(
    rows.map((r) => r.total),
    [0.5, 0],
  )
})

test('single and batch, sync and async, TypeScript and JavaScript all work', async () => {
  const head = "name: 'n', range: [0, 1] as [number, number], doc: ''"
  const plain = head.replace(' as [number, number]', '')
  const paths = [
    module('single.ts', `export const reward = { ${head}, score: (a: { caption: string }) => a.caption.length / 100 }`),
    module(
      'async.ts',
      `export const reward = { ${head}, score: async (a: { caption: string }) => a.caption.length / 100 }`,
    ),
    module(
      'batch.mjs',
      `export const reward = { ${plain}, scoreBatch: (all) => all.map((a) => a.caption.length / 100) }`,
    ),
    module(
      'default.mjs',
      `export default { ${plain}, scoreBatch: async (all) => all.map((a) => a.caption.length / 100) }`,
    ),
  ]
  for (const path of paths) {
    const rows = await scoreGroup([{ reward: await loadReward(path), weight: 2 }], answers)
    assert.deepEqual(
      rows.map((r) => r.total),
      [0.09, 0.05],
      path,
    )
  }
})

test('a module that is missing, broken or no reward is reported as such', async () => {
  await assert.rejects(loadReward(join(folder, 'none.ts')), /reward module: expected a file/)
  await assert.rejects(loadReward(module('broken.mjs', 'export const reward = {')), /expected a module that loads/)
  await assert.rejects(loadReward(module('throws.mjs', "throw new Error('at load')")), /at load/)
  await assert.rejects(loadReward(module('empty.mjs', 'export const x = 1')), /export: expected `reward`/)
  await assert.rejects(
    loadReward(module('noscore.mjs', "export const reward = { name: 'n', range: [0, 1], doc: '' }")),
    /either score or scoreBatch/,
  )
  await assert.rejects(
    loadReward(module('norange.mjs', "export const reward = { name: 'n', range: [1, 0], doc: '', score: () => 0 }")),
    /range: \[low, high\]/,
  )
})
