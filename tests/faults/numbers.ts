// NaN, infinity, flat rewards, odd masks and texts.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { newestValid, readAll, writeSafetensors } from '../../src/checkpoint/index.ts'
import { maskFromDense } from '../../src/mask/index.ts'
import { defineReward, IouConfig, iouOf, meteor, scoreGroup } from '../../src/rewards/index.ts'
import { expectNoLeak, keep, tensor, tidy, zeros } from '../../src/tensor/index.ts'
import { hostOf, makeToy, spread } from '../support/runs.ts'
import { type Bench, refusal } from './bench.ts'
import { quick, type Row, row } from './row.ts'

/** Rewards too large for a float32 loss, from a step on. */
function bursting(from: number, until = from) {
  let calls = 0
  return hostOf((answer, k, loop) => {
    if (k === 0) calls++
    const step = 1 + Math.floor((calls - 1) / 2)
    return step >= from && step <= until ? (k === 0 ? 3e38 : -3e38) : spread(answer, k, loop)
  })
}

const unscaled = { rl: { scaleRewards: 'none' as const } }

async function notFinite(bench: Bench): Promise<string> {
  const seen: string[] = []
  await refusal(() => bench.train('nan-loss', unscaled, bursting(3)), /loss: expected finite numbers/)
  assert.equal(newestValid(bench.at('nan-loss')).checkpoint?.step, 2)
  seen.push('loss')
  const broken = makeToy(bench.at('nan-toy'))
  const path = join(broken, 'model.safetensors')
  const entries = [...readAll(path)].map(([name, t]) => ({ name, ...t, data: t.data.slice() }))
  new Float32Array(entries.find((e) => e.name.endsWith('model.norm.weight'))!.data.buffer)[0] = Number.NaN
  writeSafetensors(path, entries)
  await refusal(() => bench.train('nan-weight', {}, hostOf(), broken), /norm\.weight: expected finite weights, got NaN/)
  seen.push('weight of the model')
  const reward = defineReward({ name: 'made', range: [0, 1], doc: 'x', score: () => Number.NaN })
  const host = hostOf(undefined, {
    score: async (_, groups) => {
      const rows = await Promise.all(groups.map((group) => scoreGroup([{ reward, weight: 1 }], group)))
      return { rows }
    },
  })
  await refusal(() => bench.train('nan-reward', {}, host), /reward made: expected a number from 0 to 1.*got NaN/)
  seen.push('reward')
  const optim = { learningRate: 1e39, lrSchedulerType: 'constant' as const }
  await refusal(() => bench.train('nan-update', { optim }), /optim\.learningRate: expected at most 1,000,000,000/)
  assert.ok(!existsSync(bench.at('nan-update')))
  seen.push('learning rate')
  return `named, and nothing broken saved: ${seen.join(', ')}`
}

async function everyStep(bench: Bench): Promise<string> {
  const input = { ...unscaled, onNonFinite: 'skip' as const, maxSteps: 9 }
  const words = await refusal(() => bench.train('nan-always', input, bursting(2, 99)), /3 updates in a row skipped/)
  assert.ok(newestValid(bench.at('nan-always')).checkpoint, 'a whole checkpoint')
  return words.slice(0, 120)
}

async function rewards(): Promise<string> {
  const wrong: Record<string, [unknown, RegExp]> = {
    'one number too few': [[0.5], /expected 2 scores|expected .*2/],
    'a string': ['0.5', /expected/],
    NaN: [[Number.NaN, 0], /got NaN/],
    'outside its range': [[2, 0], /expected a number from 0 to 1/],
    throws: [new Error('my reward broke'), /my reward broke/],
    'never returns': [new Promise(() => {}), /expected scores within|expected .* s/],
  }
  const group = [0, 1].map((k) => ({ id: `a#${k}`, caption: 'x', reference: 'x' }))
  for (const [name, [value, pattern]] of Object.entries(wrong)) {
    const scoreBatch = () => {
      if (value instanceof Error) throw value
      return value as number[]
    }
    const reward = defineReward({ name: 'made', range: [0, 1], doc: 'x', scoreBatch } as never)
    await refusal(() => scoreGroup([{ reward, weight: 1 }], group, { timeoutSeconds: 0.2 }), pattern).catch((error) =>
      assert.fail(`${name}: ${(error as Error).message}`),
    )
  }
  const nulls = defineReward({ name: 'made', range: [0, 1], doc: 'x', score: () => null })
  const rows = await scoreGroup([{ reward: nulls, weight: 1 }], group)
  assert.deepEqual(
    rows.map((row) => row.total),
    [null, null],
  )
  return `${Object.keys(wrong).length} wrong replies refused by name; null abstains`
}

async function flat(bench: Bench): Promise<string> {
  const input = { maxSteps: 30, saveSteps: 0, rl: { numGenerations: 2, maxCompletionLength: 2 } }
  return (
    await refusal(
      () =>
        bench.train(
          'flat',
          input,
          hostOf(() => 0.5),
        ),
      /got 20 steps in a row/,
    )
  ).slice(0, 160)
}

async function masks(): Promise<string> {
  const of = (bits: number[]) => maskFromDense(Uint8Array.from(bits), 2, 2)
  const [empty, full, pixel] = [of([0, 0, 0, 0]), of([1, 1, 1, 1]), of([1, 0, 0, 0])]
  const pairs = [empty, full, pixel].flatMap((a) => [empty, full, pixel].map((b) => iouOf(a, b, IouConfig.parse({}))))
  assert.ok(
    pairs.every((v) => Number.isFinite(v) && v >= 0 && v <= 1),
    JSON.stringify(pairs),
  )
  return `empty, full and one pixel against each other: ${pairs.map((v) => v.toFixed(2)).join(' ')}`
}

async function texts(): Promise<string> {
  const odd = [
    '',
    'word '.repeat(10_000),
    '\u{1f600}\u{1f468}\u200d\u{1f469}',
    '\ud800',
    'a\u0000b',
    '\u05d0\u05d1 \u202e abc',
  ]
  for (const a of odd) for (const b of odd) assert.ok(meteor(a, b) >= 0 && meteor(a, b) <= 1, JSON.stringify([a, b]))
  return `${odd.length ** 2} pairs, METEOR always from 0 to 1`
}

async function handles(): Promise<string> {
  const freed = tidy(() => keep(zeros([2])))
  freed.dispose()
  await refusal(() => freed.add(freed), /freed|disposed/)
  await refusal(() => tidy((async () => zeros([1])) as never), /async|promise/i)
  await refusal(() => expectNoLeak(() => void keep(tensor([1]))), /leak|stayed|tensor/i)
  return 'use after free, an asynchronous scope and a leak each throw'
}

async function soak(bench: Bench): Promise<string> {
  await bench.train('soak', {
    maxSteps: 60,
    saveSteps: 20,
    saveTotalLimit: 2,
    rl: { numGenerations: 2, maxCompletionLength: 3 },
  })
  const { readFileSync } = await import('node:fs')
  const live = [...readFileSync(join(bench.at('soak'), 'timing.jsonl'), 'utf8').matchAll(/"live_tensors":(\d+)/g)].map(
    (m) => Number(m[1]),
  )
  assert.equal(new Set(live.slice(1)).size, 1, `live tensors ${[...new Set(live)].join(', ')}`)
  return `${live.length} steps, ${live.at(-1)} live tensors after each; 10,000 steps: npm run soak`
}

export const numbers: readonly Row[] = [
  row(28, 'soak', 'many steps (the long form is npm run soak)', 'counted', soak),
  quick(29, 'handles', 'use after free, an asynchronous scope, a leaked tensor', 'words', handles),
  quick(30, 'not-finite', 'NaN or infinity in loss, weights, rewards, update', 'safe', notFinite),
  quick(31, 'nan-always', 'NaN in every step', 'ends', everyStep),
  quick(32, 'reward', 'a reward that gives the wrong thing, throws or never returns', 'words', rewards),
  quick(33, 'flat', 'equal rewards for 20 steps', 'ends', flat),
  quick(34, 'masks', 'empty, full and one-pixel masks', 'counted', masks),
  quick(35, 'texts', 'captions of 10,000 words, emoji, lone surrogates, NUL, right to left', 'counted', texts),
]
