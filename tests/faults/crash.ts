// Kills, torn files, resumes.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { newestValid } from '../../src/checkpoint/index.ts'
import { stream } from '../../src/core/index.ts'
import type { Host, RunInput } from '../../src/run/index.ts'
import { lockRun } from '../../src/run/lock.ts'
import { Kills, killedOften, undisturbed } from '../soak/lives.ts'
import { ownProgram } from '../support/own-program.ts'
import { hostOf, makeToy, runBytes, stoppingAfter } from '../support/runs.ts'
import { type Bench, refusal, rewrite, withClock } from './bench.ts'
import { eachDeath, eachPowerLoss } from './deaths.ts'
import { quick, type Row, row } from './row.ts'

const work = ownProgram('../e2e/resume-work.ts', import.meta.url)

async function killed(bench: Bench): Promise<string> {
  const run = (output: string) => ({ args: [...work, bench.toy, bench.at(output), '1', '4'], cwd: bench.folder })
  const { seconds } = await undisturbed(run('straight'))
  const moments = { seconds, lines: 3, lineSeconds: seconds / 4, ranks: 0 }
  const kills = new Kills(6)
  let runs = 0
  while (kills.open) {
    const output = `killed-${runs++}`
    await killedOften(run(output), kills, 6, moments, stream('faults', output))
    assert.deepEqual(runBytes(bench.at(output)), runBytes(bench.at('straight')))
  }
  return `${kills.made} kills of ${runs} ${runs === 1 ? 'run' : 'runs'}, every byte as without them`
}

/** The first, a middle and the last step; inside a generation that is learned from twice. */
async function resumed(bench: Bench): Promise<string> {
  const passes: Partial<RunInput> = { rl: { numGenerations: 2, maxCompletionLength: 5, numIterations: 2 } }
  await bench.train('passes', passes)
  for (const stopAt of [0, 1, 2, 3]) {
    await bench.train(`passes-${stopAt}`, passes, stoppingAfter(stopAt))
    assert.equal((await bench.train(`passes-${stopAt}`, passes)).step, 4)
    assert.deepEqual(runBytes(bench.at(`passes-${stopAt}`)), runBytes(bench.at('passes')), `stopped after ${stopAt}`)
  }
  return 'stopped after steps 0, 1, 2 and 3, two passes a batch: equal bytes'
}

/** Every part of a checkpoint is left out or set back once; the run must then not be the same. */
async function mutations(bench: Bench): Promise<string> {
  const adaptive: Partial<RunInput> = {
    adaptiveLoops: true,
    rl: { numGenerations: 2, maxCompletionLength: 5, useAdaptiveEntropy: true, entropyTarget: 100, beta: 0.1 },
  }
  await bench.train('items', adaptive)
  const expected = runBytes(bench.at('items'))
  const states: Record<string, (state: Record<string, unknown>) => unknown> = {
    'balance of the loops': (s) => setAll(s['tasks'], 'balance', 0.25),
    'norm of the loops': (s) => setAll(s['tasks'], 'norm', 3),
    entropy: (s) => Object.assign(s, { entropy: 0.5 }),
    'place in the data': (s) => Object.assign(s['loader'] as object, { position: 0, seen: 0 }),
  }
  const found: string[] = []
  const differs = async (name: string, damage: (checkpoint: string) => void) => {
    const output = `items-${found.length}`
    cpSync(bench.at('items'), bench.at(output), { recursive: true })
    for (const step of [3, 4]) rmSync(join(bench.at(output), `checkpoint_step_${step}`), { recursive: true })
    damage(join(bench.at(output), 'checkpoint_step_2'))
    const same = await bench.train(output, adaptive).then(
      () => JSON.stringify([...runBytes(bench.at(output))]) === JSON.stringify([...expected]),
      () => false,
    )
    assert.ok(!same, `${name}: changed, and the run is the same`)
    found.push(name)
  }
  for (const [name, change] of Object.entries(states))
    await differs(name, (path) =>
      rewrite(path, 'state.json', (bytes) => {
        const state = JSON.parse(bytes.toString()) as Record<string, unknown>
        change(state)
        return JSON.stringify(state)
      }),
    )
  for (const file of ['trainables', 'ema', 'optimizer', 'adapter_model'])
    await differs(file, (path) =>
      rewrite(path, `${file}.safetensors`, (bytes) => {
        bytes[bytes.length - 2]! ^= 0x40
        return bytes
      }),
    )
  return `${found.length} of ${found.length} parts matter: ${found.join(', ')}`
}

function setAll(tasks: unknown, key: string, value: number): void {
  for (const task of Object.values(tasks as Record<string, Record<string, unknown>>)) task[key] = value
}

async function truncated(bench: Bench): Promise<string> {
  const path = await bench.calmUntil('cut', 4)
  const checkpoint = join(path, 'checkpoint_step_4')
  const file = join(checkpoint, 'optimizer.safetensors')
  const whole = readFileSync(file)
  const random = stream('faults', 'cuts')
  for (let i = 0; i < 20; i++) {
    truncateSync(file, random.below(whole.length))
    const { checkpoint: newest, invalid } = newestValid(path)
    assert.equal(newest?.step, 3)
    assert.match(invalid[0]!.reason, /optimizer\.safetensors: expected \d+ bytes, got \d+/)
    writeFileSync(file, whole)
  }
  truncateSync(file, 100)
  await bench.assertExact('cut')
  return '20 lengths, each named with its bytes; step 3 taken, and the run resumes to the same bytes'
}

async function flipped(bench: Bench): Promise<string> {
  const path = await bench.calmUntil('flip', 4)
  const checkpoint = join(path, 'checkpoint_step_4')
  const names = readdirSync(checkpoint).filter((name) => statSync(join(checkpoint, name)).isFile())
  const random = stream('faults', 'bits')
  for (const name of names) {
    const whole = readFileSync(join(checkpoint, name))
    const bytes = Buffer.from(whole)
    bytes[random.below(bytes.length)]! ^= 1 << random.below(8)
    writeFileSync(join(checkpoint, name), bytes)
    assert.equal(newestValid(path).checkpoint?.step, 3, `a bit of ${name}`)
    writeFileSync(join(checkpoint, name), whole)
  }
  return `one bit in each of ${names.length} files: seen ${names.length} times`
}

async function manifests(bench: Bench): Promise<string> {
  const path = await bench.calmUntil('manifest', 4)
  const file = join(path, 'checkpoint_step_4', 'manifest.json')
  const whole = readFileSync(file, 'utf8')
  const other = JSON.stringify({ ...(JSON.parse(whole) as object), format: 99 })
  for (const text of [null, '', whole.slice(0, whole.length / 2), other]) {
    if (text === null) rmSync(file)
    else writeFileSync(file, text)
    const { checkpoint, invalid } = newestValid(path)
    assert.deepEqual([checkpoint?.step, invalid.length], [3, 1])
  }
  return 'missing, empty, half, of another version: passed over with the reason'
}

async function otherModel(bench: Bench): Promise<string> {
  await bench.calmUntil('other', 2)
  const other = makeToy(bench.at('other-toy'), 2)
  await refusal(() => bench.train('other', {}, hostOf(), other), /weights model\.safetensors: .*, now /)
  return await refusal(() => bench.train('other', { lora: { rank: 8, alpha: 8 } }), /lora\.rank: 4, now 8/)
}

async function locked(bench: Bench): Promise<string> {
  const path = await bench.calmUntil('locked', 2)
  const lock = lockRun(path)
  const before = runBytes(path)
  await refusal(() => bench.train('locked'), new RegExp(`got one that process ${process.pid} on `))
  assert.deepEqual(runBytes(path), before)
  lock.release()
  const gone = spawnSync('true').pid
  const owner = { host: hostname(), pid: gone, born: '1', since: '2020-01-01T00:00:00.000Z', token: 'x' }
  writeFileSync(join(path, 'run.lock'), JSON.stringify(owner))
  await bench.assertExact('locked')
  return 'refused with process and host; the lock of a dead process is taken over'
}

async function clock(bench: Bench): Promise<string> {
  const hours = [-1, 7 * 24, -40 * 365 * 24]
  await withClock((setOff) => {
    const progress: Host['progress'] = (e) => {
      if (e.kind === 'step') setOff((hours.shift() ?? 0) * 3_600_000)
    }
    return bench.train('clock', {}, hostOf(undefined, { progress }))
  })
  assert.deepEqual(runBytes(bench.at('clock')), runBytes(await bench.calm()))
  const { checkpoint } = newestValid(bench.at('clock'))
  assert.equal(checkpoint?.step, 4)
  return 'an hour back, a week on, 40 years back: order by step, equal bytes'
}

async function twice(bench: Bench): Promise<string> {
  for (const output of ['again-1', 'again-2']) {
    await bench.calmUntil(output, 2)
    await bench.assertExact(output)
  }
  return 'both times the bytes of the calm run'
}

async function deaths(bench: Bench): Promise<string> {
  mkdirSync(bench.at('deaths'))
  const seen = eachDeath(bench.at('deaths'))
  return `dead at each of ${seen.calls} system calls of writer and pruner: ${seen.deaths} deaths, a whole checkpoint each time, no leftovers`
}

async function power(bench: Bench): Promise<string> {
  mkdirSync(bench.at('power'))
  const seen = eachPowerLoss(bench.at('power'))
  return `${seen} prefixes of the write log, bytes that were not synced lost: a whole checkpoint each time`
}

export const crash: readonly Row[] = [
  row(1, 'kill', 'kill -9 at random moments of one run', 'exact', killed),
  quick(2, 'crash-points', 'death at every system call of the checkpoint writer', 'safe', deaths),
  quick(5, 'power', 'power loss: what was not synced is lost', 'safe', power),
  row(6, 'resume', 'stop and resume at the first, a middle and the last step', 'exact', resumed),
  row(7, 'state', 'each part of the stored state changed', 'exact', mutations),
  quick(9, 'resume-twice', 'resume twice from the same checkpoint', 'exact', twice),
  quick(10, 'truncated', 'newest checkpoint cut at 20 places', 'safe', truncated),
  quick(11, 'bit-flip', 'one flipped bit in each file of the newest checkpoint', 'safe', flipped),
  quick(12, 'manifest', 'manifest missing, empty, half, of another version', 'safe', manifests),
  quick(13, 'other-model', 'checkpoints of another model or LoRA rank', 'words', otherModel),
  quick(14, 'two-runs', 'a second run on the folder; a lock of a dead process', 'words', locked),
  quick(15, 'clock', 'the clock jumps during the run', 'exact', clock),
]
