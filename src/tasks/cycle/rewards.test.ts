import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { z } from 'zod'
import { honest, startServer } from '../../../tests/support/judge-server.ts'
import { maskFromDense } from '../../mask/index.ts'
import {
  type Answer,
  buildTerms,
  checkProduced,
  Judge,
  meteor,
  type OpenTask,
  openRewards,
  RewardsConfig,
  scoreGroup,
  scoreOptions,
} from '../../rewards/index.ts'
import { cycleRewardSettings } from './config.ts'
import { presets, resolveRewards } from './rewards.ts'

const CycleRewards = z.strictObject({ ...cycleRewardSettings, ...RewardsConfig.shape })

const reference = 'a red bicycle with a black seat'
const written = 'a red bicycle'
const answer: Answer = {
  id: 's',
  reference,
  given: maskFromDense(Uint8Array.of(1, 1, 0, 0), 1, 4),
  maskPrime: maskFromDense(Uint8Array.of(1, 0, 1, 0), 1, 4),
  mask: maskFromDense(Uint8Array.of(1, 1, 0, 0), 1, 4),
  caption: `"${written}" [SEG]`,
  captionPrime: written,
}
const m = meteor(reference, written)
const judge = 0.75 // 1 + 0 + 1 + 1 of 4 questions
const iou = 1 / 3

test('the presets give the rewards of their table', async () => {
  const server = await startServer(honest)
  const cacheDir = mkdtempSync(join(tmpdir(), 'roundtrip-presets-'))
  const expected = {
    cycle: [iou, m],
    'cycle-judge': [iou, 0.25 * m + 0.75 * judge],
    caption: [0.25 * m + 0.75 * judge, m],
    mixed: [0.5 * iou + 0.125 * m + 0.375 * judge, 0.25 * m + 0.75 * judge],
  }
  const base = CycleRewards.parse({ judge: { enabled: true, baseUrl: server.url, cacheDir, canaryRate: 0 } })
  const asked = new Judge(base.judge, {})
  try {
    for (const [preset, values] of Object.entries(expected)) {
      const config = { ...base, preset: preset as keyof typeof presets }
      for (const [i, { rewards: loop }] of Object.values(resolveRewards(config).tasks).entries()) {
        const terms = await buildTerms(loop, config, asked)
        const [row] = await scoreGroup(terms, [answer], scoreOptions(loop, config, 'caption'))
        assert.ok(
          Math.abs(row!.total! - values[i]!) < 1e-12,
          `${preset} loop ${i + 1}: ${row!.total}, not ${values[i]}`,
        )
      }
    }
  } finally {
    asked.close()
    await server.close()
    rmSync(cacheDir, { recursive: true, force: true })
  }
})

test('openRewards checks the judge before the run and gives both loops ready to score', async () => {
  const server = await startServer(honest)
  const cacheDir = mkdtempSync(join(tmpdir(), 'roundtrip-open-'))
  const judgeConfig = { enabled: true, baseUrl: server.url, cacheDir, retries: 0, canaryRate: 0 }
  const opened = (input: object) => {
    const config = CycleRewards.parse(input)
    return openRewards(config, resolveRewards(config).tasks, {})
  }
  try {
    const open = await opened({ preset: 'cycle-judge', judge: judgeConfig })
    const [row] = await scoreGroup(open.tasks.loop2!.terms, [answer], open.tasks.loop2!.options)
    assert.ok(Math.abs(row!.total! - (0.25 * m + 0.75 * judge)) < 1e-12)
    assert.ok(open.metrics()['judge/calls']! > 0)
    open.close()
    const none = await opened({})
    assert.equal(none.judge, undefined)
    none.close()
    await server.close()
    await assert.rejects(opened({ preset: 'mixed', judge: judgeConfig }), /expected a chat completion/)
    const config = CycleRewards.parse({})
    const { loop1 } = resolveRewards(config).tasks
    await assert.rejects(openRewards(config, { loop1: { ...loop1!, produced: ['caption'] } }, {}), /EMA/)
  } finally {
    rmSync(cacheDir, { recursive: true, force: true })
  }
})

const types = ({ rewards }: Pick<OpenTask, 'rewards'>) => rewards.terms.map((t) => `${t.type} ${t.weight}`)

test('without a judge its share goes to METEOR, once and with a notice', () => {
  const mixed = resolveRewards(CycleRewards.parse({ preset: 'mixed' }))
  assert.deepEqual(types(mixed.tasks.loop1!), ['iou 0.5', 'meteor 0.5'])
  assert.deepEqual(types(mixed.tasks.loop2!), ['meteor 1'])
  assert.equal(mixed.notices.length, 2)
  assert.deepEqual(
    types({ rewards: presets.mixed.loop2 }),
    ['meteor 0.25', 'judge 0.75'],
    'the preset itself is untouched',
  )
})

test('the judge flags act on loop 2, and say when they change nothing', () => {
  assert.throws(
    () => resolveRewards(CycleRewards.parse({ judgeLoop2: true })),
    /expected an enabled judge.*use_llm_judge/,
  )
  const both = resolveRewards(CycleRewards.parse({ judgeLoop2: true, judge: { enabled: true } }))
  assert.deepEqual(types(both.tasks.loop2!), ['meteor 0.25', 'judge 0.75'])
  const first = resolveRewards(CycleRewards.parse({ judgeLoop1: true }))
  assert.deepEqual(types(first.tasks.loop1!), ['meteor 0.25', 'judge 0.75'])
  assert.deepEqual(types(first.tasks.loop2!), ['meteor 1'])
  assert.deepEqual(first.notices, [])
  const cycle = resolveRewards(CycleRewards.parse({ judge: { enabled: true } }))
  assert.match(cycle.notices.join(), /no loop has a term of it/)
  assert.deepEqual(resolveRewards(CycleRewards.parse({})).notices, [])
})

test('modules join both loops, explicit loops replace the preset', () => {
  const config = CycleRewards.parse({
    modules: [{ path: './mine.ts', weight: 0.5 }],
    loop1: { terms: [{ type: 'length', of: 'caption' }] },
  })
  const resolved = resolveRewards(config)
  assert.deepEqual(types(resolved.tasks.loop1!), ['length 1', 'module 0.5'])
  assert.deepEqual(types(resolved.tasks.loop2!), ['meteor 1', 'module 0.5'])
})

test('a term that looks at something the run does not make is an error at the start', () => {
  const task = { rewards: presets.cycle.loop1, shapes: 'caption' as const }
  checkProduced('loop1', { ...task, produced: ['caption', 'maskPrime'] })
  assert.throws(
    () => checkProduced('loop1', { ...task, produced: ['caption'] }),
    /rewards.loop1: iou: expected of: caption, got maskPrime.*EMA/,
  )
})

test('unknown keys, weights and addresses are refused', () => {
  assert.throws(() => CycleRewards.parse({ jugde: {} }), /jugde/)
  assert.throws(() => CycleRewards.parse({ loop1: { terms: [] } }))
  assert.throws(() => CycleRewards.parse({ loop1: { terms: [{ type: 'iou', of: 'maskPrime', weight: -1 }] } }))
  assert.throws(() => CycleRewards.parse({ judge: { baseUrl: 'file:///etc/passwd' } }))
  assert.throws(
    () => CycleRewards.parse({ judge: { baseUrl: 'http://me:secret@host/v1' } }),
    /without user and password/,
  )
})
