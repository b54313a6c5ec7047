// The commands around the trainer on a tiny model: sft makes it say [SEG], then train, resume, eval, doctor.
import assert from 'node:assert/strict'
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after, before } from 'node:test'
import { fileURLToPath } from 'node:url'
import type { Interval } from '../../src/tracking/index.ts'
import { heldReward } from '../support/held-reward.ts'
import { type Outcome, roundtrip, start } from './cli.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-commands-'))
const at = (name: string) => join(folder, name)
const golden = fileURLToPath(new URL('../fixtures/golden/sa2va-tiny', import.meta.url))
const tiny = at('tiny')
/** Says [SEG] and draws something; written by the first sft. */
const model = at('model')

const records = ['--dataPath', 'scenes:24', '--data.evalFraction', '0.3', '--data.workers', '0', '--evalRecords', '2']
const short = [...records, '--rl.maxCompletionLength', '16']
const small = [...short, '--lora.rank', '4', '--lora.alpha', '8']
const whole = ['--train', 'all', '--optim.lrSchedulerType', 'constant', '--optim.warmupSteps', '0']
const sft = ['sft', '--model', tiny, ...short, ...whole, '--batchSize', '2', '--optim.learningRate', '5e-3']
/** Rewards that differ within every group. After `hold()` a run waits in its second step: two loops, one record, two samples. */
const reward = heldReward(at('spread.mjs'), 4)
const train = [
  'train',
  '--model',
  model,
  ...small,
  '--batchSize',
  '1',
  '--reward',
  reward.path,
  '--rl.learningRate',
  '1e-4',
  '--num_generations',
  '2',
]

function succeeded(outcome: Outcome): Outcome {
  assert.equal(outcome.code, 0, `${outcome.out}\n${outcome.err}`)
  return outcome
}

const metrics = ['caption/meteor', 'mask/giou', 'mask/ciou', 'cycle/iou', 'cycle/meteor', 'answer/seg_rate']

before(async () => {
  cpSync(golden, tiny, { recursive: true })
  for (const name of readdirSync(tiny)) if (name.startsWith('golden.')) rmSync(join(tiny, name))
  writeFileSync(
    at('throws.mjs'),
    "export const reward = { name: 'mine', range: [0, 1], doc: 'throws', score: () => { throw new Error('my reward broke') } }\n",
  )
  const made = ['--maxSteps', '16', '--evalRecords', '0', '--saveSteps', '0', '--output', at('sft'), '--export', model]
  succeeded(await roundtrip(...sft, ...made))
})

after(() => rmSync(folder, { recursive: true, force: true }))

interface Line {
  t: string
  step: number
  metrics?: Record<string, number>
}

function events(run: string): Line[] {
  const text = readFileSync(join(run, 'events.jsonl'), 'utf8').trim()
  return text.split('\n').map((line) => JSON.parse(line) as Line)
}

test('sft lowers its loss and writes a model folder that opens', () => {
  const steps = events(at('sft')).filter((e) => e.t === 'step')
  assert.equal(steps.length, 16)
  assert.ok(steps.at(-1)!.metrics!.loss! < 0.5 * steps[0]!.metrics!.loss!)
  assert.deepEqual(readdirSync(model).sort(), [...readdirSync(tiny), 'README.md'].sort())
  assert.match(readFileSync(join(model, 'README.md'), 'utf8'), /^tiny, fine-tuned in 16 steps by roundtrip /m)
})

test('sft with the same seed and threads gives the same losses and gradients, bit for bit', async () => {
  succeeded(await roundtrip(...sft, '--maxSteps', '3', '--evalRecords', '0', '--output', at('again')))
  const steps = (run: string) => events(run).filter((e) => e.t === 'step' && e.step <= 3)
  assert.equal(steps(at('again')).length, 3)
  assert.deepEqual(steps(at('again')), steps(at('sft')))
})

test('a run stopped by SIGINT ends with 0 after its step, and resumed it writes the bytes of a run that was not', async () => {
  const steps = ['--maxSteps', '6']
  reward.hold()
  const [straight, stopped] = await Promise.all([
    roundtrip(...train, ...steps, '--output', at('straight')),
    (async () => {
      const run = start(...train, ...steps, '--output', at('stopped'))
      await run.seen(/train .* 1\/6 /)
      run.signal('SIGINT')
      await run.seen(/finishing the step/)
      reward.release()
      return run.ended
    })(),
  ])
  succeeded(straight)
  succeeded(stopped)
  assertStartUp(straight.err)
  assert.match(stopped.out, /stopped after step [1-5]\b/)
  assert.match(stopped.err, /finishing the step, then saving/)
  const resumed = succeeded(await roundtrip(...train, ...steps, '--output', at('stopped')))
  assert.match(resumed.err, /resume .*checkpoint_step_/)
  assert.match(resumed.out, /done after step 6/)
  const withoutStops = (run: string) => events(run).filter((e) => e.t !== 'checkpoint')
  assert.deepEqual(withoutStops(at('stopped')), withoutStops(at('straight')))
  const weights = (run: string, file: string) => readFileSync(join(run, 'checkpoint_step_6', file))
  for (const file of [
    'adapter_model.safetensors',
    'trainables.safetensors',
    'ema.safetensors',
    'optimizer.safetensors',
  ])
    assert.ok(weights(at('stopped'), file).equals(weights(at('straight'), file)), file)
})

const startUp = 'model adapters trainable records rewards trainer folder training saving'.split(' ')

/** Where it runs, then nine numbered steps in order; the trainable groups with their share of all values. */
function assertStartUp(text: string): void {
  const steps = [...text.matchAll(/^([1-9]) (\w+) /gm)].map(([, number, name]) => `${number} ${name}`)
  assert.deepEqual(
    steps,
    startUp.map((name, i) => `${i + 1} ${name}`),
  )
  assert.match(text, /^roundtrip \d+\.\d+\.\d+( at commit [0-9a-f]{12})?, torch \d\S*, node v\d\S*, cpu float32, /m)
  assert.match(text, /^command: roundtrip train --model .* --maxSteps 6 --output /m)
  const [, trained, all] = /^3 trainable ([\d,]+) of ([\d,]+) values \([\d.]+ %\)$/m.exec(text)!
  const number = (digits: string) => Number(digits.replaceAll(',', ''))
  const groups = [...text.matchAll(/^ {2}trains \w+: \d+ tensors, ([\d,]+) values \(([\d.e-]+) %\)$/gm)]
  assert.equal(
    groups.reduce((sum, [, values]) => sum + number(values!), 0),
    number(trained!),
  )
  for (const [, values, share] of groups) assert.equal(share, ((100 * number(values!)) / number(all!)).toPrecision(3))
  const environment = JSON.parse(readFileSync(join(at('straight'), 'environment.json'), 'utf8'))
  assert.deepEqual([environment.device, environment.dtype], ['cpu', 'float32'])
  assert.deepEqual(environment.command.slice(0, 3), ['train', '--model', model])
  for (const fact of ['product', 'torch', 'node', 'system']) assert.equal(typeof environment[fact], 'string', fact)
}

test('every trainable group gets a gradient, log names are those users know, nothing leaks', () => {
  const steps = events(at('straight')).filter((e) => e.t === 'step')
  const last = steps.at(-1)!.metrics!
  for (const group of ['mlp1', 'lora', 'text_hidden_fcs', 'mask_decoder', 'prompt_encoder'])
    assert.ok(last[`grad_norm/${group}`]! > 0, group)
  for (const loop of ['loop1', 'loop2'])
    for (const name of ['loss', 'policy_loss', 'kl_div', 'reward_mean', 'reward_std', 'rewards/spread/mean'])
      assert.ok(Number.isFinite(last[`${loop}/${name}`]), `${loop}/${name}`)
  const timing = readFileSync(join(at('straight'), 'timing.jsonl'), 'utf8')
  const live = [...timing.matchAll(/"live_tensors":(\d+)/g)].map((m) => Number(m[1]))
  assert.equal(live.at(-1), live[1])
})

test('a second signal ends the run at once with 130', async () => {
  reward.hold()
  const run = start(...train, '--maxSteps', '1000', '--output', at('killed'))
  await run.seen(/train .* 1\/1000 /)
  process.kill(run.pid, 'SIGSTOP') // both signals are there when it wakes: the first cannot have ended the run before the second
  run.signal('SIGTERM')
  run.signal('SIGINT')
  run.signal('SIGCONT')
  assert.equal((await run.ended).code, 130)
  reward.release()
})

test('a dry run prints start-up, texts, rewards and advantages, and writes nothing', async () => {
  const several = ['--nproc', '8', '--per_device_batch_size', '1', '--batchSize', '2']
  const { out } = succeeded(await roundtrip(...train, '--output', at('dry'), '--dry-run', ...several))
  for (const number of ['1 model', '2 records', '3 rewards', '4 memory', '5 steps', '6 first record'])
    assert.match(out, new RegExp(`^${number}`, 'm'))
  for (const group of ['mlp1', 'lora', 'text_hidden_fcs', 'mask_decoder', 'prompt_encoder'])
    assert.match(out, new RegExp(`trains ${group}: \\d+ tensors`))
  assert.match(out, /completions, by 8 processes: batchSize 2 over all, 0 or 1 per process$/m)
  assert.match(out, /^ +warning: 8 processes share 2 records of a step: 6 of them are idle\. Set --batchSize 8/m)
  assert.match(out, /^loop1 {2}record /m)
  assert.match(out, /^loop2 {2}record /m)
  assert.equal([...out.matchAll(/^k +text +answer +.*spread +reward +advantage/gm)].length, 2)
  assert.equal(existsSync(at('dry')), false)
  assert.match(out.trimEnd().split('\n').at(-1)!, /^verdict: can(not)? learn/)
  const flat = "export const reward = { name: 'flat', range: [0, 1], doc: 'half', score: () => 0.5 }\n"
  writeFileSync(at('flat.mjs'), flat)
  const terms = JSON.stringify([{ type: 'module', path: at('flat.mjs') }])
  const equal = [
    '--loop2.weight',
    '0',
    '--train',
    'mlp1,lora',
    '--rewards.loop1.terms',
    terms,
    '--num_generations',
    '2',
  ]
  const strict = await roundtrip('train', '--model', model, ...small, ...equal, '--dry-run', '--strict')
  assert.equal(strict.code, 1, strict.err)
  assert.match(strict.out, /\nverdict: cannot learn like this: loop1: in the first \d records the rewards of every/)
})

test('control characters of records are spelled out on standard output', async () => {
  succeeded(await roundtrip('data', 'make-scenes', '--n', '8', '--format', 'jsonl', '--out', at('evil')))
  const file = readdirSync(at('evil')).find((name) => name.endsWith('.jsonl'))!
  const lines = readFileSync(join(at('evil'), file), 'utf8').trim().split('\n').map((line) => JSON.parse(line)) // biome-ignore format: one line
  const evil = lines.map((line, i) => ({ ...line, id: `r\u001b[31m${i}`, caption: '\u001b]0;title\u0007a \u202ecup' }))
  writeFileSync(join(at('evil'), file), `${evil.map((line) => JSON.stringify(line)).join('\n')}\n`)
  const dry = ['--dataPath', at('evil'), '--output', at('dry'), '--dry-run']
  for (const command of [
    ['data', 'inspect', at('evil')],
    [...train, ...dry],
  ]) {
    const { out } = succeeded(await roundtrip(...command))
    assert.match(out, /r\\x1b\[31m\d/)
    assert.match(out, /\\x1b\]0;title\\x07a \\u202ecup/)
    assert.doesNotMatch(out, /[\u001b\u0007\u202e]/)
  }
})

test('eval prints all six metrics; of the last checkpoint they are those the run ended with', async () => {
  const evaluate = ['eval', '--model', model, ...short, '--records', '2', '--data.split', 'eval', '--adapter']
  const { out } = succeeded(await roundtrip(...evaluate, at('straight')))
  const ended = events(at('straight'))
    .filter((e) => e.t === 'eval')
    .at(-1)!.metrics as unknown as Record<string, Interval>
  assert.deepEqual(Object.keys(ended), metrics)
  const figure = (x: number) => x.toFixed(3)
  for (const name of metrics) {
    const { mean, low, high } = ended[name]!
    const row = out.split('\n').find((line) => line.startsWith(`${name} `))
    assert.equal(row?.replace(/ +/g, ' '), `${name} ${figure(mean)} [${figure(low)}, ${figure(high)}]`)
  }
})

test('doctor passes on a model that can learn', async () => {
  const { out } = succeeded(await roundtrip('doctor', '--model', model, '--lora.rank', '4', '--lora.alpha', '8'))
  for (const name of [
    'loop1 on-policy ratio',
    'loop2 image matters',
    'LoRA A, step 2',
    'frozen weights',
    'gradient lora',
  ])
    assert.match(out, new RegExp(`^PASS +${name}`, 'm'))
  assert.match(out, /^- +device +cpu \(\d+ threads\), float32$/m)
  assert.match(out, /^PASS$/m)
})

test('an unknown flag and a changed setting are clear errors', async () => {
  const [flag, changed] = await Promise.all([
    roundtrip('train', '--model', model, '--num_generation', '4'),
    roundtrip(...train, '--maxSteps', '6', '--output', at('straight'), '--seed', '7'),
  ])
  for (const outcome of [flag, changed]) assert.equal(outcome.code, 1)
  assert.match(flag.err, /--num_generation: .*did you mean --num_generations\?/)
  assert.match(changed.err, /expected the settings the run was started with/)
})

/** Answers one chat request, then drops every connection. */
async function dyingJudge(): Promise<{ url: string; server: Server; asked: () => number }> {
  let asked = 0
  const server = createServer((request, response) => {
    asked++
    if (asked > 1) return void request.socket.destroy()
    const choices = [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: '7' } }]
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ id: 'x', object: 'chat.completion', created: 0, model: 'm', choices }))
  })
  await new Promise<void>((done) => void server.listen(0, '127.0.0.1', done))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, server, asked: () => asked }
}

test('a judge that goes away and a reward that throws stop the run with the reason, the checkpoint intact', async () => {
  const judge = await dyingJudge()
  try {
    const strict = ['--use_llm_judge', '--llm_judge_base_url', judge.url, '--rewards.preset', 'caption']
    const stop = [
      '--rewards.judge.onUnavailable',
      'stop',
      '--rewards.judge.retries',
      '0',
      '--rewards.judge.mode',
      'number',
    ]
    const cache = ['--rewards.judge.cacheDir', at('judge-cache'), '--evalRecords', '0', '--maxSteps', '2']
    const [gone, threw] = await Promise.all([
      roundtrip(...train, ...strict, ...stop, ...cache, '--output', at('judged')),
      roundtrip(...train, '--evalRecords', '0', '--reward', at('throws.mjs'), '--output', at('thrown')),
    ])
    assert.ok(judge.asked() > 1)
    for (const [outcome, code, reason, run] of [
      [gone, 69, /onUnavailable is stop/, 'judged'],
      [threw, 1, /reward mine: .*my reward broke/, 'thrown'],
    ] as const) {
      assert.equal(outcome.code, code)
      assert.match(outcome.err, reason)
      assert.match(outcome.err, new RegExp(`last good checkpoint: .*${run}.checkpoint_step_0`))
    }
  } finally {
    judge.server.close()
    judge.server.closeAllConnections()
  }
})
