// The life of a run: what is counted in a row, when it evaluates and saves, what a stop leaves behind.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { writeGarArrow } from '../../src/data/arrow/write.ts'
import { alone, type World } from '../../src/distributed/index.ts'
import { JudgeStats } from '../../src/rewards/index.ts'
import { type RunInput, totalSteps, train } from '../../src/run/index.ts'
import { openRecords } from '../../src/run/records.ts'
import { maskLogits } from '../../src/sam/index.ts'
import { cuda, tensor, tidy } from '../../src/tensor/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { garRow, rowsOf } from '../support/data.ts'
import { hostOf, makeToy, runBytes, type Scores, scratch, spread, stoppingAfter, toyRun } from '../support/runs.ts'

const folder = scratch('run-life')
const toy = makeToy(join(folder, 'toy'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

/** Loop 1 alone, one record, two short captions. */
const small: Partial<RunInput> = {
  batchSize: 1,
  saveSteps: 0,
  train: ['mlp1', 'lora'],
  loop2: { weight: 0 },
  rl: { numGenerations: 2, maxCompletionLength: 4 },
}
const eventsOf = (name: string) => readRun(at(name)).events
const checkpoints = (name: string) =>
  readdirSync(at(name))
    .filter((file) => file.startsWith('checkpoint_step_'))
    .map((file) => Number(file.split('_').at(-1)))
    .sort((a, b) => a - b)

test('the length of a run is its epochs times its passes, and a last step that is not full counts', () => {
  const config = (more: Partial<RunInput>) =>
    toyRun(toy, at('none'), { maxSteps: -1, epochs: 2, batchSize: 2, ...more })
  assert.equal(totalSteps(config({ rl: { gradientAccumulationSteps: 2 } }), 9, 1), 5)
  assert.equal(totalSteps(config({ rl: { gradientAccumulationSteps: 2 } }), 9, 3), 14)
  assert.equal(totalSteps(config({ epochs: 0.1 }), 9, 1), 1)
  assert.equal(totalSteps(config({ maxSteps: 7 }), 9, 3), 7)
})

test('it evaluates and saves after the requested steps, keeps the newest checkpoints, and passes the step to rewards', async () => {
  const steps = new Set<number>()
  const scores: Scores = (answer, k, task) => {
    steps.add(answer.step!)
    return spread(answer, k, task)
  }
  const rhythm = { maxSteps: 5, evalSteps: 2, evalRecords: 1, saveSteps: 2, saveTotalLimit: 2 }
  const plain = hostOf(scores)
  const counting = hostOf(scores, {
    score: async (task, groups) => {
      const scored = await plain.score(task, groups)
      const counted = Object.assign(new JudgeStats(), { calls: steps.size })
      return { ...scored!, judge: counted.state({ costPerMillionIn: 0, costPerMillionOut: 0 }, 0) }
    },
  })
  await train(toyRun(toy, at('rhythm'), { ...small, ...rhythm }), counting)
  const calls = readRun(at('rhythm')).timing.flatMap((e) => (e.t === 'step' ? [e.metrics!['judge/calls']] : []))
  assert.deepEqual(calls, [1, 2, 3, 4, 5], 'metrics of the scoring are logged')
  const events = eventsOf('rhythm').flatMap((e) => {
    if (e.t === 'eval') return [`eval ${e.step} ${e.name}`]
    return e.t === 'checkpoint' ? [`saved ${e.step}`] : []
  })
  assert.deepEqual(events, [
    'eval 0 before',
    'saved 0',
    'eval 2 step 2',
    'saved 2',
    'eval 4 step 4',
    'saved 4',
    'saved 5',
    'eval 5 after',
  ])
  assert.deepEqual(checkpoints('rhythm'), [4, 5])
  assert.deepEqual([...steps], [1, 2, 3, 4, 5])
  const even = { maxSteps: 1, evalSteps: 1, evalRecords: 1 }
  await train(toyRun(toy, at('even'), { ...small, ...even }), hostOf(spread))
  const names = eventsOf('even').flatMap((e) => (e.t === 'eval' ? [e.name] : []))
  assert.deepEqual(names, ['before', 'after'], 'the last step is evaluated once')
})

test('warnings about the host of a run are in its folder', async (t) => {
  t.mock.method(cuda, 'count', () => 8)
  const pod = { KUBERNETES_SERVICE_HOST: '10.0.0.1', RANK: '0', WORLD_SIZE: '2', MASTER_ADDR: 'm' }
  const before = { ...process.env }
  t.after(() => {
    for (const name of Object.keys(pod)) delete process.env[name]
    Object.assign(process.env, before)
  })
  Object.assign(process.env, pod)
  await train(toyRun(toy, at('pod'), { ...small, maxSteps: 1, evalRecords: 0 }), hostOf(spread))
  const warnings = eventsOf('pod').flatMap((e) => (e.t === 'warning' && e.text.includes('8 GPUs') ? [e.kind] : []))
  assert.deepEqual(warnings, ['settings'])
})

test('as many records are held out as were asked for', async () => {
  const { heldOut, close } = await openRecords(toyRun(toy, at('none'), { dataPath: 'scenes:24', evalRecords: 3 }))
  await close()
  assert.equal(heldOut.length, 3)
})

/** Gradients of these steps, counted from 1, are not finite. */
function poisoned(bad: readonly number[]): World {
  let step = 0
  return {
    ...alone,
    sumGradients: async (parameters) => {
      if (!bad.includes(++step)) return
      const [first] = parameters.values()
      tidy(() => first!.setGrad(tensor(new Float32Array(first!.numel).fill(Number.NaN), [...first!.shape])))
    },
  }
}

test('three updates that are skipped in a row end a run; skipped now and then they do not', async () => {
  const run = (name: string, bad: readonly number[]) =>
    train(toyRun(toy, at(name), { ...small, maxSteps: 5, onNonFinite: 'skip' }), hostOf(), undefined, poisoned(bad))
  assert.equal((await run('now-and-then', [1, 2, 4, 5])).step, 5)
  const skipped = eventsOf('now-and-then').filter((e) => e.t === 'warning' && e.kind === 'non-finite')
  assert.equal(skipped.length, 4)
  const { train: _, loop2: __, ...bothLoops } = small
  const adaptive = { ...bothLoops, maxSteps: 3, onNonFinite: 'skip', adaptiveLoops: true } as const
  await train(toyRun(toy, at('adaptive'), adaptive), hostOf(), undefined, poisoned([1]))
  const losses = eventsOf('adaptive').flatMap((e) => (e.t === 'step' ? [e.metrics.total_loss] : []))
  assert.ok(losses.slice(1).every(Number.isFinite), `a skipped update weighs no loop: ${losses}`)
  await assert.rejects(run('in-a-row', [2, 3, 4]), (error: Error & { exitCode?: number }) => {
    assert.match(error.message, /3 updates in a row skipped/)
    assert.equal(error.exitCode, 76)
    return true
  })
})

test('if memory runs out in the middle of a step, its metrics are those of the second try alone', async () => {
  const metricsOf = async (name: string, failing: number) => {
    const world: World = {
      ...alone,
      async sumGradients() {
        if (tries++ === failing) throw Object.assign(new Error('out of memory'), { code: 'ERR_OOM' })
      },
    }
    let tries = 0
    await train(toyRun(toy, at(name), { ...small, batchSize: 2, maxSteps: 2 }), hostOf(spread), undefined, world)
    const last = eventsOf(name).findLast((e) => e.t === 'step')
    assert.ok(last?.t === 'step', 'a step was logged')
    return last.metrics
  }
  const [whole, again] = [await metricsOf('roomy', -1), await metricsOf('narrow', 1)]
  assert.ok(whole.total_loss! > 0, `the second step has a loss: ${whole.total_loss}`)
  for (const key of ['total_loss', 'loop1/loss', 'loop1/kl', 'grad_norm'])
    assert.ok(Math.abs(again[key]! / whole[key]! - 1) < 1e-3, `${key}: ${again[key]} instead of ${whole[key]}`)
})

test('twenty steps in a row without spread end a run, also over a stop; a step with spread begins the count anew', async () => {
  const run = (name: string, good: number, maxSteps = 24) => {
    let step = 0
    const scores: Scores = (answer, k) => {
      step = answer.step!
      return step === good ? k / 2 : 0.5
    }
    const config = toyRun(toy, at(name), {
      ...small,
      maxSteps,
      checkGroups: false,
      rl: { ...small.rl, maxCompletionLength: 2 },
    })
    return train(config, hostOf(scores))
  }
  assert.equal((await run('broken', 19)).step, 24)
  assert.equal((await run('flat', 0, 11)).step, 11)
  await assert.rejects(run('flat', 0), /20 steps in a row in which the rewards of loop1 were all equal/)
})

test('a task without spread ends no run in which another task learns; a warning names it', async () => {
  const scores: Scores = (_, k, task) => (task === 'loop1' ? k / 2 : 0.5)
  const input = { batchSize: 1, maxSteps: 22, saveSteps: 0, rl: { ...small.rl, maxCompletionLength: 2 } } as const
  assert.equal((await train(toyRun(toy, at('half'), input), hostOf(scores))).step, 22)
  const warnings = eventsOf('half').flatMap((e) => (e.t === 'warning' ? [e.text] : []))
  assert.match(warnings.join('\n'), /loop2: in the first three steps the rewards of every group were equal/)
})

test('the noise of loop 2 is measured on the held-out records, mask logits that are not finite are counted step by step', async () => {
  const scales = new Set<string>()
  for (const evalRecords of [2, 3]) {
    const name = `measured-${evalRecords}`
    const scores: Scores = (answer, k, task) => {
      if (answer.step === 2 && k === 0 && task === 'loop1') maskLogits.nan += 3
      return spread(answer, k, task)
    }
    const input = { batchSize: 1, maxSteps: 3, saveSteps: 0, evalRecords, rl: small.rl } as const
    await train(toyRun(toy, at(name), input), hostOf(scores))
    const { tasks } = JSON.parse(readFileSync(join(at(name), 'checkpoint_step_0', 'state.json'), 'utf8'))
    scales.add(JSON.stringify(tasks.loop2.state))
    const found = eventsOf(name).flatMap((e) => (e.t === 'step' ? [e.metrics['iou/nan']] : []))
    assert.deepEqual(found, [0, 3, 0])
  }
  assert.equal(scales.size, 2, [...scales].join(' '))
})

test('stopped while it is scored, a step leaves the data where it began: resumed, the run is the whole one', async () => {
  const rl = { ...small.rl, gradientAccumulationSteps: 2, stepsPerGeneration: 1 }
  const config = (name: string) => toyRun(toy, at(name), { ...small, maxSteps: 3, saveTotalLimit: 9, rl })
  await train(config('whole'), hostOf())
  const host = hostOf()
  let calls = 0
  const stops = hostOf(spread, { score: async (task, groups) => (++calls === 4 ? null : host.score(task, groups)) })
  const stopped = await train(config('stopped'), stops)
  assert.deepEqual([stopped.step, stopped.stopped], [1, true])
  assert.deepEqual(checkpoints('stopped'), [0, 1], 'the stop is saved with the position of the data')
  await train(config('stopped'), hostOf())
  const result = (name: string) =>
    new Map([...runBytes(at(name))].filter(([file]) => /^samples\.jsonl$|_step_3\/.*\.safetensors$/.test(file)))
  assert.equal(result('whole').size, 5)
  assert.deepEqual(result('stopped'), result('whole'))
})

test('a step ends with its epoch, and a short one is whole: each takes all pieces of what is left', async () => {
  const rl = { ...small.rl, gradientAccumulationSteps: 4 }
  const input = { ...small, dataPath: 'scenes:3', maxSteps: 3, data: { evalFraction: 0 }, rl }
  await train(toyRun(toy, at('short'), input), hostOf())
  const samples = [...readRun(at('short')).samples()]
  for (const step of [1, 2, 3]) {
    const own = samples.filter((s) => s.step === step)
    assert.equal(new Set(own.map((s) => s.id)).size, 3, `records of step ${step}`)
    assert.equal(own.length, 3 * 2, `samples of step ${step}`)
  }
})

test('unusable records are reported once, also over a stop', async () => {
  const rows = await Promise.all(Array.from({ length: 9 }, (_, i) => garRow(i)))
  for (const i of [0, 1, 5]) rows[i]!.image.bytes = Buffer.from('not an image')
  const dataPath = join(folder, 'some-bad')
  await writeGarArrow(dataPath, rowsOf(rows))
  const data = { shuffle: false, evalFraction: 0, maxRejectFraction: 0.5, prefetch: 1 }
  const config = toyRun(toy, at('told'), { ...small, maxSteps: 4, dataPath, data })
  assert.equal((await train(config, stoppingAfter(1))).step, 1)
  await train(config, hostOf())
  const warnings = eventsOf('told').flatMap((e) =>
    e.t === 'warning' && e.kind === 'bad-record' ? [[e.step, e.count]] : [],
  )
  assert.deepEqual(warnings, [
    [1, 2],
    [4, 1],
  ])
})

test('a first record that cannot be read is skipped as later ones are, also if the noise of loop 2 is measured on it', async () => {
  const rows = await Promise.all([0, 1, 2, 3].map((i) => garRow(i)))
  rows[0]!.image.bytes = Buffer.from('not an image')
  const dataPath = join(folder, 'first-bad')
  await writeGarArrow(dataPath, rowsOf(rows))
  const data = { shuffle: false, maxRejectFraction: 0.5 }
  const config = (name: string, more: RunInput['data']) =>
    toyRun(toy, at(name), {
      batchSize: 1,
      maxSteps: 1,
      saveSteps: 0,
      dataPath,
      rl: small.rl,
      data: { ...data, ...more },
    })
  assert.equal((await train(config('first-bad-run', {}), hostOf())).step, 1)
  const events = eventsOf('first-bad-run').flatMap((e) =>
    e.t === 'warning' && e.kind === 'bad-record' ? [e.count] : [],
  )
  assert.deepEqual(events, [1])
  await assert.rejects(train(config('first-bad-stop', { onBadRecord: 'stop' }), hostOf()), /row 0: image: expected/)
})

test('processes whose copies of the data differ stop with a message before the first step, with both numbers', async () => {
  /** Rank 0 of two; the other has one record less in all it says of its data. */
  const world: World = {
    ...alone,
    size: 2,
    gather: async (own) => {
      if (typeof own === 'string') return [own, 'another hash'] as never
      const { 'data: records': records, ...rest } = own as Record<string, string>
      return [own, { ...rest, 'data: records': String(Number(records) - 1) }] as never
    },
  }
  const started = train(toyRun(toy, at('other-data'), small), hostOf(), undefined, world)
  await assert.rejects(started, /settings of rank 1: data: records: expected 24, got 23/)
})

test('warnings about the host on which a run was started are printed, and are in its log', async (t) => {
  const pod = { KUBERNETES_SERVICE_HOST: '10.0.0.1', RANK: '0', WORLD_SIZE: '2', MASTER_ADDR: 'm' }
  const before = { ...process.env }
  t.mock.method(cuda, 'count', () => 8)
  Object.assign(process.env, pod)
  try {
    await train(toyRun(toy, at('no-steps'), { ...small, maxSteps: 0 }), hostOf())
  } finally {
    for (const name of Object.keys(pod)) if (!(name in before)) delete process.env[name]
  }
  const warnings = eventsOf('no-steps').flatMap((e) => (e.t === 'warning' ? [e.text] : []))
  assert.equal(warnings.filter((text) => text.includes('8 GPUs')).length, 1, warnings.join('\n'))
})
