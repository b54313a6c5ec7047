import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { newestValid } from '../../src/checkpoint/index.ts'
import { humanBytes, sha256, stream } from '../../src/core/index.ts'
import { heldReward } from '../../tests/support/held-reward.ts'
import { makeToy, runBytes, scratch } from '../../tests/support/runs.ts'
import { type Held, type Lived, livedCommand, livedSteps } from './lives.ts'

const usage = `npm run soak -- [--steps 10000] [--kills 100] [--seed 0] [--only train,sft,export,eval,pair]
  --steps  optimizer steps of the train run; sft makes a tenth of them
  --kills  SIGKILLs at random moments, most of them of train
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

/** What the longest life held in its middle and at its end. */
function flatness(lived: Lived): string {
  const longest = lived.lives.map((life) => life.held).reduce((a, b) => (b.length > a.length ? b : a))
  const [from, to] = [longest[Math.floor(longest.length / 2)]!, longest.at(-1)!]
  assert.equal(to.tensors, from.tensors, 'live tensors')
  assert.ok(to.handles <= from.handles + 2, `handles ${from.handles} to ${to.handles}`)
  const growth = (100 * (to.rss - from.rss)) / from.rss
  assert.ok(longest.length < 1000 || growth < 1, `resident memory grew by ${growth.toFixed(2)} %`)
  const mib = ({ rss }: Held) => (rss / 2 ** 20).toFixed(0)
  return `steps ${from.step} to ${to.step}: ${to.tensors} live tensors, ${from.handles} to ${to.handles} handles, ${mib(from)} to ${mib(to)} MiB`
}

async function run(kind: 'train' | 'sft', count: number, wanted: number): Promise<string> {
  const straight = await livedSteps([kind, toy, at(`${kind}-straight`), String(count)], 0, 1, random)
  const apart = Math.max(1, Math.floor(count / (wanted + 1)))
  const lived = await livedSteps([kind, toy, at(`${kind}-killed`), String(count)], wanted, apart, random)
  assert.deepEqual(runBytes(at(`${kind}-killed`)), runBytes(at(`${kind}-straight`)), 'bytes of the undisturbed run')
  assert.equal(newestValid(at(`${kind}-killed`)).checkpoint?.step, count)
  const size = humanBytes(sizeOf(at(`${kind}-straight`)))
  return `${count} steps, ${lived.kills} kills, equal bytes; ${flatness(straight)}; folder ${size}`
}

/** Two processes; the one that launches them is killed, and they with it. */
async function pair(wanted: number): Promise<string> {
  const command = (output: string) => [
    'train',
    '--model',
    toy,
    ...settings,
    '--maxSteps',
    '4',
    '--nproc',
    '2',
    '--reward',
    reward.path,
    '--output',
    at(output),
  ]
  const straight = await livedCommand(command('pair-straight'), 0, 0, random)
  const lived = await livedCommand(command('pair-killed'), wanted, straight.lives[0]!.seconds, random)
  assert.deepEqual(runBytes(at('pair-killed')), runBytes(at('pair-straight')))
  return `4 steps of two processes, ${lived.kills} kills of the launcher, equal bytes`
}

/** A checkpoint that the commands below work on. */
async function trained(): Promise<string> {
  const output = at('trained')
  await livedCommand(
    ['train', '--model', toy, ...settings, '--maxSteps', '1', '--reward', reward.path, '--output', output],
    0,
    0,
    random,
  )
  return output
}

async function exported(wanted: number): Promise<string> {
  const run = await trained()
  const command = ['export', '--model', toy, '--checkpoint', run, '--out', at('model')] // its card names the folder
  const straight = await livedCommand(command, 0, 0, random)
  const expected = bytesOf(at('model'))
  rmSync(at('model'), { recursive: true })
  let kills = 0
  for (let i = 0; i < wanted; i++) {
    const lived = await livedCommand(command, 1, straight.lives[0]!.seconds, random)
    kills += lived.kills
    assert.deepEqual(bytesOf(at('model')), expected)
    rmSync(at('model'), { recursive: true })
  }
  return `${kills} kills, the same files each time`
}

async function evaluated(wanted: number): Promise<string> {
  const command = ['eval', '--model', toy, ...settings.slice(0, 6), '--records', '4', '--json']
  const straight = await livedCommand(command, 0, 0, random)
  const lived = await livedCommand(command, wanted, straight.lives[0]!.seconds, random)
  return `${lived.kills} kills, gets through afterwards`
}

const parts: Record<string, () => Promise<string>> = {
  train: () => run('train', steps, share(0.6)),
  sft: () => run('sft', Math.max(20, Math.round(steps / 10)), share(0.1)),
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
rmSync(folder, { recursive: true, force: true })
process.exit(failed ? 1 : 0)
