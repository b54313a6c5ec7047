import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  appendFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import type { Sample } from './events.ts'
import { JsonLines, readLines } from './json-lines.ts'
import { readRun } from './run-reader.ts'
import { imageName, type RunPosition, RunWriter } from './run-writer.ts'

const newFolder = () => mkdtempSync(join(tmpdir(), 'run-'))
const newRun = { config: { seed: 1 }, environment: { device: 'cpu' } }
const here = fileURLToPath(new URL('.', import.meta.url))

function sample(step: number, k: number, text = `caption ${step}.${k} é`): Sample {
  const masks = { given: { size: [3, 4] as const, counts: '146M' }, made: null }
  const scores = { rewards: { iou: k / 4, judge: null }, total: k / 4, advantage: k - 1.5, logp: -3.5, length: 7 }
  return { step, loop: 'loop1', id: `r${step}`, k, text, ...masks, ...scores }
}

/** What a trainer does at each step, with a checkpoint's position every two steps. */
function train(writer: RunWriter, from: number, to: number): Map<number, RunPosition> {
  const positions = new Map<number, RunPosition>()
  for (let step = from; step <= to; step++) {
    writer.samples([0, 1, 2, 3].map((k) => sample(step, k)))
    writer.step(step, { total_loss: 1 / step, 'loop1/kl': step === 3 ? Number.NaN : 0.5 }, { step_time: Math.random() })
    if (step % 3 === 0) writer.warning(step, 'unscored', 'judge did not answer')
    if (step % 2 !== 0) continue
    writer.checkpoint(step, `checkpoint_step_${step}`)
    positions.set(step, writer.position())
    writer.eval(step, `step ${step}`, 10, { 'mask/giou': { mean: 0.5, low: 0.4, high: 0.6 } })
  }
  return positions
}

const bytesOf = (dir: string) => ['events.jsonl', 'samples.jsonl'].map((name) => readFileSync(join(dir, name), 'utf8'))

test('a run that is read back is what was written, NaN included', () => {
  const dir = newFolder()
  const writer = RunWriter.create(dir, newRun)
  writer.start({ records: 12 })
  train(writer, 1, 4)
  writer.stop(4, 'finished')
  writer.close()
  const run = readRun(dir)
  assert.deepEqual(run.problems, [])
  assert.deepEqual(run.config, { seed: 1 })
  assert.deepEqual(
    run.events.map((e) => `${e.t} ${e.step}`),
    'start 0,step 1,step 2,checkpoint 2,eval 2,step 3,warning 3,step 4,checkpoint 4,eval 4,stop 4'.split(','),
  )
  const third = run.events.find((e) => e.t === 'step' && e.step === 3)
  assert.ok(third?.t === 'step' && Number.isNaN(third.metrics['loop1/kl']))
  const samples = [...run.samples()]
  assert.equal(samples.length, 16)
  assert.deepEqual(
    { ...samples[5], shown: undefined },
    { ...sample(2, 1), shown: undefined, truncated: false, image: undefined },
  )
  assert.equal(run.timing.filter((line) => line.t === 'step').length, 4)
})

test('a folder that holds a run is not overwritten, and one without cannot be resumed', () => {
  const dir = newFolder()
  RunWriter.create(dir, newRun).close()
  assert.throws(() => RunWriter.create(dir, newRun), /expected a folder without a run/)
  assert.throws(() => RunWriter.resume(newFolder(), 0, undefined, {}), /expected a run folder/)
})

test('a run cut at any byte and resumed from its checkpoint has the bytes of an uninterrupted one', () => {
  const whole = newFolder()
  const first = RunWriter.create(whole, newRun)
  const positions = train(first, 1, 6)
  first.stop(6, 'finished')
  first.close()
  const [events, samples] = bytesOf(whole) as [string, string]
  const at = positions.get(4)
  assert.ok(at)
  const eventBytes = Buffer.from(events)
  const sampleBytes = Buffer.from(samples)
  for (const share of [0, 0.1, 0.37, 0.5, 0.9, 1]) {
    const dir = newFolder()
    const cut = (bytes: Buffer, from: number) => bytes.subarray(0, Math.floor(from + share * (bytes.length - from)))
    writeFileSync(join(dir, 'events.jsonl'), cut(eventBytes, at.events))
    writeFileSync(join(dir, 'samples.jsonl'), cut(sampleBytes, at.samples))
    const writer = RunWriter.resume(dir, 4, at, {})
    writer.eval(4, 'step 4', 10, { 'mask/giou': { mean: 0.5, low: 0.4, high: 0.6 } })
    train(writer, 5, 6)
    writer.stop(6, 'finished')
    writer.close()
    assert.deepEqual(bytesOf(dir), [events, samples], `cut at ${share}`)
  }
})

test('truncateAfter keeps everything up to the step and drops the stop note', () => {
  const [long, short] = [newFolder(), newFolder()]
  const a = RunWriter.create(long, newRun)
  train(a, 1, 6)
  a.stop(6, 'interrupted')
  a.truncateAfter(4)
  a.close()
  const b = RunWriter.create(short, newRun)
  train(b, 1, 4)
  b.stop(4, 'interrupted')
  b.close()
  const resumed = RunWriter.resume(short, 4, undefined, {})
  resumed.close()
  assert.deepEqual(bytesOf(long), bytesOf(short))
})

test('a position after the end of the file is refused with a clear message', () => {
  const dir = newFolder()
  const writer = RunWriter.create(dir, newRun)
  train(writer, 1, 2)
  assert.throws(() => writer.truncateTo({ events: 1e6, samples: 0 }), /expected a line that ends at byte 1000000/)
  assert.throws(() => writer.truncateTo({ events: 5, samples: 0 }), /expected a line that ends at byte 5/)
  writer.close()
})

test('torn tails of every kind are cut off on opening and whole lines stay', () => {
  const lines = '{"a":1}\n{"b":"é"}\n'
  const tails = ['', '{"c":', '{"c":1}', '\0\0\0\0', '{"c"\n', '\0\0\n', `{"long":"${'x'.repeat(200_000)}`]
  for (const tail of tails) {
    const path = join(newFolder(), 'x.jsonl')
    writeFileSync(path, lines + tail)
    const file = new JsonLines(path)
    assert.equal(file.dropped, Buffer.byteLength(tail))
    file.append({ d: 4 })
    file.close()
    assert.equal(readFileSync(path, 'utf8'), `${lines}{"d":4}\n`)
  }
})

test('lines longer than the reading piece are read whole', () => {
  const path = join(newFolder(), 'x.jsonl')
  const file = new JsonLines(path)
  const values = [70_000, 3, 65_536, 200_000, 65_527].map((n) => ({ text: 'ä'.repeat(n) }))
  file.append(...values)
  file.close()
  const read = [...readLines(path)]
  assert.deepEqual(
    read.map((line) => line.value),
    values,
  )
  assert.equal(read.at(-1)?.end, statSync(path).size)
})

test('readers count what they cannot read instead of failing', () => {
  const dir = newFolder()
  const writer = RunWriter.create(dir, newRun)
  train(writer, 1, 2)
  writer.close()
  const path = join(dir, 'events.jsonl')
  appendFileSync(path, 'garbage\n[1]\n{"t":"step"}\n{"t":"step","step":3,"metrics":{"a":1}}\n{"t":"st')
  truncateSync(join(dir, 'samples.jsonl'), 900)
  writeFileSync(join(dir, 'config.json'), '{')
  const run = readRun(dir)
  assert.equal(run.events.at(-1)?.step, 3)
  assert.ok([...run.samples()].length > 1)
  assert.deepEqual(run.problems, [
    'config.json is missing or no JSON',
    'events.jsonl: the last line is torn',
    'events.jsonl: 3 lines could not be read',
    'samples.jsonl: the last line is torn',
  ])
})

test('a full disk gives a clear message', () => {
  const file = new JsonLines('/dev/full')
  assert.throws(
    () => file.append({ a: 1 }),
    /\/dev\/full: expected room for 8 more bytes, got the disk is full \(ENOSPC\)/,
  )
  file.close()
})

test('a write that fits only in part is taken back, so that the file ends with a whole line', () => {
  const path = join(newFolder(), 'x.jsonl')
  const script = `
    import { JsonLines } from './json-lines.ts'
    const file = new JsonLines(process.env.TARGET)
    let written = 0
    try { for (; written < 100; written++) file.append({ text: 'x'.repeat(700) }) }
    catch (error) { console.log(written, error.message) }`
  const node = `'${process.execPath}' --import tsx --input-type=module -e "$SCRIPT"`
  // One block of 1024 bytes for files written by the child: the second line fits in part.
  const limited = spawnSync('bash', ['-c', `ulimit -f 1; exec ${node}`], {
    cwd: here,
    env: { ...process.env, SCRIPT: script, TARGET: path, TSX_DISABLE_CACHE: '1' },
    encoding: 'utf8',
  })
  assert.match(limited.stdout, /^1 .*room for 712 more bytes, got the file size limit is reached \(EFBIG\)/)
  assert.equal(statSync(path).size, 712)
})

test('a process killed with SIGKILL while it writes leaves a folder that opens again', async () => {
  const dir = newFolder()
  const script = `
    import { RunWriter } from './run-writer.ts'
    const writer = RunWriter.create(process.env.TARGET, { config: {}, environment: {} })
    for (let step = 1; ; step++) {
      writer.step(step, { loss: step })
      if (step === 200) console.log('far enough')
    }`
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
    cwd: here,
    env: { ...process.env, TARGET: dir },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(child.stdout, 'data')
  child.kill('SIGKILL')
  await once(child, 'close')
  const writer = RunWriter.resume(dir, 150, undefined, {})
  writer.step(151, { loss: 151 })
  writer.close()
  const run = readRun(dir)
  assert.deepEqual(run.problems, [])
  assert.deepEqual(
    run.events.map((e) => e.step),
    Array.from({ length: 151 }, (_, i) => i + 1),
  )
})

test('an image is kept once under a name that cannot leave the folder', () => {
  const dir = newFolder()
  const writer = RunWriter.create(dir, newRun)
  const png = Uint8Array.of(0x89, 0x50, 0x4e, 0x47)
  const name = imageName('../../etc/passwd')
  assert.match(name, /^_etc_passwd-[0-9a-f]{8}\.png$/)
  writer.image('../../etc/passwd', png)
  writer.image('../../etc/passwd', Uint8Array.of(1))
  assert.deepEqual(new Uint8Array(readFileSync(join(dir, 'images', name))), png)
  writeFileSync(join(dir, 'images', name), '') // what a power failure may leave
  writer.image('../../etc/passwd', png)
  assert.deepEqual(new Uint8Array(readFileSync(join(dir, 'images', name))), png)
  writer.close()
})

test('a resumed run writes no pictures or tracker files through a link that leads out of its folder', () => {
  for (const name of ['images', 'tensorboard', 'wandb']) {
    const [dir, elsewhere] = [newFolder(), newFolder()]
    RunWriter.create(dir, newRun).close()
    rmSync(join(dir, name), { recursive: true, force: true })
    symlinkSync(elsewhere, join(dir, name))
    const message = new RegExp(`${name}: expected a part of this folder, got a link`)
    assert.throws(() => RunWriter.resume(dir, 0, undefined, {}), message)
  }
})
