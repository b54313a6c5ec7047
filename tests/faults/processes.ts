// Several processes that train together: one is killed, stopped, different or missing.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { newestValid } from '../../src/checkpoint/index.ts'
import { program, type Started, start, startProgram } from '../e2e/cli.ts'
import { freePort, runRanks, startRanks } from '../invariant/distributed-ranks.ts'
import { heldReward } from '../support/held-reward.ts'
import { ranksOf, torchrun, torchrunFlags } from '../support/launched.ts'
import { runBytes } from '../support/runs.ts'
import { type Bench, reached } from './bench.ts'
import { NotHere, type Row, row } from './row.ts'

const alive = (pid: number) => existsSync(`/proc/${pid}`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))

async function goneAfter(pids: readonly number[]): Promise<number> {
  const from = performance.now()
  while (pids.some(alive)) {
    assert.ok(performance.now() - from < 120_000, 'ranks live on')
    await sleep(20)
  }
  return (performance.now() - from) / 1000
}

interface HeldPair {
  run: Started
  pids: Map<number, number>
  release(): void
}

type Launch = (words: readonly string[]) => Started

const nproc = ['--nproc', '2', '--batchSize', '2']

/** Two ranks that wait in the scoring of a step: of the first, or of the second, with nothing saved after the first. */
async function heldPair(bench: Bench, output: string, step: 1 | 2, launch?: Launch): Promise<HeldPair> {
  const reward = heldReward(bench.at('pair.mjs'), 4 * (step - 1)) // a rank scores four samples a step
  reward.hold()
  const saved = step === 1 ? ['--saveSteps', '1', '--maxSteps', '2'] : ['--maxSteps', '1000000']
  const words = bench.command(output, ...nproc, ...saved, '--reward', reward.path)
  const run = (launch ?? ((all) => start(...all)))(words)
  await reached(run, () => reward.waiting() === 2)
  return { run, pids: ranksOf(run.pid), release: reward.release }
}

/** Both must have given up the second step and saved the first. */
function assertFirstSaved(bench: Bench, output: string, words: string): void {
  const { checkpoint, invalid } = newestValid(bench.at(output))
  assert.deepEqual([checkpoint?.step, invalid], [1, []], words)
}

async function underTorchrun(bench: Bench): Promise<string> {
  if (!torchrun) throw new NotHere('no torchrun here: apt-get install python3-torch')
  const launch: Launch = (words) => {
    const own = words.filter((word, i) => word !== '--nproc' && words[i - 1] !== '--nproc')
    return startProgram(torchrun!, ...torchrunFlags(0), process.execPath, program, ...own)
  }
  const { run, pids } = await heldPair(bench, 'pair-torchrun', 2, launch)
  assert.equal(pids.size, 2)
  run.signal('SIGTERM')
  const seconds = await goneAfter([...pids.values()])
  const { err } = await run.ended
  const output = err.slice(err.indexOf('closing signal')) // what torchrun did
  assert.ok(!output.includes('SIGKILL'), output)
  assertFirstSaved(bench, 'pair-torchrun', output)
  return `both after step 1, saved, and ended after ${seconds.toFixed(1)} s; torchrun kills after 30`
}

async function killedRank(bench: Bench): Promise<string> {
  const calm = await heldPair(bench, 'pair-calm', 1)
  calm.release()
  assert.equal((await calm.run.ended).code, 0)
  const { run, pids, release } = await heldPair(bench, 'pair-killed', 1)
  process.kill(pids.get(1)!, 'SIGKILL')
  const seconds = await goneAfter([...pids.values()])
  release()
  const { code, err } = await run.ended
  assert.equal(code, 0, err)
  assert.match(err, /rank 1 ended by SIGKILL/)
  const weights = (output: string) => [...runBytes(bench.at(output))].filter(([path]) => path.endsWith('.safetensors'))
  assert.deepEqual(weights('pair-killed'), weights('pair-calm'))
  return `both gone after ${seconds.toFixed(1)} s, started again, the weights of an undisturbed run`
}

async function killedLauncher(bench: Bench): Promise<string> {
  const { run, pids, release } = await heldPair(bench, 'pair-orphans', 1)
  process.kill(run.pid, 'SIGKILL')
  const seconds = await goneAfter([...pids.values()])
  release()
  return `2 ranks gone ${seconds.toFixed(1)} s after their launcher`
}

async function oneTerminated(bench: Bench): Promise<string> {
  const { run, pids, release } = await heldPair(bench, 'pair-term', 2)
  process.kill(pids.get(1)!, 'SIGTERM')
  await run.seen(/SIGTERM: finishing the step/)
  release()
  const { code, out, err } = await run.ended
  const { checkpoint, invalid } = newestValid(bench.at('pair-term'))
  assert.deepEqual([checkpoint?.step, invalid, code], [stepsIn(bench, 'pair-term'), [], 143], `${out}${err}`)
  return `exit 143, both after step ${checkpoint?.step}`
}

const stepsIn = (bench: Bench, output: string) => bench.events(output).filter((event) => event.t === 'step').length

async function stoppedRank(): Promise<string> {
  const ranks = startRanks(2, 'forever', { env: { TEST_LIMIT: '8', TEST_BEAT: '0.5' } })
  await Promise.all(ranks.map((rank) => rank.said('beaten')))
  ranks[1]!.process.kill('SIGSTOP')
  const end = await ranks[0]!.ended
  ranks[1]!.process.kill('SIGKILL')
  assert.equal(end.code, 75)
  return /rank 1 on \S+ silent for \d+ s[^\n]*/.exec(end.stderr)?.[0] ?? assert.fail(end.stderr)
}

/** What every rank must end with. */
const ending = (scenario: string, code: number, pattern: RegExp) => async (): Promise<string> => {
  const ended = await runRanks(2, scenario)
  const other = ended[0]!
  assert.equal(other.code, code, other.stderr)
  assert.ok(
    ended.every((end) => end.signal === null),
    'a process aborted',
  )
  return pattern.exec(other.stderr)?.[0] ?? assert.fail(other.stderr)
}

async function meetings(): Promise<string> {
  const missing = await runRanks(2, 'collectives', { only: [0], env: { TEST_MEETING: '3' } })
  assert.match(missing[0]!.stderr, /ranks 1 of 2 had not come/)
  const server = createServer()
  await new Promise<void>((done) => server.listen(0, () => done()))
  const { port } = server.address() as { port: number }
  const taken = await runRanks(2, 'collectives', { only: [0], port })
  server.close()
  assert.match(taken[0]!.stderr, /expected a free port/)
  const nobody = await runRanks(2, 'collectives', { only: [1], port: await freePort(), env: { TEST_MEETING: '3' } })
  assert.match(nobody[0]!.stderr, /expected the store of rank 0/)
  return 'a missing rank, a taken port and a wrong address each named'
}

/** Two processes, then one, then three: the records of every step are those of one process. */
async function worlds(bench: Bench): Promise<string> {
  const reward = heldReward(bench.at('worlds.mjs'), 0)
  const records = (output: string) =>
    readFileSync(join(bench.at(output), 'samples.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { step: number; id: string; k: number })
      .map(({ step, id, k }) => `${step} ${id} ${k}`)
      .sort()
  const run = async (output: string, processes: number, steps: number) => {
    const many = processes > 1 ? ['--nproc', String(processes)] : []
    const more = ['--batchSize', '6', '--saveSteps', '1', '--maxSteps', String(steps), '--reward', reward.path, ...many]
    const { code, err } = await bench.start(output, ...more).ended
    assert.equal(code, 0, err)
  }
  await run('world-one', 1, 3)
  for (const [i, processes] of [2, 1, 3].entries()) await run('world-many', processes, i + 1)
  assert.deepEqual(records('world-many'), records('world-one'))
  return `2, 1 and 3 processes over three steps: the ${records('world-one').length} samples of one process`
}

export const processes: readonly Row[] = [
  row(3, 'rank-killed', 'kill -9 of one of two ranks', 'exact', killedRank),
  row(4, 'launcher-killed', 'kill -9 of the launcher', 'ends', killedLauncher),
  row(8, 'worlds', 'another number of processes after each restart', 'exact', worlds),
  row(19, 'rank-sigterm', 'SIGTERM to one rank alone', 'ends', oneTerminated),
  row(20, 'torchrun', 'SIGTERM to torchrun', 'ends', underTorchrun),
  row(22, 'rank-stopped', 'SIGSTOP of a rank', 'ends', stoppedRank),
  row(
    23,
    'rank-throws',
    'an exception on one rank',
    'ends',
    ending('announces', 75, /rank 1 on \S+ failed in step 7 [^\n]*/),
  ),
  row(24, 'rank-differs', 'a rank with other tensors', 'words', ending('layouts', 2, /tensors of rank 1:[^\n]*/)),
  row(25, 'meeting', 'a rank that never comes, a taken port, a wrong address', 'words', meetings),
  row(26, 'diverged', 'one weight of one rank changed by one bit', 'words', ending('diverged', 70, /step 20: [^\n]*/)),
]
