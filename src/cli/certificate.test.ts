// The comparison with Python. A program stands for Python that answers what transformers, PEFT and TRL computed from a golden folder;
// the last test uses a real one if there is any.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, type TestContext, test } from 'node:test'
import { setTimeout as wait } from 'node:timers/promises'
import { readAll, writeSafetensors } from '../checkpoint/index.ts'
import { compareWithPython, missingInPython, readReference } from '../verify/index.ts'
import { type CertificateOptions, certificatePage, certify } from './certificate.ts'
import { command } from './verify.ts'

const root = join(import.meta.dirname, '../..')
const golden = join(root, 'tests/fixtures/golden')
const stored = join(root, 'tests/fixtures/python-reference')
const all = { torch: '2.13.0', transformers: '5.18.0', peft: '0.21.0', trl: '1.13.0' }

/** Its own, so that what other tests leave is not seen. */
const temporary = mkdtempSync(join(tmpdir(), 'certificate-'))
process.env.TMPDIR = temporary
after(() => rmSync(temporary, { recursive: true, force: true, maxRetries: 5 }))

function folder(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'certificate-'))
  t.after(() => rmSync(dir, { recursive: true, force: true, maxRetries: 5 }))
  return dir
}

/** A program in the place of Python: answers `probe` with versions, and a folder by running `work`, code that has `folder`. */
function python(t: TestContext, versions: object, work: string): string {
  const path = join(folder(t), 'python')
  writeFileSync(
    path,
    `#!${process.execPath}
const { cpSync, readFileSync, writeFileSync } = require('node:fs')
const [isolated, noCache, script, folder] = process.argv.slice(2)
const seen = { isolated, noCache, script, folder, env: process.env, cwd: process.cwd() }
if (folder === 'probe') console.log(${JSON.stringify(JSON.stringify(versions))})
else {
  writeFileSync(${JSON.stringify(`${path}.seen`)}, JSON.stringify({ ...seen, request: readFileSync(folder + '/request.json', 'utf8') }))
  ${work}
}
`,
    { mode: 0o755 },
  )
  return path
}

const answer = `cpSync(${JSON.stringify(stored)}, folder, { recursive: true }); console.log('{"class":"Qwen2ForCausalLM"}')`
const seenBy = (path: string) => JSON.parse(readFileSync(`${path}.seen`, 'utf8')) as Record<string, unknown>
const options = (python: string, more: Partial<CertificateOptions> = {}): CertificateOptions => {
  return { model: join(golden, 'sa2va-tiny'), device: 'cpu', kernels: 'auto', python, ...more }
}
const leftovers = () => readdirSync(tmpdir()).filter((name) => name.startsWith('roundtrip-verify-'))

/** A copy of a golden folder in which one weight is changed. */
function changed(t: TestContext, set: string, weight: RegExp, file = 'model.safetensors'): string {
  const dir = join(folder(t), 'copy')
  cpSync(join(golden, set), dir, { recursive: true })
  const tensors = readAll(join(dir, file))
  const name = [...tensors.keys()].find((each) => weight.test(each))!
  const { data } = tensors.get(name)!
  new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4)[5]! += 0.5
  writeSafetensors(
    join(dir, file),
    Array.from(tensors, ([each, entry]) => ({ name: each, ...entry })),
  )
  return dir
}

test('a folder passes against what Python computed from it, and Python runs isolated, offline and without secrets', async (t) => {
  process.env.HF_TOKEN = 'hf_secret'
  process.env.PYTHONPATH = '/nowhere'
  t.after(() => {
    delete process.env.HF_TOKEN
    delete process.env.PYTHONPATH
  })
  const before = leftovers()
  const path = python(t, all, answer)
  const certificate = await certify(options(path))
  assert.deepEqual(
    certificate.rows.map((row) => [row.name, row.pass]),
    [
      ['hidden states (5 parts)', true],
      ['logits', true],
      ['log-probabilities', true],
      ['loss', true],
      ['gradient of the adapters (42 tensors)', true],
      ['generated ids (16)', true],
      ['GRPO loss (TRL)', true],
      ['GRPO gradient (TRL) (42 tensors)', true],
    ],
  )
  assert.ok(
    certificate.rows.every((row) => row.difference === 0 || row.difference > 1e-9),
    'two programs, not one',
  )
  assert.deepEqual(
    [certificate.pass, certificate.firstDifference, certificate.python],
    [true, undefined, { ...all, class: 'Qwen2ForCausalLM' }],
  )
  assert.deepEqual(certificate.notCompared, ['vision_model', 'mlp1', 'text_hidden_fcs', 'grounding_encoder (SAM2)'])
  const { isolated, script, env, cwd, folder: given, request } = seenBy(path)
  assert.equal(isolated, '-I')
  assert.ok(existsSync(String(script)), 'the script is a file of the package')
  const { HF_HUB_OFFLINE, HF_HOME, HF_TOKEN, PYTHONPATH } = env as Record<string, string>
  assert.deepEqual([HF_HUB_OFFLINE, HF_HOME, cwd, HF_TOKEN, PYTHONPATH], ['1', given, given, undefined, undefined])
  assert.equal((JSON.parse(String(request)) as { trustRemoteCode: boolean }).trustRemoteCode, false)
  assert.deepEqual(leftovers(), before)
})

test('one changed weight fails, and the first layer that differs is named', async (t) => {
  const model = changed(t, 'sa2va-tiny', /layers\.1\.mlp\.up_proj\.weight/)
  const certificate = await certify(options(python(t, all, answer), { model, reference: join(golden, 'sa2va-tiny') }))
  assert.deepEqual([certificate.pass, certificate.firstDifference], [false, 'layers.1'])
  const page = certificatePage(certificate)
  assert.match(page, /first difference: layers\.1\nFAIL: 8 quantities, [1-8] outside their tolerance$/)
  assert.match(page, /logits +\d\.\d+e[-+]\d +\d\.\d+e-\d +\d\.\d+e-\d +float32 +float32, float64 +FAIL/)
})

test('what Python does not contain is named with its reason', () => {
  const missing = (set: string, family: string, versions: object) =>
    missingInPython(join(golden, set), family, { ...all, ...versions }, false)
  assert.deepEqual(missing('qwen3_vl-tiny', 'qwen3_vl', { peft: null, trl: null }), {
    parts: ['image preprocessing'],
    adapter: 'gradient of the adapters: PEFT is not installed',
    grpo: 'one GRPO step: TRL is not installed',
  })
  assert.equal(
    missing('qwen3_vl-tiny', 'qwen3_vl', { trl: '0.24.0' }).grpo,
    'one GRPO step: TRL 0.24.0 is older than 1.0',
  )
  assert.deepEqual(missing('sa2va-tiny', 'sa2va-internvl', {}), {
    parts: ['vision_model', 'mlp1', 'text_hidden_fcs', 'grounding_encoder (SAM2)'],
  })
})

const reference = readReference(join(stored, 'python.safetensors'))

/** Our side equal to Python's float32, with some values replaced. */
function comparison(edit: (own: Record<string, Float64Array>) => void) {
  const prefix = 'float32/'
  const own: Record<string, Float64Array> = { generated: reference.get('generated')!.slice() }
  for (const [name, values] of reference) if (name.startsWith(prefix)) own[name.slice(prefix.length)] = values.slice()
  edit(own)
  const { rows, firstDifference } = compareWithPython(own, reference)
  return { failed: rows.filter((row) => !row.pass), rows, firstDifference }
}

test('the tolerance follows the error of Python itself: equal passes, ten times its error fails, NaN and a missing number fail', () => {
  assert.deepEqual(comparison(() => {}).failed, [])
  const logits = comparison(() => {}).rows.find((row) => row.name === 'logits')!
  assert.equal(logits.difference, logits.pythonError)
  const exact = reference.get('float64/logits')!
  const off = comparison((own) => {
    own.logits![7] = exact[7]! + 10 * logits.pythonError
  })
  assert.deepEqual([off.failed.map((row) => row.name), off.firstDifference], [['logits'], 'lm_head'])
  const nan = comparison((own) => {
    own['states.layers.0']![3] = Number.NaN
  })
  assert.deepEqual([nan.failed.map((row) => row.name), nan.firstDifference], [['hidden states (5 parts)'], 'layers.0'])
  const short = comparison((own) => {
    own.logps = own.logps!.subarray(1)
  })
  assert.match(short.failed[0]!.detail!, /11 numbers here, 12 in Python/)
})

test('without adapters the rest is compared and passes', () => {
  const { rows, failed } = comparison((own) => {
    for (const name of Object.keys(own)) if (/^(grpo\.)?grad\.|^grpo/.test(name)) delete own[name]
  })
  assert.deepEqual([rows.length, failed], [5, []])
})

test('one gradient of another sign fails by its name, and an id fails unless rounding may decide it', () => {
  const name = 'grad.base_model.model.model.layers.2.mlp.down_proj.lora_A.weight'
  const gradient = comparison((own) => {
    own[name] = own[name]!.map((v) => -v)
  })
  assert.deepEqual(
    gradient.failed.map((row) => row.detail),
    [name.slice('grad.'.length)],
  )
  const id = comparison((own) => {
    own.generated![4]! += 1
  })
  assert.match(id.failed[0]!.detail!, /^id 4: /)
  const tied = new Map(reference).set(
    'margins',
    reference.get('margins')!.map((m, i) => (i === 4 ? 1e-6 : m)),
  )
  const own = Object.fromEntries([...reference].map(([key, values]) => [key.replace('float32/', ''), values]))
  const generated = own.generated!.map((v, i) => (i < 4 ? v : v + 1))
  const rows = compareWithPython({ ...own, generated }, tied).rows
  assert.deepEqual(
    rows.filter((row) => row.name.startsWith('generated')).map((row) => [row.name, row.pass]),
    [['generated ids (4)', true]],
  )
})

test('a Python that cannot compute it is a clear message without a stack trace, and leaves nothing', async (t) => {
  const before = leftovers()
  const fails = async (path: string, message: RegExp, more: Partial<CertificateOptions> = {}) => {
    const error = await certify(options(path, more)).then(
      () => assert.fail('no error'),
      (reason: Error) => reason,
    )
    assert.match(error.message, message)
    assert.doesNotMatch(error.message, /Traceback|File "/)
  }
  await fails('/nowhere/python', /\/nowhere\/python: expected a Python .*, got no program.*ROUNDTRIP_PYTHON/)
  await fails(
    python(t, { ...all, torch: null, transformers: null }, ''),
    /got no torch, no transformers\. .*pip install/,
  )
  await fails(python(t, { ...all, transformers: '4.40.2' }, ''), /expected transformers 4\.57 or newer, got 4\.40\.2/)
  await fails('/bin/echo', /expected a Python 3, got a program that prints -I/)
  const crash = 'console.error("Traceback:\\n  File \\"x.py\\"\\nRuntimeError: no kernel"); process.exit(3)'
  await fails(python(t, all, crash), /got RuntimeError: no kernel$/)
  await fails(python(t, all, 'process.kill(process.pid, "SIGKILL")'), /got an end by SIGKILL\. .*--layers/)
  await fails(python(t, all, answer), /config\.json/, { model: stored })
  assert.deepEqual(leftovers(), before)
})

test('flags that belong to the other use of verify are errors', async () => {
  const run = (...words: string[]) => command().parseAsync(['node', 'roundtrip', ...words])
  await assert.rejects(run('--model', 'x'), /--model: expected --against python with it/)
  await assert.rejects(run('--against', 'python', 'x', '--model', 'y'), /paths: expected none with --against python/)
  await assert.rejects(run('--against', 'python'), /--model: expected a model folder/)
  await assert.rejects(run(), /paths: expected golden files or folders, got nothing/)
})

test('Ctrl-C ends Python and removes the temporary folder', async (t) => {
  const path = python(t, all, 'setInterval(() => {}, 1000)')
  const temporary = join(folder(t), 'tmp')
  mkdirSync(temporary)
  const words = ['bin/roundtrip.mjs', 'verify', '--against', 'python', '--model', join(golden, 'sa2va-tiny')]
  const child = spawn(process.execPath, [...words, '--python', path], {
    cwd: root,
    env: { ...process.env, TMPDIR: temporary },
    stdio: 'ignore',
  })
  const ended = new Promise<number | null>((done) => child.once('close', done))
  while (!existsSync(`${path}.seen`) && child.exitCode === null) await wait(50)
  child.kill('SIGINT')
  assert.equal(await ended, 130)
  assert.deepEqual(
    readdirSync(temporary).filter((name) => name.startsWith('roundtrip-')),
    [],
  )
})

const real = process.env.ROUNDTRIP_PYTHON ?? 'python3'
const importable = spawnSync(real, [
  '-I',
  '-c',
  'import importlib.util as u; assert u.find_spec("transformers") and u.find_spec("torch")',
])
const skip = importable.status === 0 ? false : 'no Python with transformers: set ROUNDTRIP_PYTHON'

for (const [set, weight, name] of [
  ['lora-tiny', /layers\.2\.self_attn\.v_proj\.weight/, 'layers.2'],
  ['sa2va-tiny', /language_model\..*layers\.0\.mlp\.down_proj\.weight/, 'layers.0'],
  ['qwen2_5_vl-tiny', /visual\.blocks\.2\.mlp\.up_proj\.weight/, 'visual.blocks.2'],
  ['qwen3_vl-tiny', /layers\.1\.self_attn\.q_norm\.weight/, 'layers.1'],
  ['sa2va-qwen2_5_vl-tiny', /layers\.1\.mlp\.gate_proj\.weight/, 'layers.1'],
  ['sa2va-qwen3vl-tiny', /deepstack_merger_list\.1\.linear_fc2\.weight/, 'visual.deepstack_merger_list.1'],
] as const)
  test(`${set} passes against a real Python, and a changed weight is named`, { skip }, async (t) => {
    const dir = join(golden, set)
    const whole = await certify(options(real, { model: dir }))
    assert.deepEqual([whole.pass, whole.rows.length], [true, set === 'lora-tiny' ? 7 : 8])
    const file = set === 'lora-tiny' ? 'base.safetensors' : 'model.safetensors'
    const other = await certify(options(real, { model: changed(t, set, weight, file), reference: dir }))
    assert.deepEqual([other.pass, other.firstDifference], [false, name])
  })
