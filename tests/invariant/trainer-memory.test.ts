import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { train } from '../../src/run/index.ts'
import { memory } from '../../src/tensor/index.ts'
import { hostOf, makeToy, scratch, spread, toyRun } from '../support/runs.ts'

const folder = scratch('memory')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

interface Live {
  tensors: number
  bytes: number
}

function timingOf(output: string): Record<string, number>[] {
  const lines = readFileSync(join(output, 'timing.jsonl'), 'utf8').trim().split('\n')
  const steps = lines
    .map((l) => JSON.parse(l) as { t: string; metrics: Record<string, number> })
    .filter((l) => l.t === 'step')
  return steps.map(({ metrics }) => metrics)
}

function liveAt(output: string): Live[] {
  return timingOf(output).map((metrics) => ({ tensors: metrics.live_tensors!, bytes: metrics.live_bytes! }))
}

/** The phases of a step are apart from each other: together they are its time. */
function assertPhases(timing: readonly Record<string, number>[]): void {
  for (const [i, metrics] of timing.entries()) {
    const phases = Object.entries(metrics).filter(([name]) => name.startsWith('seconds/'))
    assert.ok(
      phases.every(([, seconds]) => seconds >= 0),
      `step ${i + 1}: ${JSON.stringify(phases)}`,
    )
    const sum = phases.reduce((total, [, seconds]) => total + seconds, 0)
    assert.ok(Math.abs(sum - metrics.step_time!) < 1e-9, `step ${i + 1}: ${sum} of ${metrics.step_time} s`)
    assert.ok(metrics.host_bytes! > metrics.live_bytes!, `step ${i + 1}: ${metrics.host_bytes} bytes of the process`)
  }
}

test('after step 20 as many tensors and bytes live as after step 10: both loops, checkpoints and evaluations included', async () => {
  const start = memory()
  const config = toyRun(toy, join(folder, 'run'), {
    batchSize: 1,
    maxSteps: 20,
    saveSteps: 5,
    evalSteps: 7,
    evalRecords: 2,
    rl: { numGenerations: 2, maxCompletionLength: 5, numIterations: 2 },
    loop2: { maskLoss: 0.1 },
    adaptiveLoops: true,
    featureCache: join(folder, 'features'),
  })
  await train(config, hostOf())
  assertPhases(timingOf(config.output))
  const live = liveAt(config.output)
  assert.equal(live.length, 20)
  // steps 10 and 20 both end a generation batch
  assert.deepEqual(live[19], live[9])
  assert.equal(Math.max(...live.map((l) => l.tensors)), Math.max(...live.slice(0, 10).map((l) => l.tensors)))
  assert.ok(memory().tensors - start.tensors <= 1, "a run that ended holds nothing but the decoder's rotary table")
})

test('steps that are skipped for a NaN leave nothing behind', async () => {
  const start = memory()
  const config = toyRun(toy, join(folder, 'skipped'), {
    batchSize: 1,
    maxSteps: 6,
    saveSteps: 0,
    onNonFinite: 'skip',
    rl: { numGenerations: 2, maxCompletionLength: 5, scaleRewards: 'none' },
  })
  let calls = 0 // every other step: three in a row end a run
  await train(
    config,
    hostOf((answer, k, task) => {
      if (task === 'loop1' && k === 0) calls++
      if (calls % 2 === 1) return k === 0 ? 3e38 : -3e38 // too large for a float32 loss
      return spread(answer, k, task)
    }),
  )
  const live = liveAt(config.output)
  assert.deepEqual(live[5], live[1])
  assert.ok(memory().tensors - start.tensors <= 1)
})
