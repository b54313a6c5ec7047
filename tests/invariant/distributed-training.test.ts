// One run of 1 and 2 processes: the same records, answers and rewards, gradients within 1e-6, and what is left of it after a process
// was killed. The command line as a user has it, on a toy model. Every logged name, and 4 ranks, are in all-metrics.test.ts.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after, before } from 'node:test'
import { type Outcome, program, roundtrip, start, startProgram } from '../e2e/cli.ts'
import { heldReward } from '../support/held-reward.ts'
import { ranksOf, torchrun, torchrunFlags } from '../support/launched.ts'
import { makeToy } from '../support/runs.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-distributed-'))
const at = (name: string) => join(folder, name)
const reward = at('spread.mjs')

const settings = (reward: string) => [
  ...[
    '--model',
    at('toy'),
    '--device',
    'cpu',
    '--dataPath',
    'scenes:24',
    '--data.evalFraction',
    '0.3',
    '--data.workers',
    '0',
  ],
  ...['--evalRecords', '3', '--evalBatch', '2', '--batchSize', '4', '--rl.numGenerations', '2', '--reward', reward],
  ...['--rl.maxCompletionLength', '8', '--lora.rank', '4', '--lora.alpha', '8', '--optim.learningRate', '1e-3'],
  ...['--optim.lrSchedulerType', 'constant', '--saveSteps', '1', '--saveTotalLimit', '10', '--checkGroups', 'false'],
]

const train = (output: string, ...more: string[]) => ['train', ...settings(reward), '--output', at(output), ...more]
const steps = (count: number) => ['--maxSteps', String(count)]
const processes = (count: number) => ['--nproc', String(count)]

function succeeded(outcome: Outcome): Outcome {
  assert.equal(outcome.code, 0, `${outcome.out}\n${outcome.err}`)
  return outcome
}

interface Line {
  t: string
  step: number
  metrics: Record<string, number>
}

function lines<T>(output: string, file: string): T[] {
  const text = readFileSync(join(at(output), file), 'utf8').trim()
  return text.split('\n').map((line) => JSON.parse(line) as T)
}

const stepsOf = (output: string) => lines<Line>(output, 'events.jsonl').filter((line) => line.t === 'step')

function weightsOf(output: string, step: number): Map<string, Buffer> {
  const dir = join(at(output), `checkpoint_step_${step}`)
  const names = readdirSync(dir).filter((name) => name.endsWith('.safetensors'))
  return new Map(names.map((name) => [name, readFileSync(join(dir, name))]))
}

function assertClose(
  found: Record<string, number>,
  wanted: Record<string, number>,
  relative: number,
  what: string,
): void {
  assert.deepEqual(Object.keys(found).sort(), Object.keys(wanted).sort())
  for (const [key, value] of Object.entries(wanted)) {
    const off = Math.abs(found[key]! - value)
    assert.ok(off <= relative * Math.abs(value) + 2e-6, `${what} ${key}: ${found[key]}, ${value}`)
  }
}

/** A run that waits in its first scoring until the gate is opened, or after more samples: it cannot have ended before. */
function held(output: string, more: readonly string[], after = 0): { words: string[]; openGate(): void } {
  const { path, hold, release } = heldReward(at(`${output}.mjs`), after)
  hold()
  return { words: ['train', ...settings(path), '--output', at(output), ...more], openGate: release }
}

before(async () => {
  makeToy(at('toy'))
  heldReward(reward, 0)
  succeeded(await roundtrip(...train('one', ...steps(2))))
  succeeded(await roundtrip(...train('two', ...steps(2), ...processes(2))))
})

after(() => rmSync(folder, { recursive: true, force: true }))

interface Row {
  step: number
  id: string
  k: number
  text: string
  total: number
}

test('2 processes sample, score and evaluate what one does, and their gradients are its own within 1e-6', () => {
  const [samples, rows] = [lines<Row>('one', 'samples.jsonl'), lines<Row>('two', 'samples.jsonl')]
  // the batch a record is sampled in decides the last bits of its log-probabilities
  const first = (all: readonly Row[]) => all.filter((row) => row.step === 1).map((row) => ({ ...row, logp: 0 }))
  assert.deepEqual(first(rows), first(samples))
  // after an update weights differ in their last bits, and pixels on the edge of a toy's masks with them
  const said = ({ step, id, k, text, total }: Row) => ({ step, id, k, text, total })
  assert.deepEqual(rows.map(said), samples.map(said))
  assertClose(stepsOf('two')[0]!.metrics, stepsOf('one')[0]!.metrics, 1e-6, 'step 1')
  const evaluated = (name: string) => lines<Line>(name, 'events.jsonl').filter((l) => l.t === 'eval' && l.step === 0)
  assert.deepEqual(evaluated('two'), evaluated('one'))
})

test('with moments split over two processes weights and moments are the same bits, and a single process resumes from them', async () => {
  succeeded(await roundtrip(...train('split', ...steps(2), ...processes(2), '--splitMoments', 'true')))
  assert.deepEqual(weightsOf('split', 2), weightsOf('two', 2))
  succeeded(await roundtrip(...train('split', ...steps(3))))
  const records = lines<Row>('split', 'samples.jsonl').filter((row) => row.step === 3)
  assert.equal(records.length, 2 * 4 * 2) // two loops, four records, two samples
  assert.deepEqual(
    stepsOf('split').map((line) => line.step),
    [1, 2, 3],
  )
})

async function checkpointed(output: string, step: number): Promise<void> {
  while (!existsSync(join(at(output), `checkpoint_step_${step}`))) await new Promise((done) => setTimeout(done, 20))
}

function assertAsUndisturbed(output: string): void {
  assert.deepEqual(weightsOf(output, 2), weightsOf('two', 2))
  assert.deepEqual(lines(output, 'samples.jsonl'), lines('two', 'samples.jsonl'))
}

test('a killed process is named, all start again from the newest checkpoint, and the weights are those of an undisturbed run', async () => {
  const { words, openGate } = held('killed', [...steps(2), ...processes(2)])
  const run = start(...words)
  await checkpointed('killed', 0)
  process.kill(ranksOf(run.pid).get(1)!, 'SIGKILL')
  openGate()
  const outcome = succeeded(await run.ended)
  assert.match(outcome.err, /rank 1 ended by SIGKILL/)
  assert.match(outcome.err, /restart 1 of at most 3, from step 0/)
  assertAsUndisturbed('killed')
})

const needsTorchrun = torchrun ? {} : { skip: 'no torchrun here: apt-get install python3-torch' }

test(
  'torchrun starts two processes of one run, starts them again when one is killed, and the result is that of --nproc 2',
  needsTorchrun,
  async () => {
    const { words, openGate } = held('torchrun', [...steps(2)])
    const run = startProgram(torchrun!, ...torchrunFlags(1), process.execPath, program, ...words)
    await checkpointed('torchrun', 0)
    process.kill(ranksOf(run.pid).get(1)!, 'SIGKILL')
    openGate()
    succeeded(await run.ended)
    assertAsUndisturbed('torchrun')
  },
)

test('SIGTERM stops both processes after the same step with a checkpoint; meanwhile another run in the folder is refused', async () => {
  const { words } = held('stopped', [...steps(1000), ...processes(2)], 8) // in its second step: a rank scores eight samples a step
  const run = start(...words)
  await checkpointed('stopped', 1)
  const second = await roundtrip(...train('stopped', ...steps(2)))
  assert.equal(second.code, 1)
  assert.match(second.err, /got one that process \d+ on \S+ has been writing since 20/)
  run.signal('SIGTERM')
  for (const rank of [0, 1]) await run.seen(new RegExp(`^\\[${rank}\\] .*finishing the step`, 'm'))
  const outcome = await run.ended
  assert.equal(outcome.code, 143, outcome.err)
  assert.match(outcome.out, /stopped after step 1$/m)
  assert.equal(stepsOf('stopped').length, 1)
  assert.ok(existsSync(join(at('stopped'), 'checkpoint_step_1')), 'a checkpoint of the last step')
})

test('WORLD_SIZE without a place to meet is an error with a clear message', async () => {
  process.env['WORLD_SIZE'] = '2'
  process.env['RANK'] = '0'
  try {
    const lone = await roundtrip(...train('lone', ...steps(1)))
    assert.equal(lone.code, 1)
    assert.match(lone.err, /WORLD_SIZE=2 says that 2 processes train together, and nothing says where they meet/)
  } finally {
    for (const name of ['WORLD_SIZE', 'RANK']) delete process.env[name]
  }
})

test('sft by two processes has the losses and the gradient of one, and exports one model', async () => {
  const tune = (output: string, ...more: string[]) => {
    const count = ['--batchSize', '3', '--maxSteps', '2', '--evalRecords', '0', '--saveSteps', '0']
    const plain = ['--lora.dropout', '0', '--lora.rank', '4', '--lora.alpha', '8', '--dataPath', 'scenes:12']
    return ['sft', '--model', at('toy'), '--device', 'cpu', ...plain, ...count, '--output', at(output), ...more]
  }
  const exported = ['--export', at('tuned')]
  succeeded(await roundtrip(...tune('tune-one')))
  const both = succeeded(await roundtrip(...tune('tune-two', ...exported, ...processes(2), '--splitMoments', 'true')))
  const [one, two] = [stepsOf('tune-one'), stepsOf('tune-two')]
  assert.deepEqual([one.length, two.length], [2, 2])
  assertClose(two[0]!.metrics, one[0]!.metrics, 1e-6, 'step 1')
  assertClose(two[1]!.metrics, one[1]!.metrics, 1e-4, 'step 2')
  assert.equal([...both.out.matchAll(/^model /gm)].length, 1)
  assert.deepEqual(readdirSync(at('tuned')).sort(), [...readdirSync(at('toy')), 'README.md'].sort())
})
