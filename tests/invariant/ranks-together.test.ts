// Runs of several ranks in one process against the run of one, where batches, evaluations and moments do not divide evenly. Real processes
// are in distributed-training.test.ts.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { alone } from '../../src/distributed/index.ts'
import { type Host, type RunInput, train } from '../../src/run/index.ts'
import { roundingBound } from '../support/rounding.ts'
import { hostOf, makeToy, type Scores, scratch, spread, stoppingAfter, toyRun } from '../support/runs.ts'
import { worldsTogether } from '../support/worlds.ts'

const folder = scratch('together')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

type Settings = Partial<RunInput>

/** Three records a step: two ranks do not have the same number of them. */
const uneven: Settings = { batchSize: 3, maxSteps: 2, evalRecords: 0, checkGroups: false }
const short = { numGenerations: 2, maxCompletionLength: 4 }

async function run(
  name: string,
  size: number,
  more: Settings,
  host: (rank: number) => Host = () => hostOf(),
): Promise<string> {
  const output = join(folder, name)
  const config = () => toyRun(toy, output, { ...uneven, ...more, rl: { ...short, ...more.rl } })
  const worlds = size === 1 ? [alone] : worldsTogether(size)
  await Promise.all(worlds.map((world) => train(config(), host(world.rank), undefined, world)))
  return output
}

interface Line {
  t: string
  step: number
  metrics: Record<string, number>
}

interface Row {
  step: number
  loop: string
  id: string
  k: number
  text: string
  total: number | null
}

function lines<T>(output: string, file: string): T[] {
  const text = readFileSync(join(output, file), 'utf8').trim()
  return text.split('\n').map((line) => JSON.parse(line) as T)
}

const events = (output: string, kind: string) => lines<Line>(output, 'events.jsonl').filter((line) => line.t === kind)

function assertClose(found: Record<string, number>, wanted: Record<string, number>, what: string): void {
  assert.deepEqual(Object.keys(found).sort(), Object.keys(wanted).sort())
  for (const [key, value] of Object.entries(wanted)) {
    const off = Math.abs(found[key]! - value)
    // sums in another order; losses are differences of terms up to 1
    assert.ok(
      off <= roundingBound(256, Math.abs(value)) + roundingBound(4),
      `${what} ${key}: ${found[key]}, ${value} with one rank`,
    )
  }
}

/** The same records, answers and rewards in every step; metrics of step 1 and of the evaluation before it, up to rounding. */
function assertSameRun(several: string, one: string, what: string): void {
  const said = ({ step, loop, id, k, text, total }: Row) => ({ step, loop, id, k, text, total })
  assert.deepEqual(lines<Row>(several, 'samples.jsonl').map(said), lines<Row>(one, 'samples.jsonl').map(said), what)
  assertClose(events(several, 'step')[0]!.metrics, events(one, 'step')[0]!.metrics, what)
  const evaluated = (output: string) => events(output, 'eval').filter(({ step }) => step === 0)
  assert.deepEqual(evaluated(several), evaluated(one), what)
}

function weightsOf(output: string, step: number): Map<string, Buffer> {
  const dir = join(output, `checkpoint_step_${step}`)
  const names = readdirSync(dir).filter((name) => name.endsWith('.safetensors'))
  return new Map(names.map((name) => [name, readFileSync(join(dir, name))]))
}

const cases: Record<string, Settings> = {
  'a clip that cuts': { maxSteps: 1, optim: { maxGradNorm: 1e-3 }, evalRecords: 3, evalBatch: 1 },
  'a loss over all tokens': { maxSteps: 1, rl: { lossType: 'dapo' } },
  'losses weighed by their gradients': { maxSteps: 1, adaptiveLoops: true },
}

for (const [what, settings] of Object.entries(cases))
  test(`${what}: 2 ranks with 3 records make the run of one`, async () => {
    const name = what.replaceAll(' ', '-')
    const one = await run(`${name}-1`, 1, settings)
    assertSameRun(await run(`${name}-2`, 2, settings), one, what)
  })

/** The first record of loop 1 has no score at all, and of every other group in both loops the second sample has none. */
const partlyScored: Scores = (answer, k, task) =>
  (task === 'loop1' && answer.id.startsWith('scene-0-23#')) || k === 1 ? null : spread(answer, k, task)

const rewardMetrics = ({ metrics }: Line) =>
  Object.fromEntries(Object.entries(metrics).filter(([key]) => /\/(rewards?|unscored|frac_reward)/.test(key)))

test('reward metrics and unscored counts of 2 ranks are those of the samples', async () => {
  const rl = { gradientAccumulationSteps: 2, numGenerations: 3 }
  const output = await run('metrics', 2, { maxSteps: 1, rl }, () => hostOf(partlyScored))
  for (const [i, metrics] of events(output, 'step').map(rewardMetrics).entries())
    for (const loop of ['loop1', 'loop2']) {
      const rows = lines<Row>(output, 'samples.jsonl').filter((row) => row.step === i + 1 && row.loop === loop)
      const scored = rows.flatMap(({ total }) => total ?? [])
      const reward = scored.reduce((sum, total) => sum + total, 0) / scored.length
      assert.equal(metrics[`${loop}/unscored`], rows.length - scored.length)
      assert.ok(rows.length > scored.length && Math.abs(metrics[`${loop}/reward`]! - reward) < roundingBound(18))
    }
})

const moving = { syncRefModel: true, refModelSyncSteps: 1 }
for (const [size, what, rl] of [
  [2, 'the start as reference', {}],
  [4, 'a reference that moves', moving],
] as const)
  test(`split over ${size} ranks, with ${what}: weights, moments, EMA copy and reference are the same bits, also after a resume`, async () => {
    const whole = await run(`whole-${size}`, size, { rl })
    await run(`split-${size}`, size, { rl, splitMoments: true }, () => stoppingAfter(1))
    const split = await run(`split-${size}`, size, { rl, splitMoments: true })
    assert.deepEqual(events(split, 'step'), events(whole, 'step'))
    assert.deepEqual(weightsOf(split, 2), weightsOf(whole, 2))
  })

test('a run of 2 ranks that was stopped between two passes resumes with one from its newest checkpoint', async () => {
  const passes: Settings = { rl: { numIterations: 2 } }
  const whole = await run('straight', 1, passes)
  await run('changed', 2, passes, () => stoppingAfter(1))
  const changed = await run('changed', 1, passes)
  const [first, second, ...more] = events(changed, 'step')
  assert.deepEqual([first!.step, second!.step, more.length], [1, 2, 0])
  assertSameRun(changed, whole, 'stopped and gone on')
  const wanted = events(whole, 'step')[1]!.metrics
  for (const key of ['loop1/policy_loss', 'loop2/policy_loss']) {
    const [found, straight] = [second!.metrics[key]!, wanted[key]!]
    assert.ok(Math.abs(found - straight) < 1e-4 + 1e-2 * Math.abs(straight), `${key}: ${found}, not ${straight}`)
  }
})

test('a stop request to one rank stops all ranks after the same step', async () => {
  const output = await run('one-stops', 2, {}, (rank) => {
    let made = 0
    const yieldToLoop = async () => void made++ // after each step of a rank
    return hostOf(undefined, { yieldToLoop, stopping: () => rank === 1 && made === 1 })
  })
  assert.deepEqual(
    events(output, 'step').map(({ step }) => step),
    [1],
  )
})

test('records that come again are dealt by what they cost: the samples of one rank, and the bytes of a run without a stop', async () => {
  const rl = { maxCompletionLength: 16, temperature: 4 } // answers of different lengths
  const again: Settings = { dataPath: 'scenes:6', batchSize: 6, rl }
  const two = await run('dealt-2', 2, again)
  assertSameRun(two, await run('dealt-1', 1, again), 'dealt by cost')
  const { costs } = JSON.parse(readFileSync(join(two, 'checkpoint_step_2', 'state.json'), 'utf8'))
  assert.ok(new Set([...costs.known, ...costs.fresh].map(([, tokens]) => tokens)).size > 1, JSON.stringify(costs))
  await run('dealt-3', 2, again, () => stoppingAfter(1))
  assert.deepEqual(weightsOf(await run('dealt-3', 2, again), 2), weightsOf(two, 2))
})
