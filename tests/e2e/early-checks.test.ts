// What can be known without the model is checked before it is loaded, and a rejected command leaves nothing.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { makeToy, scratch } from '../support/runs.ts'
import { program, roundtrip } from './cli.ts'

const folder = scratch('early')
const at = (name: string) => join(folder, name)
const toy = makeToy(at('toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

const quick = [
  ...'--data.workers 0 --evalRecords 0 --batchSize 1 --rl.numGenerations 2 --rl.maxCompletionLength 4'.split(' '),
  ...'--lora.rank 4 --maxSteps 1 --optim.lrSchedulerType constant --threads 1'.split(' '),
]

/** Weights that no program can open: a command that gets as far as the model says so. */
function spoiltModel(): string {
  const dir = at('spoilt')
  mkdirSync(dir, { recursive: true })
  for (const name of ['config.json', 'model.safetensors']) writeFileSync(join(dir, name), 'not a model')
  return dir
}

for (const command of ['train', 'train --dry-run', 'sft', 'eval'])
  test(`${command}: a data path that does not exist is reported before the model is read, and no folder is left`, async () => {
    const [name, ...more] = command.split(' ')
    const output = join(at('fresh'), 'deep', 'run')
    const paths = ['--model', spoiltModel(), '--data', at('nothing'), '--output', output]
    const own = name === 'sft' ? ['--maxSteps', '1', '--threads', '1'] : quick
    const words = name === 'eval' ? paths.slice(0, 4) : [...paths, ...own]
    const { code, err } = await roundtrip(name!, ...more, ...words)
    assert.equal(code, 1)
    assert.ok(err.includes(at('nothing')), err)
    assert.ok(!err.includes('config.json'), err)
    assert.ok(!existsSync(at('fresh')))
  })

test('records without captions are refused before the model is read, if the task reads captions', async () => {
  for (const name of ['images', 'masks']) mkdirSync(join(at('mute'), name), { recursive: true })
  const png = Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==',
    'base64',
  )
  for (const name of ['images', 'masks']) writeFileSync(join(at('mute'), name, 'a.png'), png)
  const paths = ['--model', spoiltModel(), '--data', at('mute'), '--output', join(at('unsaid'), 'run')]
  const { code, err } = await roundtrip('train', ...paths, ...quick)
  assert.equal(code, 1)
  assert.match(err, /captions: expected one for each object.*captions\.tsv/)
  assert.ok(!existsSync(at('unsaid')))
})

test('sft of a task without supervised learning is rejected before the model is read', async () => {
  const paths = ['--model', spoiltModel(), '--data', 'scenes:8', '--output', join(at('untaught'), 'run')]
  const { code, err } = await roundtrip('sft', '--task', 'segment', ...paths, '--maxSteps', '1', '--threads', '1')
  assert.equal(code, 1)
  assert.match(err, /task: expected .*, got segment/)
  assert.ok(!existsSync(at('untaught')))
})

test('a model that cannot be opened leaves no run folder', async () => {
  const paths = ['--model', spoiltModel(), '--data', 'scenes:8', '--output', join(at('other'), 'run')]
  const { code, err } = await roundtrip('train', ...paths, ...quick)
  assert.notEqual(code, 0)
  assert.match(err, /config\.json/)
  assert.ok(!existsSync(at('other')))
})

test('a folder that was there before is kept, also an empty one', async () => {
  mkdirSync(at('mine'))
  const paths = ['--model', spoiltModel(), '--data', at('nothing')]
  await roundtrip('train', ...paths, '--output', at('mine'), ...quick)
  await roundtrip('train', ...paths, '--output', join(at('mine'), 'new', 'run'), ...quick)
  assert.deepEqual(readdirSync(at('mine')), [])
})

test('a folder that takes no folders is reported at once', { skip: !existsSync('/proc/self') && 'no /proc' }, () => {
  const words = ['train', '--model', toy, '--data', 'scenes:4', '--output', '/proc/self/run', ...quick]
  const { status, stderr } = spawnSync(process.execPath, [program, ...words], { encoding: 'utf8', timeout: 60_000, killSignal: 'SIGKILL' }) // biome-ignore format: one line
  assert.equal(status, 1, stderr)
  assert.match(stderr, /\/proc\/self\/run: output: expected a folder to write to, got ENOENT/)
})

test('a cache that takes no folders is reported, and the command goes through', {
  skip: !existsSync('/proc/self') && 'no /proc',
}, async () => {
  assert.equal((await roundtrip('data', 'make-scenes', '--n', '4', '--format', 'jsonl', '--out', at('four'))).code, 0)
  const env = { ...process.env, ROUNDTRIP_CACHE: '/proc/self/cache' }
  const inspect = [program, 'data', 'inspect', at('four')]
  const { status, stderr } = spawnSync(process.execPath, inspect, { encoding: 'utf8', env, timeout: 60_000, killSignal: 'SIGKILL' }) // biome-ignore format: one line
  assert.equal(status, 0, stderr)
  assert.match(stderr, /index not stored in \/proc\/self\/cache\/index: ENOENT/)
})

test('a changed setting of a run that is to be resumed is reported before the model is read', async () => {
  const run = ['--data', 'scenes:8', '--output', at('run'), ...quick]
  const first = await roundtrip('train', '--model', toy, ...run)
  assert.equal(first.code, 0, first.err)
  const files = readdirSync(at('run'))
  const second = await roundtrip('train', '--model', spoiltModel(), ...run, '--rl.beta', '0.5')
  assert.equal(second.code, 1)
  assert.match(second.err, /settings: expected the settings the run was started with, got rl\.beta: 0\.04, now 0\.5/)
  assert.deepEqual(readdirSync(at('run')), files)
  const third = await roundtrip('train', '--model', toy, ...run, '--maxSteps', '2')
  assert.match(third.out, /done after step 2/, third.err)
})

test('a dropout that only sft uses is noted if it was set, and 0 is not', async () => {
  const run = ['--model', toy, '--data', 'scenes:8', ...quick]
  const notes = async (name: string, ...more: string[]) => {
    const { code, err } = await roundtrip('train', ...run, '--output', at(name), ...more)
    assert.equal(code, 0, err)
    return /lora\.dropout \S+ acts in sft.*/.exec(err)?.[0] ?? null
  }
  assert.equal(await notes('plain'), null)
  assert.equal(await notes('zero', '--lora.dropout', '0'), null)
  const expected = 'lora.dropout 0.05 acts in sft alone: reinforcement learning scores without dropout'
  assert.equal(await notes('old-name', '--lora_dropout', '0.05'), expected)
})

test('a name that is not UTF-8 is rejected, and no folder of another name is written', () => {
  const script = `cd "$1" && exec "$2" "$3" train --model "$4" --data scenes:8 --output $'r\\xff\\xfe n'`
  const args = ['-c', script, 'bash', folder, process.execPath, program, toy]
  const before = readdirSync(folder)
  const { status, stderr } = spawnSync('bash', args, { encoding: 'utf8' })
  assert.equal(status, 1)
  assert.match(
    stderr,
    /^error: roundtrip: arguments: expected names in UTF-8, got r\ufffd\ufffd n\. rename the file or folder/,
  )
  assert.deepEqual(readdirSync(folder), before)
})

test('train --help shows the settings of a first run, the tasks and an example that parses', async () => {
  const { out } = await roundtrip('train', '--help')
  for (const flag of [
    '--model',
    '--data',
    '--output',
    '--maxSteps',
    '--batchSize',
    '--rl.numGenerations',
    '--rewards.preset',
  ])
    assert.match(out, new RegExp(`^  ${flag} +\\S`, 'm'), flag)
  assert.match(out, /^ {2}--task cycle +\S/m)
  assert.match(out, /^ {2}--task points +\S/m)
  const example = /^ {2}npx roundtrip-rl (train .*)$/m.exec(out)?.[1]
  assert.ok(example, out)
  const words = example.replace('runs/first', at('example')).split(' ')
  const { code, err } = await roundtrip(...words, ...quick)
  assert.equal(code, 0, err)
})
