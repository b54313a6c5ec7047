import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { afterEach, type TestContext, test } from 'node:test'
import { fields } from '../../../tests/support/protobuf.ts'
import { expectedRows, newFolder, train } from '../../../tests/support/tracked-run.ts'
import { readRun } from '../run-reader.ts'
import { RunWriter } from '../run-writer.ts'
import type { Delivery, Tracker, TrackerName } from './tracker.ts'
import { flatSettings, Trackers } from './trackers.ts'
import { LogBlocks, WandbTracker } from './wandb.ts'

const before = { ...process.env }
afterEach(() => {
  for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name]
})

// Separate readers, from the formats' descriptions.
function* chunksOf(file: Buffer): Generator<{ type: number; data: Buffer }> {
  assert.deepEqual([...file.subarray(0, 7)], [...Buffer.from(':W&B'), 0xe1, 0xbe, 0])
  for (let at = 7; at < file.length; ) {
    const room = 32_768 - (at % 32_768)
    if (room < 7) {
      assert.ok(file.subarray(at, at + room).every((byte) => byte === 0))
      at += room
      continue
    }
    const length = file.readUInt16LE(at + 4)
    const covered = file.subarray(at + 6, at + 7 + length)
    assert.equal(covered.length, length + 1)
    assert.ok(7 + length <= room)
    assert.equal(file.readUInt32LE(at), slowCrc(covered))
    yield { type: file[at + 6]!, data: file.subarray(at + 7, at + 7 + length) }
    at += 7 + length
  }
}

function slowCrc(bytes: Uint8Array): number {
  let c = 0xffffffffn
  for (const byte of bytes) {
    c ^= BigInt(byte)
    for (let i = 0; i < 8; i++) c = c & 1n ? (c >> 1n) ^ 0xedb88320n : c >> 1n
  }
  return Number(c ^ 0xffffffffn)
}

function recordsOf(file: Buffer): Buffer[] {
  const records: Buffer[] = []
  let open: Buffer[] | undefined
  for (const { type, data } of chunksOf(file)) {
    if (type === 1 || type === 2) {
      assert.equal(open, undefined)
      open = []
    }
    assert.ok(open && type >= 1 && type <= 4)
    open.push(data)
    if (type === 1 || type === 4) {
      records.push(Buffer.concat(open))
      open = undefined
    }
  }
  assert.equal(open, undefined)
  return records
}

const one = (bytes: Buffer, field: number) => fields(bytes).find(([f]) => f === field)?.[1]
const all = (bytes: Buffer, field: number) => fields(bytes).flatMap(([f, v]) => (f === field ? [v as Buffer] : []))

/** Python's JSON: NaN and the infinities are words. */
function pythonJson(text: string): unknown {
  const words: Record<string, number> = {
    NaN: Number.NaN,
    Infinity: Number.POSITIVE_INFINITY,
    '-Infinity': Number.NEGATIVE_INFINITY,
  }
  return text in words ? words[text] : JSON.parse(text)
}

const items = (bytes: Buffer) =>
  Object.fromEntries(all(bytes, 1).map((item) => [String(one(item, 1)), pythonJson(String(one(item, 16)))]))

test('the W&B file read record by record has every number of the run', async () => {
  const dir = newFolder()
  await train(dir, 300, ['wandb'])
  const folder = join(dir, 'wandb')
  const [offline] = readdirSync(folder).filter((name) => name.startsWith('offline-run-'))
  assert.match(offline!, /^offline-run-\d{8}_\d{6}-[0-9a-f]{8}$/)
  const id = offline!.split('-').at(-1)!
  const file = readFileSync(join(folder, offline!, `run-${id}.wandb`))
  assert.ok(file.length > 2 * 32_768, 'records cross blocks')
  const records = recordsOf(file)
  assert.deepEqual(
    records.map((record) => Number(one(record, 1))),
    records.map((_, i) => i + 1),
  )
  const kinds = records.map((record) => fields(record)[1]![0])
  assert.deepEqual([kinds[0], kinds[1], kinds.at(-2), kinds.at(-1)], [21, 17, 3, 18])
  const run = one(records[1]!, 17) as Buffer
  assert.deepEqual([String(one(run, 1)), String(one(run, 3))], [id, 'roundtrip'])
  assert.deepEqual(items(one(run, 4) as Buffer), {
    seed: 7,
    'rl.beta': 0.04,
    'rl.lossType': 'grpo',
    'rl.list': '[1,2]',
    'judge.on': true,
  })
  const rows = new Map<number, Record<string, unknown>>()
  for (const record of records.filter((_, i) => kinds[i] === 2)) {
    const row = one(record, 2) as Buffer
    const step = Number(one(one(row, 2) as Buffer, 1) ?? 0)
    const { _step, _timestamp, _runtime, ...values } = items(row)
    assert.equal(_step, step)
    assert.ok(Number(_timestamp) > 1.7e9 && Number(_runtime) >= 0)
    assert.equal(rows.has(step), false)
    rows.set(step, values)
  }
  assert.deepEqual(
    [...rows.keys()],
    Array.from({ length: 301 }, (_, i) => i),
  )
  for (const [step, expected] of expectedRows(dir)) {
    const numbers = Object.entries(rows.get(step)!).filter(([key]) => !key.startsWith('samples/'))
    assert.deepEqual(Object.fromEntries(numbers), expected, `step ${step}`)
  }
  const pictured = [...rows.values()].find((row) => 'samples/points/1' in row)
  const picture = pictured?.['samples/points/1'] as { path: string; sha256: string; size: number; width: number }
  const png = readFileSync(join(folder, offline!, 'files', picture.path))
  assert.deepEqual([png.length, picture.width, png.toString('latin1', 1, 4)], [picture.size, 256, 'PNG'])
  const files = records.flatMap((record, i) => (kinds[i] === 6 ? all(one(record, 6) as Buffer, 1) : []))
  assert.ok(files.some((item) => String(one(item, 1)) === picture.path))
  const summary = items(one(records.at(-2)!, 3) as Buffer)
  assert.equal(summary['points/reward_mean'], Math.sin(300))
  assert.equal(Number(one(one(records.at(-1)!, 18) as Buffer, 1) ?? 0), 0)
  assert.equal(file.includes('sk-hidden'), false)
})

test('records of every length around a block are read back as they were', () => {
  const path = join(newFolder(), 'x.wandb')
  const log = new LogBlocks(path)
  const lengths = [0, 1, 32_747, 32_741, 5, 32_754, 32_761, 32_762, 0, 100_000, 65_522, 3]
  const data = lengths.map((length, i) => Buffer.alloc(length, i + 1))
  for (const bytes of data) log.append(bytes)
  log.close()
  assert.deepEqual(recordsOf(readFileSync(path)), data)
})

test('a record whose first chunk is empty is one record', () => {
  const path = join(newFolder(), 'x.wandb')
  const log = new LogBlocks(path)
  const data = [Buffer.alloc(32_747, 1), Buffer.alloc(5, 2), Buffer.alloc(3, 3)] // room for a head alone after the first
  for (const bytes of data) log.append(bytes)
  log.close()
  assert.deepEqual(recordsOf(readFileSync(path)), data)
})

test('a resumed run is the same run at the other end', async () => {
  const dir = newFolder()
  await train(dir, 3, ['wandb'])
  const again = RunWriter.resume(dir, 3, undefined, { reportTo: ['wandb'] })
  again.step(4, { loss: 4 })
  await again.close()
  const names = readdirSync(join(dir, 'wandb')).filter((name) => name.startsWith('offline'))
  const ids = new Set(names.map((name) => name.split('-').at(-1)))
  assert.deepEqual([names.length, ids.size], [2, 1])
})

test('W&B: the folder of a later start has the last name, also after the clock was set back', () => {
  const dir = newFolder()
  const run = { dir, name: 'run', settings: {}, resumedAt: undefined }
  const times = ['2026-11-16T09:30:59.5Z', '2026-11-16T09:30:59.7Z', '1970-01-01T00:00:05Z'].map((time) =>
    Date.parse(time),
  )
  const names = times.map((now) => {
    const tracker = new WandbTracker(dir, run, now)
    tracker.close('done', now)
    return basename(dirname(tracker.path)).slice(0, 27)
  })
  assert.deepEqual(names, ['offline-run-20261116_093059', 'offline-run-20261116_093100', 'offline-run-20261116_093101'])
})

test('TensorBoard gets pictures, captions as text and settings as hparams', async () => {
  const dir = newFolder()
  await train(dir, 26, ['tensorboard'])
  const folder = join(dir, 'tensorboard')
  const bytes = readFileSync(join(folder, readdirSync(folder)[0]!))
  const values: { step: number; tag: string; fields: Buffer }[] = []
  for (let at = 0; at < bytes.length; ) {
    const length = Number(bytes.readBigUInt64LE(at))
    const event = bytes.subarray(at + 12, at + 12 + length)
    at += 16 + length
    const summary = one(event, 5) as Buffer | undefined
    for (const value of summary ? all(summary, 1) : [])
      values.push({ step: Number(one(event, 2) ?? 0), tag: String(one(value, 1)), fields: value })
  }
  const find = (tag: string, step: number, field: number) => {
    const found = values.find((v) => v.tag === tag && v.step === step && one(v.fields, field) !== undefined)
    assert.ok(found, `${tag} at ${step}`)
    return one(found.fields, field) as Buffer
  }
  const picture = find('samples/points/0', 25, 4)
  assert.deepEqual([one(picture, 1), one(picture, 2), one(picture, 3)], [256n, 256n, 3n])
  assert.equal((one(picture, 4) as Buffer).toString('latin1', 1, 4), 'PNG')
  const text = find('samples/points/1', 25, 8)
  assert.equal(one(text, 1), 7n)
  assert.match(String(one(text, 8)), /^ {4}step 25, points, record r\n {4}policy: <b>caption 1<\/b>\n {4}reward 0\.25/)
  const plugin = one(find('samples/points/1', 25, 9), 1) as Buffer
  assert.equal(String(one(plugin, 1)), 'text')
  const hparams = one(find('_hparams_/session_start_info', 0, 9), 1) as Buffer
  assert.equal(String(one(hparams, 1)), 'hparams')
  const start = one(one(hparams, 2) as Buffer, 3) as Buffer
  const settings = all(start, 1).map((pair) => [String(one(pair, 1)), fields(one(pair, 2) as Buffer)[0]] as const)
  const beta = settings.find(([key]) => key === 'rl.beta')?.[1]
  assert.deepEqual([beta![0], (beta![1] as Buffer).readDoubleLE()], [2, 0.04])
  assert.equal(
    settings.some(([key]) => key === 'judge.apiKey'),
    false,
  )
  const end = one(one(one(find('_hparams_/session_end_info', 0, 9), 1) as Buffer, 2) as Buffer, 4) as Buffer
  assert.equal(one(end, 1), 1n)
})

const python = 'python3'
const hasTensorboard = spawnSync(python, ['-c', 'import tensorboard']).status === 0
const needsTensorboard = hasTensorboard ? {} : { skip: 'no tensorboard for python3 here: pip install tensorboard' }
const readEverything = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0, 'images': 0, 'tensors': 0})
found.Reload()
tags = found.Tags()
scalars = {tag: [[s.step, repr(s.value)] for s in found.Scalars(tag)] for tag in tags['scalars']}
images = {tag: [[i.step, i.width, i.height] for i in found.Images(tag)] for tag in tags['images']}
texts = {tag: [[t.step, t.tensor_proto.string_val[0].decode()] for t in found.Tensors(tag)] for tag in tags['tensors'] if tag.startswith('samples')}
print(json.dumps({'scalars': scalars, 'images': images, 'texts': texts}))
`

test(
  "TensorBoard's own reader finds every number of events.jsonl, the pictures and the captions",
  needsTensorboard,
  async () => {
    const dir = newFolder()
    await train(dir, 26, ['tensorboard'])
    const read = spawnSync(python, ['-c', readEverything, join(dir, 'tensorboard')], { encoding: 'utf8' })
    assert.equal(read.status, 0, read.stderr)
    const { scalars, images, texts } = JSON.parse(read.stdout) as {
      scalars: Record<string, [number, string][]>
      images: Record<string, [number, number, number][]>
      texts: Record<string, [number, string][]>
    }
    let compared = 0
    for (const event of readRun(dir).events) {
      if (event.t !== 'step') continue
      for (const [name, value] of Object.entries(event.metrics)) {
        const found = scalars[name]!.find(([step]) => step === event.step)![1]
        const number = found === 'nan' ? Number.NaN : found === '-inf' ? Number.NEGATIVE_INFINITY : Number(found)
        assert.ok(Object.is(number, Math.fround(value)), `${name} of step ${event.step}: ${found}, ${value}`)
        compared++
      }
    }
    assert.equal(compared, 26 * 3)
    assert.deepEqual(images['samples/points/0'], [
      [1, 256, 256],
      [25, 256, 256],
    ])
    assert.match(texts['samples/points/1']!.at(-1)![1], /policy: <b>caption 1<\/b>/)
  },
)

test('trackio finds whole fragments whose lines are the events', async () => {
  const dir = newFolder()
  process.env.TRACKIO_DIR = join(dir, 'trackio')
  await train(join(dir, 'run'), 120, ['trackio'])
  const inbox = join(dir, 'trackio', 'inbox')
  const [writer] = readdirSync(inbox)
  assert.match(writer!, /^[0-9a-f]{16}$/)
  const names = readdirSync(join(inbox, writer!)).sort()
  assert.ok(names.length >= 2)
  assert.deepEqual(
    names,
    names.map((_, i) => `${String(i).padStart(8, '0')}.jsonl`),
  )
  const lines = names.flatMap((name) =>
    readFileSync(join(inbox, writer!, name), 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line)),
  )
  const steps = lines.filter((line) => /-step-/.test(line.log_id))
  const events = readRun(join(dir, 'run')).events.filter((e) => e.t === 'step')
  assert.equal(steps.length, events.length)
  steps.forEach((line, i) => {
    assert.deepEqual(
      [line.v, line.kind, line.project, line.run, line.step],
      [1, 'metric', 'roundtrip', 'run', events[i]!.step],
    )
    const { loss } = line.metrics as { loss: unknown }
    const event = events[i]!
    assert.equal(String(loss), String(event.t === 'step' && event.metrics.loss))
  })
  assert.equal(new Set(lines.map((line) => line.log_id)).size, lines.length)
  assert.equal(lines[0].config.seed, 7)
})

test('trackers that fail in every way become warnings, and the run has all its lines', async () => {
  const dir = newFolder()
  writeFileSync(join(dir, 'tensorboard'), 'a file where a folder should be')
  mkdirSync(join(dir, 'wandb'))
  process.env.TRACKIO_DIR = join(dir, 'tensorboard', 'below-a-file')
  process.env.MLFLOW_TRACKING_URI = 'ftp://user:password@example.invalid'
  await train(dir, 4, ['tensorboard', 'trackio', 'mlflow', 'wandb'])
  const { events } = readRun(dir)
  const notices = events.flatMap((e) => (e.t === 'warning' ? [e.text.split(':')[0]] : []))
  assert.deepEqual(notices, ['tensorboard', 'trackio', 'mlflow'])
  assert.equal(events.filter((e) => e.t === 'step').length, 4)
  assert.equal(JSON.stringify(events).includes('password'), false)
  assert.equal(readdirSync(join(dir, 'wandb')).length, 2)
})

/** What a tracker that fails on schedule gets and costs, with a step every `minutes`; `seconds` that it may fail, if it was asked for. */
async function failing(
  fail: (step: number) => Delivery,
  { minutes, steps, seconds = 0 }: { minutes: number; steps: number; seconds?: number },
  t: TestContext,
) {
  const notices: string[] = []
  const asked: Record<string, number[]> = { wandb: [], trackio: [] }
  const away: (string | null)[] = []
  let now = 1000
  const clock = t.mock.method(performance, 'now', () => now)
  const open = (name: TrackerName): Tracker => ({
    step: (step) => {
      asked[name]!.push(step)
      if (name === 'wandb') return fail(step)
    },
    close: () => {},
  })
  const folders = { images: '', tensorboard: '', wandb: '' }
  const notice = (_: string, text: string) => notices.push(text)
  const wanted = { names: ['wandb' as const], seconds }
  const trackers = new Trackers(['wandb', 'trackio'], { dir: '.', config: {}, folders, notice, open, asked: wanted })
  for (let step = 1; step <= steps; step++) {
    trackers.step(step, { loss: 1 })
    await new Promise((done) => setImmediate(done))
    away.push(trackers.away && `${trackers.away.name} ${trackers.away.seconds} ${trackers.away.reason}`)
    now += minutes * 60_000
  }
  await trackers.close('done')
  clock.mock.restore()
  assert.equal(asked.trackio!.length, steps)
  return { notices, asked: asked.wandb!.length, away }
}

const never = (steps: number) => Array<null>(steps).fill(null)

test('a tracker that fails at every step, at once or later, is reported once and dropped after ten minutes', async (t) => {
  for (const fail of [() => assert.fail('no'), () => Promise.reject(new Error('no'))]) {
    assert.deepEqual(await failing(fail, { minutes: 1, steps: 15 }, t), {
      notices: ['wandb: no', 'wandb: failed 11 times in 10 minutes and is left alone now'],
      asked: 11,
      away: never(15),
    })
  }
})

test('a tracker that fails for some minutes causes a warning each time', async (t) => {
  const fail = (step: number) => (step < 9 || step > 40 ? Promise.reject(new Error('no')) : undefined)
  const notices = ['wandb: no', 'wandb: no']
  assert.deepEqual(await failing(fail, { minutes: 1, steps: 48 }, t), { notices, asked: 48, away: never(48) })
})

test('a tracker that works now and then is never dropped, and causes one warning', async (t) => {
  const fail = (step: number) => (step % 5 > 0 ? Promise.reject(new Error('no')) : undefined)
  const calm = { notices: ['wandb: no'], asked: 90, away: never(90) }
  assert.deepEqual(await failing(fail, { minutes: 1, steps: 90 }, t), calm)
  assert.deepEqual(await failing(fail, { minutes: 1, steps: 90, seconds: 1800 }, t), calm)
})

test('a required tracker counts as unreachable after its time limit, until it answers; waiting metrics are not an answer', async (t) => {
  const asPlanned = (plan: string) => (step: number) =>
    plan[step - 1] === 'f' ? Promise.reject(new Error('no')) : plan[step - 1] === 'w' ? ('waits' as const) : undefined
  const limits = { minutes: 5, steps: 14, seconds: 1800 }
  const longer = await failing(asPlanned('fwfwfwfwfwfw..'), limits, t)
  assert.deepEqual(longer.notices, ['wandb: no'])
  assert.deepEqual(longer.away, [...never(8), ...Array(4).fill('wandb 2400 no'), null, null])
  const answered = await failing(asPlanned('fwfwfwf.fwfwfw'), limits, t)
  assert.deepEqual(answered.away, never(14), 'an answer in between begins the time anew')
})

test('a tracker whose end takes too long is reported, one that ends is not', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const notices: string[] = []
  const open = (name: TrackerName): Tracker => ({
    step: () => {},
    close: () => (name === 'mlflow' ? new Promise<void>(() => {}) : undefined),
  })
  const folders = { images: '', tensorboard: '', wandb: '' }
  const notice = (_: string, text: string) => notices.push(text)
  const trackers = new Trackers(['mlflow', 'trackio'], { dir: '.', config: {}, folders, notice, open })
  const closed = trackers.close('done')
  await new Promise((done) => setImmediate(done))
  t.mock.timers.tick(15_000)
  await closed
  assert.deepEqual(notices, ['mlflow: at the end: not done within 15000 ms'])
})

test('a tracker that cannot be closed reports what is lost', async () => {
  const notices: string[] = []
  const open = (): Tracker => ({
    step: () => assert.fail('away'),
    close: () => Promise.reject(new Error('still away')),
  })
  const folders = { images: '', tensorboard: '', wandb: '' }
  const notice = (_: string, text: string) => notices.push(text)
  const trackers = new Trackers(['mlflow'], { dir: '.', config: {}, folders, notice, open })
  trackers.step(1, { loss: 1 })
  await trackers.close('done')
  assert.deepEqual(notices, ['mlflow: away', 'mlflow: at the end: still away'])
})

test('settings are named in full, without secrets', () => {
  assert.deepEqual(flatSettings({ a: { b: 1, apiKey: 'x', c: null }, token: 'y', d: [1] }), {
    'a.b': 1,
    'a.c': 'null',
    d: '[1]',
  })
})

test('W&B: an id of the run folder that is not an id is replaced, and every file stays in the run folder', () => {
  const outer = newFolder()
  for (const [i, id] of [
    '../../../../escaped',
    '/tmp/x',
    '..',
    '',
    'a/b',
    'a\0b',
    'a\nb',
    'x'.repeat(65),
    'ä',
  ].entries()) {
    const dir = join(outer, `${i}`, 'run')
    mkdirSync(join(dir, 'wandb'), { recursive: true })
    writeFileSync(join(dir, 'wandb', 'id'), `${id}\n`)
    const tracker = new WandbTracker(join(dir, 'wandb'), { dir, name: 'n', settings: {}, resumedAt: 1 }, Date.now())
    tracker.close('done', Date.now())
    assert.match(
      tracker.path.slice(join(dir, 'wandb').length),
      /^\/offline-run-[\d_]+-([0-9a-f]{8})\/run-\1\.wandb$/,
      id,
    )
    assert.deepEqual([readdirSync(join(outer, `${i}`)), readdirSync(dir)], [['run'], ['wandb']], id)
  }
})

test('W&B: a stored id is used again', () => {
  const dir = newFolder()
  mkdirSync(join(dir, 'wandb'))
  writeFileSync(join(dir, 'wandb', 'id'), 'my-Run_7\n')
  const tracker = new WandbTracker(join(dir, 'wandb'), { dir, name: 'n', settings: {}, resumedAt: 1 }, Date.now())
  tracker.close('done', Date.now())
  assert.match(tracker.path, /-my-Run_7\/run-my-Run_7\.wandb$/)
})
