import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { newestValid } from '../../src/checkpoint/index.ts'
import { humanBytes, sha256, stream } from '../../src/core/index.ts'
import { Gate } from '../../src/rewards/judge/flow.ts'
import { heldReward } from '../support/held-reward.ts'
import { makeToy, runBytes, scratch } from '../support/runs.ts'
import { flatness } from './flat.ts'
import { command, Kills, killedOften, type Life, type Moments, type Program, undisturbed, worker } from './lives.ts'

const usage = `npm run soak -- [--steps 10000] [--kills 100] [--jobs 1] [--seed 0] [--only train,sft,export,eval,pair]
  --steps  optimizer steps of a train run; sft makes a tenth of them
  --kills  SIGKILLs that hit a living process, at random moments: half of them of train, a fifth of sft, a tenth of each of the others
  --jobs   runs side by side; the kills of train and of sft are spread over as many runs
  --only   what is run (default: everything)`

const { values } = parseArgs({
  options: {
    steps: { type: 'string', default: '10000' },
    kills: { type: 'string', default: '100' },
    jobs: { type: 'string', default: '1' },
    seed: { type: 'string', default: '0' },
    only: { type: 'string', default: 'train,sft,export,eval,pair' },
    help: { type: 'boolean', default: false },
  },
})
const [steps, kills, jobs] = [Number(values.steps), Number(values.kills), Number(values.jobs)]
const wholeFrom = (least: number, value: number) => Number.isInteger(value) && value >= least
const known = ['train', 'sft', 'export', 'eval', 'pair'] as const
const unknown = values.only.split(',').filter((name) => !known.some((part) => part === name))
if (values.help || !wholeFrom(20, steps) || !wholeFrom(1, kills) || !wholeFrom(1, jobs) || unknown.length > 0) {
  console.error(usage)
  process.exit(2)
}
const folder = scratch('soak')
const at = (name: string) => join(folder, name)
const toy = makeToy(at('toy'))
const places = new Gate(jobs)
const share = (part: number) => Math.max(1, Math.round(kills * part))
const reward = heldReward(at('spread.mjs'), 0)
const settings = (
  '--dataPath scenes:24 --data.workers 0 --data.evalFraction 0.25 --evalRecords 2 --saveSteps 1 --batchSize 2 --rl.numGenerations 2 ' +
  '--rl.maxCompletionLength 5 --lora.rank 4 --lora.alpha 8 --optim.lrSchedulerType constant'
).split(' ')

const sizeOf = (dir: string): number =>
  (readdirSync(dir, { recursive: true }) as string[]).reduce((sum, name) => sum + statSync(join(dir, name)).size, 0)

/** Bytes of every file, by name. */
const bytesOf = (dir: string) =>
  Object.fromEntries((readdirSync(dir) as string[]).sort().map((name) => [name, sha256(readFileSync(join(dir, name)))]))

/** Kills that hit, and those of them after which the bytes were those of an undisturbed run. */
const seen = { hits: 0, equal: 0 }

interface Part {
  name: string
  wanted: number
  /** Most kills of one run. */
  most: number
  /** A program that writes nowhere but in the folder. */
  program(folder: string): Program
  /** What it leaves there. */
  left(folder: string, last: Life): unknown
  /** Where kills fall, from the undisturbed life. */
  moments(straight: Life): Moments
  /** What else is to be said of the undisturbed life. */
  looked?(folder: string, straight: Life): string
}

/** One run after the other is killed and let through, as many side by side as there is place for, until the kills are done. */
async function shown(part: Part): Promise<string> {
  const own = (name: string) => {
    const path = at(`${part.name}-${name}`)
    mkdirSync(path)
    return path
  }
  const calm = own('straight')
  const straight = await places.run(() => undisturbed(part.program(calm)))
  const expected = part.left(calm, straight)
  const kills = new Kills(part.wanted)
  let runs = 0
  const some = async (lane: number) => {
    const random = stream('soak', values.seed, part.name, lane)
    while (kills.open) {
      const path = own(`killed-${runs++}`)
      const often = () => killedOften(part.program(path), kills, part.most, part.moments(straight), random)
      const { hits, last } = await places.run(often)
      seen.hits += hits
      assert.deepEqual(part.left(path, last), expected, `the bytes of an undisturbed run, in ${path}`)
      seen.equal += hits
      rmSync(path, { recursive: true })
    }
  }
  await Promise.all(Array.from({ length: Math.ceil(part.wanted / part.most) }, (_, lane) => some(lane)))
  const more = part.looked?.(calm, straight)
  return `${kills.made} kills of ${runs} runs, equal bytes each time${more ? `; ${more}` : ''}`
}

/** A run of many steps that is killed again and again. */
function long(kind: 'train' | 'sft', count: number, wanted: number): Part {
  const most = Math.ceil(wanted / jobs)
  const apart = Math.max(1, Math.floor(count / (most + 1)))
  const saveSteps = Math.min(10, Math.ceil(apart / 2))
  return {
    name: kind,
    wanted,
    most,
    program: (path) => worker([kind, toy, join(path, 'run'), String(count), String(saveSteps)], path),
    left: (path) => {
      assert.equal(newestValid(join(path, 'run')).checkpoint?.step, count)
      return runBytes(join(path, 'run'))
    },
    moments: ({ seconds }) => ({
      seconds: Math.min(20, seconds),
      lines: apart,
      lineSeconds: seconds / count,
      ranks: 0,
    }),
    looked: (path, straight) => `${count} steps, ${flatness(straight.held)}; folder ${humanBytes(sizeOf(path))}`,
  }
}

/** A command that is killed once and started again, as often as wanted. */
function short(name: string, wanted: number, args: readonly string[], left: Part['left'], ranks = 0): Part {
  const program = (path: string) => command(args, path)
  const moments = ({ seconds }: Life) => ({ seconds, lines: 1, lineSeconds: 0, ranks })
  return { name, wanted, most: 1, program, left, moments }
}

const training = (steps: number) => {
  const end = ['--maxSteps', String(steps), '--reward', reward.path, '--output', 'run']
  return ['train', '--model', toy, ...settings, ...end]
}

/** Two processes; one of them is killed, or the one that launches them and they with it. */
const pair = (wanted: number) =>
  short('pair', wanted, [...training(3), '--nproc', '2'], (path) => runBytes(join(path, 'run')), 2)

async function exported(wanted: number): Promise<string> {
  mkdirSync(at('trained'))
  await places.run(() => undisturbed(command(training(1), at('trained'))))
  const args = ['export', '--model', toy, '--checkpoint', join(at('trained'), 'run'), '--out', 'model']
  return await shown(short('export', wanted, args, (path) => bytesOf(join(path, 'model'))))
}

const evaluation = ['eval', '--model', toy, ...settings.slice(0, 6), '--records', '4', '--json']

const parts: Record<(typeof known)[number], () => Promise<string>> = {
  train: () => shown(long('train', steps, share(0.5))),
  sft: () => shown(long('sft', Math.max(20, Math.round(steps / 10), 5 * share(0.2)), share(0.2))),
  export: () => exported(share(0.1)),
  eval: () => shown(short('eval', share(0.1), evaluation, (_, { out }) => out)),
  pair: () => shown(pair(share(0.1))),
}
let failed = false
const chosen = known.filter((name) => values.only.split(',').includes(name))
await Promise.all(
  chosen.map(async (name) => {
    const from = performance.now()
    const words = await parts[name]().catch((error: Error) => {
      failed = true
      return `FAILED: ${error.message.split('\n').slice(0, 6).join(' ')}`
    })
    console.log(`${name.padEnd(7)} ${((performance.now() - from) / 1000).toFixed(0)} s  ${words}`)
  }),
)
console.log(`${seen.equal} of ${seen.hits} kills ended with the bytes of an undisturbed run`)
if (!failed) rmSync(folder, { recursive: true, force: true })
process.exit(failed ? 1 : 0)
