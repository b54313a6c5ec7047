// Failures of long runs. Each leaves a clear reason and the last good checkpoint, and the run resumes from it.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { appendFileSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { z } from 'zod'
import { listCheckpoints, newestValid, readAll, writeSafetensors } from '../../src/checkpoint/index.ts'
import { whyInvalid } from '../../src/checkpoint/run-checkpoint.ts'
import { defineReward, openRewards, type Reward, RewardsConfig, scoreGroup } from '../../src/rewards/index.ts'
import { type Host, train } from '../../src/run/index.ts'
import { resolveRewards, taskRewardSettings } from '../../src/tasks/index.ts'
import { ownProgram } from '../support/own-program.ts'
import { hostOf, makeToy, runBytes, scratch, spread, stoppingAfter, toyRun } from '../support/runs.ts'

const CycleRewards = z.strictObject({ ...taskRewardSettings, ...RewardsConfig.shape })
const folder = scratch('failures')
const toy = makeToy(join(folder, 'toy'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

const small = { batchSize: 1, maxSteps: 4, saveTotalLimit: 9, rl: { numGenerations: 2, maxCompletionLength: 5 } }
const configOf = (name: string, more: Parameters<typeof toyRun>[2] = {}) =>
  toyRun(toy, at(name), { ...small, ...more, rl: { ...small.rl, ...more.rl } })

interface Line {
  t: string
  step: number
  kind?: string
  text?: string
  loop?: string
  total?: number | null
  advantage?: number
  rewards?: Record<string, number | null>
  metrics?: Record<string, unknown>
}

function lines(name: string, file: 'events' | 'samples'): Line[] {
  const text = readFileSync(join(at(name), `${file}.jsonl`), 'utf8').trim()
  return text.split('\n').map((line) => JSON.parse(line) as Line)
}

/** Every checkpoint of the run is whole; the newest is of this step. */
function assertIntact(name: string, step: number): void {
  for (const checkpoint of listCheckpoints(at(name))) assert.equal(whyInvalid(checkpoint), null)
  assert.equal(newestValid(at(name)).checkpoint?.step, step)
}

/** Bytes of four steps that nothing disturbed; computed once for each kind of settings. */
const calm = new Map<string, Promise<Map<string, string>>>()
function undisturbed(key: string, more: Parameters<typeof toyRun>[2] = {}): Promise<Map<string, string>> {
  let found = calm.get(key)
  if (!found) {
    const config = configOf(`calm-${key}`, more)
    found = train(config, hostOf()).then(() => runBytes(config.output))
    calm.set(key, found)
  }
  return found
}

const unhandled: unknown[] = []
process.on('unhandledRejection', (reason) => unhandled.push(reason))

/** A reward of the user's own, spread like the calm one until the third step, where `wrong` takes over. */
function hostWith(wrong: (id: string) => number): Host {
  let calls = 0
  const mine = (step: number): Reward =>
    defineReward({
      name: 'made',
      range: [0, 1],
      doc: 'test',
      score: (answer) => (step === 3 ? wrong(answer.id) : spread(answer, 0, 'loop1')!),
    })
  return hostOf(undefined, {
    score: async (_, groups) => {
      const step = 1 + Math.floor(calls++ / 2) // two loops a step
      const rows = await Promise.all(groups.map((g) => scoreGroup([{ reward: mine(step), weight: 1 }], g)))
      const plain = rows.map((group) => group.map(({ metrics: _, ...row }) => row)) // the undisturbed scorer returns none
      return { rows: plain }
    },
  })
}

for (const [what, wrong, reason] of [
  [
    'throws',
    () => {
      throw new Error('my reward broke')
    },
    /reward made: expected scores, got my reward broke/,
  ],
  ['gives NaN', () => Number.NaN, /sample scene-.*#0: reward made: expected a number from 0 to 1.*got NaN/],
] as const) {
  test(`a reward that ${what} ends the run with its name; resumed with a whole one it is as if nothing had been`, async () => {
    const name = `reward-${what.replace(' ', '-')}`
    await assert.rejects(train(configOf(name), hostWith(wrong)), reason)
    assertIntact(name, 2)
    await train(configOf(name), hostOf())
    assert.deepEqual(runBytes(at(name)), await undisturbed('plain'))
    await new Promise((done) => setImmediate(done))
    assert.deepEqual(unhandled, [], 'the other loop fails too, and nobody waits for it')
  })
}

/** Rewards too large for a float32 loss, in one step. */
function bursting(step: number): Host {
  let calls = 0
  return hostOf((answer, k, loop) => {
    if (k === 0) calls++
    return 1 + Math.floor((calls - 1) / 2) === step ? (k === 0 ? 3e38 : -3e38) : spread(answer, k, loop)
  })
}

test('a loss that is not finite ends the run before the update, with record, loop and what to try', async () => {
  const more = { rl: { scaleRewards: 'none' as const } }
  await assert.rejects(
    train(configOf('nan', more), bursting(3)),
    /record scene-.*: loop1 loss: expected finite numbers, got (NaN|-?Infinity).*last checkpoint is intact.*learningRate/,
  )
  assertIntact('nan', 2)
  await train(configOf('nan', more), hostOf())
  assert.deepEqual(runBytes(at('nan')), await undisturbed('unscaled', more))
})

test('onNonFinite skip leaves weights, EMA and optimizer as they were, notes it, and continues', async () => {
  const more = { rl: { scaleRewards: 'none' as const }, onNonFinite: 'skip' as const }
  const result = await train(configOf('skip', more), bursting(3))
  assert.equal(result.step, 4)
  const [before, skipped, next] = [2, 3, 4].map((step) => weightsOf('skip', step))
  assert.deepEqual(skipped, before)
  assert.notDeepEqual(next, skipped)
  const [warning] = lines('skip', 'events').filter((e) => e.t === 'warning')
  assert.deepEqual([warning?.step, warning?.kind], [3, 'non-finite'])
  assert.match(warning!.text!, /loop1 loss/)
})

test('a skipped update of the first task leaves the samples of the others scored, also in a checkpoint', async () => {
  const rl = { scaleRewards: 'none' as const, numIterations: 2 }
  const more = { rl, loop2: { weight: 1 }, adaptiveLoops: true, onNonFinite: 'skip' as const }
  const result = await train(configOf('skip-adaptive', more), bursting(2))
  assert.equal(result.step, 4)
  const samples = lines('skip-adaptive', 'samples').filter(({ step }) => step === 3)
  assert.deepEqual(samples.map(({ loop }) => loop), ['loop1', 'loop1', 'loop2', 'loop2']) // biome-ignore format: one line
  const state = JSON.parse(readFileSync(join(at('skip-adaptive'), 'checkpoint_step_3', 'state.json'), 'utf8'))
  assert.deepEqual(state.generation.groups.map(({ scores }: { scores: unknown[] }) => scores.length), [2, 2]) // biome-ignore format: one line
})

function weightsOf(name: string, step: number): Map<string, string> {
  const files = [...runBytes(at(name))].filter(([path]) => path.endsWith('.safetensors'))
  const mine = files.filter(([path]) => path.startsWith(`checkpoint_step_${step}/`))
  assert.equal(mine.length, 4)
  return new Map(mine.map(([path, hash]) => [path.split('/')[1]!, hash]))
}

test('a NaN among the weights of the model is refused by name before anything is learned from it', async () => {
  const broken = makeToy(at('broken'))
  const path = join(broken, 'model.safetensors')
  const entries = [...readAll(path)].map(([name, t]) => ({ name, ...t, data: t.data.slice() }))
  const norm = entries.find((e) => e.name === 'language_model.model.norm.weight')!
  new Float32Array(norm.data.buffer)[0] = Number.NaN
  writeSafetensors(path, entries)
  await assert.rejects(
    train(toyRun(broken, at('broken-run'), small), hostOf()),
    /norm.weight: expected finite weights, got NaN/,
  )
})

/** Gives 7 of 10 until it is switched off; then it drops every connection. */
async function judge() {
  let there = true
  const server = createServer((request, response) => {
    if (!there) return void request.socket.destroy()
    const choices = [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: '7' } }]
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ id: 'x', object: 'chat.completion', created: 0, model: 'm', choices }))
  })
  await new Promise<void>((done) => void server.listen(0, '127.0.0.1', done))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
  return {
    url,
    set there(value: boolean) {
      there = value
    },
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  }
}

async function judged(
  name: string,
  onUnavailable: 'meteor' | 'skip' | 'stop',
  use: (host: Host, run: () => Promise<unknown>, back: () => void) => Promise<void>,
) {
  const server = await judge()
  const config = CycleRewards.parse({
    loop1: {
      terms: [
        { type: 'iou', weight: 1, of: 'maskPrime' },
        { type: 'judge', weight: 3, of: 'caption' },
      ],
    },
    judge: {
      enabled: true,
      baseUrl: server.url,
      mode: 'number',
      retries: 0,
      breakerOpenMs: 0,
      onUnavailable,
      cacheDir: at(`cache-${name}`),
    },
  })
  const rewards = await openRewards(config, resolveRewards(config).tasks)
  let calls = 0
  const host = hostOf(undefined, {
    score: async (loop, groups) => {
      if (++calls === 5) server.there = false // the third step
      const { terms, options } = rewards.tasks[loop]!
      const rows = await Promise.all(groups.map((g) => scoreGroup(terms, g, options)))
      return { rows, metrics: {} }
    },
  })
  const more = { checkGroups: false, optim: { maxGradNorm: 0 }, rl: { beta: 0 } }
  try {
    await use(
      host,
      () => train(configOf(name, more), host),
      () => {
        server.there = true
        calls = 6
      },
    )
  } finally {
    rewards.close()
    server.close()
  }
}

test('an unreachable judge does not score 0: its term is dropped for whole groups, and the others decide', () =>
  judged('judge-meteor', 'meteor', async (_, run) => {
    await run()
    const rows = lines('judge-meteor', 'samples').filter((s) => s.loop === 'loop1')
    const judgeOf = (step: number) => rows.filter((r) => r.step === step).map((r) => r.rewards!['judge'])
    assert.deepEqual(judgeOf(1), [0.7, 0.7])
    assert.deepEqual(judgeOf(3), [null, null])
    for (const r of rows.filter((r) => r.step > 2)) assert.equal(r.total, r.rewards!['iou'])
  }))

test('with onUnavailable skip a group without its judge has no reward, no advantage and is counted', () =>
  judged('judge-skip', 'skip', async (_, run) => {
    await run()
    const rows = lines('judge-skip', 'samples').filter((s) => s.loop === 'loop1' && s.step > 2)
    assert.deepEqual(
      rows.map((r) => [r.total, r.advantage]),
      rows.map(() => [null, 0]),
    )
    const step = lines('judge-skip', 'events').find((e) => e.t === 'step' && e.step === 3)!
    assert.equal(step.metrics!['loop1/unscored'], 2)
    assert.equal(step.metrics!['loop1/reward_mean'], undefined)
  }))

test('with onUnavailable stop the run ends with the reason, and resumes when the judge is back', () =>
  judged('judge-stop', 'stop', async (_, run, back) => {
    await assert.rejects(run(), /judge: expected a score for every sample, got none.*onUnavailable is stop/)
    assertIntact('judge-stop', 2)
    back()
    const result = (await run()) as { step: number }
    assert.equal(result.step, 4)
  }))

test('a full disk ends the run with a clear message; with room again it resumes to the same bytes', () => {
  const work = ownProgram('./resume-work.ts', import.meta.url)
  const run = (output: string, limit: string, steps: string) =>
    spawnSync('sh', ['-c', `ulimit -f ${limit}; exec "$0" "$@"`, process.execPath, ...work, toy, output, '1', steps], {
      encoding: 'utf8',
      env: { ...process.env, OMP_NUM_THREADS: '1' },
    })
  const begun = run(at('full'), 'unlimited', '2')
  assert.equal(begun.status, 0, begun.stderr)
  const size = statSync(join(at('full'), 'checkpoint_step_2', 'optimizer.safetensors')).size
  // a limit on the size of a file, in blocks of 512 bytes: room for every file but the optimizer's
  const failed = run(at('full'), String(Math.floor(size / 512) - 1), '5')
  assert.equal(failed.status, 1)
  assert.match(failed.stderr, /checkpoint of step 3: expected room on the disk.*EFBIG.*earlier checkpoints are intact/)
  assertIntact('full', 2)
  assert.deepEqual(
    readdirSync(at('full')).filter((f) => f.startsWith('.tmp-')),
    [],
  )
  const again = run(at('full'), 'unlimited', '5')
  assert.equal(again.status, 0, again.stderr)
  for (const steps of ['2', '5']) {
    const roomy = run(at('roomy'), 'unlimited', steps)
    assert.equal(roomy.status, 0, roomy.stderr)
  }
  assert.deepEqual(runBytes(at('full')), runBytes(at('roomy')))
})

test('a damaged newest checkpoint is passed over; when all are damaged nothing is begun anew', async () => {
  await train(configOf('damaged'), hostOf())
  appendFileSync(join(at('damaged'), 'checkpoint_step_4', 'ema.safetensors'), 'x')
  await train(configOf('damaged'), hostOf())
  assert.deepEqual(runBytes(at('damaged')), await undisturbed('plain'))
  for (const { path } of listCheckpoints(at('damaged'))) appendFileSync(join(path, 'state.json'), ' ')
  const events = readFileSync(join(at('damaged'), 'events.jsonl'))
  await assert.rejects(
    train(configOf('damaged'), hostOf()),
    /checkpoints: expected a complete one.*5, all damaged: state.json/,
  )
  assert.deepEqual(readFileSync(join(at('damaged'), 'events.jsonl')), events)
})

test('a run is not resumed with other settings, and the rejection leaves nothing open', async () => {
  await undisturbed('plain')
  const config = toyRun(toy, at('calm-plain'), { ...small, seed: 7, data: { workers: 2 } })
  await assert.rejects(train(config, hostOf()), /expected the settings the run was started with/)
})

test('samples.jsonl stops growing at samplesMiB, with a warning, and the same after a resume', async () => {
  const more = { samplesMiB: 0.002 }
  await train(configOf('capped', more), hostOf())
  const notes = lines('capped', 'events').filter((e) => e.kind === 'samples-full')
  assert.deepEqual([notes.length, notes[0]?.step], [1, lines('capped', 'samples').at(-1)!.step])
  assert.ok(lines('capped', 'samples').at(-1)!.step < 4, 'later steps are not kept')
  const halfway = stoppingAfter(2)
  await train(configOf('capped-split', more), halfway)
  await train(configOf('capped-split', more), hostOf())
  assert.deepEqual(runBytes(at('capped-split')), runBytes(at('capped')))
})
