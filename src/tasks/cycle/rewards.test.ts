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
import { presets, resolvePreset, resolveRewards } from './rewards.ts'

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
    assert.ok(open.judgeState()!.counts.calls > 0)
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

test('without a judge its share goes to METEOR, once and with a warning', () => {
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

/** Terms of both loops for settings as a user writes them. */
function flagged(rewards: object) {
  const config = CycleRewards.parse(rewards)
  const plan = resolveRewards({ ...config, preset: resolvePreset(rewards, config) })
  return { loop1: types(plan.tasks.loop1!), loop2: types(plan.tasks.loop2!), notices: plan.notices }
}

const [quarter, iouAlone, meteorAlone] = [['meteor 0.25', 'judge 0.75'], ['iou 1'], ['meteor 1']]

test('the judge flags alone give the systems of the notes', () => {
  assert.deepEqual(flagged({ judgeLoop1: true }), { loop1: quarter, loop2: meteorAlone, notices: [] })
  assert.deepEqual(flagged({ judgeLoop2: true }), { loop1: iouAlone, loop2: quarter, notices: [] })
  assert.deepEqual(flagged({ judgeLoop1: true, judgeLoop2: true }), { loop1: quarter, loop2: quarter, notices: [] })
  assert.match(flagged({ judge: { enabled: true } }).notices.join(), /no loop has a term of it/)
  assert.deepEqual(flagged({}), { loop1: iouAlone, loop2: meteorAlone, notices: [] })
})

test('the judge flags keep every preset and every term that the user wrote', () => {
  const mixed = ['iou 0.5', 'meteor 0.125', 'judge 0.375']
  for (const flags of [{ judgeLoop1: true }, { judgeLoop2: true }, { judgeLoop1: true, judgeLoop2: true }]) {
    assert.deepEqual(flagged({ preset: 'mixed', ...flags }), { loop1: mixed, loop2: quarter, notices: [] })
    assert.deepEqual(flagged({ preset: 'cycle-judge', ...flags }), { loop1: iouAlone, loop2: quarter, notices: [] })
  }
  assert.deepEqual(flagged({ preset: 'caption', judgeLoop2: true }), { loop1: quarter, loop2: quarter, notices: [] })
  const cycle = flagged({ preset: 'cycle', judgeLoop1: true })
  assert.deepEqual([cycle.loop1, cycle.loop2], [[...iouAlone, ...quarter], meteorAlone])
  assert.match(
    cycle.notices.join(),
    /^loop1: --use_llm_judge adds the judge to its terms: 1 iou \+ 0.25 meteor \+ 0.75 judge$/,
  )
})

test('the judge joins terms that have none, and takes three quarters of METEOR if there is METEOR', () => {
  const written = [
    { type: 'iou', weight: 1, of: 'maskPrime' },
    { type: 'maskConfidence', weight: 0.5, of: 'maskPrime' },
  ]
  const added = flagged({ loop1: { terms: written }, judgeLoop1: true })
  assert.deepEqual(added.loop1, ['iou 1', 'maskConfidence 0.5', ...quarter])
  assert.deepEqual(added.loop2, meteorAlone)
  assert.equal(added.notices.length, 1)
  const asked = flagged({
    loop1: { terms: [...written, { type: 'judge', weight: 2, of: 'caption' }] },
    judgeLoop1: true,
  })
  assert.deepEqual([asked.loop1, asked.notices], [['iou 1', 'maskConfidence 0.5', 'judge 2'], []])
  const meteorOfTwo = { type: 'meteor', weight: 2, of: 'captionPrime' }
  const second = flagged({ loop2: { terms: [meteorOfTwo, { type: 'iou', weight: 1, of: 'mask' }] }, judgeLoop2: true })
  assert.deepEqual([second.loop1, second.loop2], [iouAlone, ['iou 1', 'meteor 0.5', 'judge 1.5']])
  assert.match(second.notices.join(), /--use_llm_judge_loop2 adds/)
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
  const terms = [{ type: 'module' as const, path: './mine.ts', weight: 1 }] // reads what it likes
  checkProduced('loop1', { ...task, rewards: { terms, shaping: 'none' }, produced: [] })
  const config = CycleRewards.parse({ timeoutSeconds: 7 })
  assert.equal(scoreOptions({ shaping: 'none' }, config, 'caption').timeoutSeconds, 7)
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

test('without a judge its share goes to METEOR of the same text, and each loop shapes its own text', () => {
  const terms = [
    { type: 'meteor', weight: 1, of: 'caption' },
    { type: 'judge', weight: 2, of: 'captionPrime' },
    { type: 'judge', weight: 4, of: 'caption' },
  ] as const
  const { tasks } = resolveRewards(CycleRewards.parse({ loop1: { terms: [...terms] } }))
  assert.deepEqual(
    tasks['loop1']!.rewards.terms.map((t) => [t.type, t.weight, 'of' in t ? t.of : null]),
    [
      ['meteor', 5, 'caption'],
      ['meteor', 2, 'captionPrime'],
    ],
  )
  assert.deepEqual([tasks['loop1']!.shapes, tasks['loop2']!.shapes], ['caption', 'captionPrime'])
})
