import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { newestValid } from '../../src/checkpoint/index.ts'
import { humanBytes, sha256, stream } from '../../src/core/index.ts'
import { heldReward } from '../../tests/support/held-reward.ts'
import { makeToy, runBytes, scratch } from '../../tests/support/runs.ts'
import { command, type Held, killedOften, killedOnce, type Life, worker } from './lives.ts'

const usage = `npm run soak -- [--steps 10000] [--kills 100] [--seed 0] [--only train,sft,export,eval,pair]
  --steps  optimizer steps of the train run; sft makes a tenth of them
  --kills  SIGKILLs at random moments: half of them of train, a fifth of sft, a tenth of each of the others
  --only   what is run (default: everything)`

const { values } = parseArgs({
  options: {
    steps: { type: 'string', default: '10000' },
    kills: { type: 'string', default: '100' },
    seed: { type: 'string', default: '0' },
    only: { type: 'string', default: 'train,sft,export,eval,pair' },
    help: { type: 'boolean', default: false },
  },
})
const [steps, kills] = [Number(values.steps), Number(values.kills)]
if (values.help || !Number.isInteger(steps) || steps < 20 || !Number.isInteger(kills)) {
  console.error(usage)
  process.exit(2)
}
const folder = scratch('soak')
const at = (name: string) => join(folder, name)
const toy = makeToy(at('toy'))
const random = stream('soak', values.seed)
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

/** What a run held in its middle and at its end. */
function flatness({ held }: Life): string {
  const [from, to] = [held[Math.floor(held.length / 2)]!, held.at(-1)!]
  assert.equal(to.tensors, from.tensors, 'live tensors')
  assert.ok(to.handles <= from.handles + 2, `handles ${from.handles} to ${to.handles}`)
  const growth = (100 * (to.rss - from.rss)) / from.rss
  assert.ok(held.length < 1000 || growth < 1, `resident memory grew by ${growth.toFixed(2)} %`)
  const mib = ({ rss }: Held) => (rss / 2 ** 20).toFixed(0)
  return `steps ${from.step} to ${to.step}: ${to.tensors} live tensors, ${from.handles} to ${to.handles} handles, ${mib(from)} to ${mib(to)} MiB`
}

let killed = 0

/** One run that is killed again and again. */
async function run(kind: 'train' | 'sft', count: number, wanted: number): Promise<string> {
  const apart = Math.max(1, Math.floor(count / (wanted + 1)))
  const args = (output: string) => [kind, toy, at(output), String(count), String(Math.min(10, Math.ceil(apart / 2)))]
  const straight = await worker(args(`${kind}-straight`))
  const stepSeconds = straight.seconds / count
  const times = { kills: wanted, apart, stepSeconds, startSeconds: Math.min(20, straight.seconds) }
  const kills = await killedOften(args(`${kind}-killed`), times, random)
  killed += kills
  assert.equal(kills, wanted, 'kills before it was through')
  assert.deepEqual(runBytes(at(`${kind}-killed`)), runBytes(at(`${kind}-straight`)), 'bytes of the undisturbed run')
  assert.equal(newestValid(at(`${kind}-killed`)).checkpoint?.step, count)
  const size = humanBytes(sizeOf(at(`${kind}-straight`)))
  return `${count} steps, ${kills} kills, equal bytes; ${flatness(straight)}; folder ${size}`
}

/** A command that is killed once and started again, as often as wanted; what it leaves each time must be what it leaves undisturbed. */
async function again(args: readonly string[], wanted: number, left: (last: Life) => unknown): Promise<string> {
  const straight = await command(args)
  const expected = left(straight)
  for (let kills = 0; kills < wanted; ) {
    const last = await killedOnce(args, straight.seconds, random)
    assert.deepEqual(left(last ?? straight), expected)
    if (last) killed++
    if (last) kills++
  }
  return `${wanted} kills, equal bytes each time`
}

/** What `read` finds in a folder, which then goes: the next start must not find it. */
const taken = (folder: string, read: (folder: string) => unknown) => () => {
  const found = read(at(folder))
  rmSync(at(folder), { recursive: true })
  return found
}

const training = (steps: number, output: string) => {
  const end = ['--maxSteps', String(steps), '--reward', reward.path, '--output', at(output)]
  return ['train', '--model', toy, ...settings, ...end]
}

/** Two processes; the one that launches them is killed, and they with it. */
const pair = (wanted: number) => again([...training(3, 'pair'), '--nproc', '2'], wanted, taken('pair', runBytes))

async function exported(wanted: number): Promise<string> {
  await command(training(1, 'trained'))
  const args = ['export', '--model', toy, '--checkpoint', at('trained'), '--out', at('model')] // its card names the folder
  return again(args, wanted, taken('model', bytesOf))
}

const evaluated = (wanted: number) =>
  again(['eval', '--model', toy, ...settings.slice(0, 6), '--records', '4', '--json'], wanted, ({ out }) => out)

const parts: Record<string, () => Promise<string>> = {
  train: () => run('train', steps, share(0.5)),
  sft: () => run('sft', Math.max(20, Math.round(steps / 10), 5 * share(0.2)), share(0.2)),
  export: () => exported(share(0.1)),
  eval: () => evaluated(share(0.1)),
  pair: () => pair(share(0.1)),
}
let failed = false
for (const name of values.only.split(',')) {
  const from = performance.now()
  const part = parts[name]
  const seen = part
    ? await part().catch((error: Error) => {
        failed = true
        return `FAILED: ${error.message.split('\n').slice(0, 6).join(' ')}`
      })
    : 'unknown'
  console.log(`${name.padEnd(7)} ${((performance.now() - from) / 1000).toFixed(0)} s  ${seen}`)
}
console.log(`${killed} kills`)
rmSync(folder, { recursive: true, force: true })
process.exit(failed ? 1 : 0)
