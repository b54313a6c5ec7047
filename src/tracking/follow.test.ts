import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import fc from 'fast-check'
import type { Sample } from './events.ts'
import { FollowedRun } from './follow.ts'
import { encodeLine } from './json-lines.ts'
import { MetricTable } from './metric-table.ts'
import { toSample } from './parse.ts'
import { readRun } from './run-reader.ts'
import { type RunPosition, RunWriter } from './run-writer.ts'
import { readEntry, SampleIndex } from './sample-index.ts'
import { type SampleOrder, sampleOrders, selectSamples } from './sample-query.ts'

const newFolder = () => mkdtempSync(join(tmpdir(), 'follow-'))
const newRun = { config: { seed: 1 }, environment: { device: 'cpu' } }

function sample(step: number, k: number, more: Partial<Sample> = {}): Sample {
  const shown = [{ kind: 'text' as const, by: 'policy' as const, text: `caption ${step}.${k} é` }]
  const scores = { rewards: { iou: k / 4, judge: null }, total: k / 4, advantage: k - 1.5, logp: -3.5, length: 7 }
  return { step, loop: 'points', id: `r${step % 3}`, k, shown, ...scores, ...more }
}

function train(writer: RunWriter, from: number, to: number): Map<number, RunPosition> {
  const positions = new Map<number, RunPosition>()
  for (let step = from; step <= to; step++) {
    writer.samples([0, 1, 2, 3].map((k) => sample(step, k)))
    writer.step(step, { loss: 1 / step, 'points/reward_mean': step === 3 ? Number.NaN : 0.5 }, { step_time: step / 8 })
    if (step % 3 === 0) writer.warning(step, 'unscored', 'judge did not answer')
    positions.set(step, writer.position())
    if (step % 2 === 0) writer.eval(step, `step ${step}`, 10, { giou: { mean: 0.5, low: 0.4, high: 0.6 } })
  }
  return positions
}

/** All that is known of the run by following, against all that reading the folder anew gives. */
function assertSame(run: FollowedRun, dir: string, message: string): void {
  const whole = readRun(dir)
  assert.deepEqual(
    run.events,
    whole.events.filter((e) => e.t !== 'step'),
    message,
  )
  for (const [table, lines] of [
    [run.metrics, whole.events],
    [run.timing, whole.timing],
  ] as const) {
    const steps = lines.flatMap((e) => (e.t === 'step' ? [e] : []))
    const names = [...new Set(steps.flatMap((e) => Object.keys(e.metrics ?? {})))]
    assert.deepEqual(table.names.sort(), names.sort(), message)
    for (const name of names) {
      const last = new Map(steps.flatMap((e) => (e.metrics && name in e.metrics ? [[e.step, e.metrics[name]]] : [])))
      const sorted = [...last].sort(([a], [b]) => a! - b!)
      const { steps: at, values } = table.series(name)
      assert.deepEqual([at, values], [sorted.map(([s]) => s), sorted.map(([, v]) => v)], `${message} ${name}`)
    }
  }
  const samples = [...whole.samples()]
  assert.equal(run.samples.count, samples.length, message)
  assert.deepEqual(run.samples.read(samples.map((_, row) => row)), samples, message)
}

test('a run that comes in pieces of any size is known as if it were read whole', () => {
  const source = newFolder()
  const writer = RunWriter.create(source, newRun)
  writer.start({ tasks: [{ name: 'points', title: 'Points on the thing' }] })
  train(writer, 1, 12)
  writer.stop(12, 'done')
  writer.close()
  const names = ['events.jsonl', 'samples.jsonl', 'timing.jsonl']
  const bytes = names.map((name) => readFileSync(join(source, name)))
  for (const piece of [1, 7, 64, 1000]) {
    const dir = newFolder()
    const run = new FollowedRun(dir)
    run.poll()
    assert.deepEqual([run.events, run.samples.count, run.lastStep], [[], 0, 0])
    for (let at = 0; at < Math.max(...bytes.map((b) => b.length)); at += piece) {
      names.forEach((name, i) => {
        appendFileSync(join(dir, name), bytes[i]!.subarray(at, at + piece))
      })
      if (piece > 1 || at % 50 === 0) run.poll()
    }
    while (run.poll(100));
    assertSame(run, dir, `pieces of ${piece}`)
    assert.deepEqual(run.tasks, [{ name: 'points', title: 'Points on the thing' }])
    assert.deepEqual(run.end, { step: 12, reason: 'done' })
  }
})

test('lines that a resumed run cuts off are forgotten, whenever one looks', () => {
  const dir = newFolder()
  const run = new FollowedRun(dir)
  let writer = RunWriter.create(dir, newRun)
  const positions = train(writer, 1, 9)
  writer.stop(9, 'stopped')
  writer.close()
  run.poll()
  assert.deepEqual(run.end, { step: 9, reason: 'stopped' })
  for (const [to, more] of [
    [6, 0], // read while the file is shorter
    [4, 7], // read when the file is longer than it was
    [2, 3],
  ] as const) {
    writer = RunWriter.resume(dir, to, positions.get(to), {})
    if (more > 0) {
      for (let i = 0; i < more; i++) writer.step(to + 1 + i, { loss: -i, other: i })
      writer.samples(Array.from({ length: 50 }, (_, k) => sample(to + 1, k, { loop: 'another' })))
    }
    writer.close()
    run.poll()
    assertSame(run, dir, `resumed at ${to}`)
    assert.equal(run.end, undefined)
  }
})

test('a file longer than the distance of marks is read again from near the change alone', () => {
  const dir = newFolder()
  const path = join(dir, 'samples.jsonl')
  const lines = Array.from({ length: 9000 }, (_, i) =>
    encodeLine(sample(i, 0, { shown: [{ kind: 'text', by: 'policy', text: 'x'.repeat(400) }] })),
  )
  writeFileSync(path, lines.join(''))
  writeFileSync(join(dir, 'events.jsonl'), '')
  const run = new FollowedRun(dir)
  while (run.poll(1 << 20));
  assert.equal(run.samples.count, 9000)
  truncateSync(path, Buffer.byteLength(lines.slice(0, 7000).join('')))
  appendFileSync(path, encodeLine(sample(99_999, 3)))
  let calls = 1
  while (run.poll(1 << 20)) calls++
  assert.ok(calls <= 3, `${calls} calls`)
  assert.equal(run.samples.count, 7001)
  assert.equal(run.samples.step.at(7000), 99_999)
  assert.deepEqual(run.samples.read([7000])[0]?.k, 3)
})

test('files that vanish, come back, or are not JSON are reported and do no harm', () => {
  const dir = newFolder()
  const run = new FollowedRun(dir)
  const writer = RunWriter.create(dir, newRun)
  train(writer, 1, 3)
  writer.close()
  run.poll()
  const { version } = run
  run.poll()
  assert.equal(run.version, version)
  rmSync(join(dir, 'samples.jsonl'))
  writeFileSync(join(dir, 'config.json'), '{')
  appendFileSync(join(dir, 'events.jsonl'), 'garbage\n[1]\n{"t":"step"}\n{"t":"stop","step":3,"reason":"done"}\n{"t":')
  run.poll()
  assert.ok(run.version > version)
  assert.equal(run.samples.count, 0)
  assert.deepEqual(run.problems, [
    'config.json is missing or no JSON',
    'events.jsonl: the last line is torn',
    'events.jsonl: 3 lines could not be read',
  ])
})

test('tasks of a run that does not list them come from its samples and mean rewards, whatever they are called', () => {
  const dir = newFolder()
  const writer = RunWriter.create(dir, newRun)
  writer.step(1, { 'loop1/reward_mean': 1, 'a/b/reward': 2, 'optim/grad_norm': 1, loss: 2 })
  writer.samples([sample(1, 0, { loop: 'mask-to-caption' })])
  writer.close()
  const run = new FollowedRun(dir)
  run.poll()
  assert.deepEqual(
    run.tasks.map(({ name }) => name),
    ['a/b', 'loop1', 'mask-to-caption'],
  )
})

test('a sample of the older form shows what it showed: the author of the mask follows from who answered with text', () => {
  const mask = { size: [2, 2], counts: '04' }
  const scores = { rewards: {}, total: 1, advantage: 0, logp: 0, length: 1 }
  const older = { step: 1, loop: 'loop1', id: 'a', k: 0, text: 'a disc', reference: 'disc', given: mask, made: null }
  assert.deepEqual(toSample({ ...older, ...scores })?.shown, [
    { kind: 'text', by: 'record', text: 'disc' },
    { kind: 'mask', by: 'record', mask },
    { kind: 'text', by: 'policy', text: 'a disc' },
    { kind: 'mask', by: 'ema', mask: null },
  ])
  const shown = [{ kind: 'points', by: 'policy', value: { size: [2, 2], points: [{ x: 1, y: 0 }] } }]
  assert.deepEqual(toSample({ ...older, ...scores, shown })?.shown, [
    { kind: 'points', by: 'policy', size: [2, 2], points: [{ x: 1, y: 0, positive: true }] },
  ])
  const named = toSample({ ...older, ...scores, made: mask, madeBy: 'ema', answer: 'Sure, it is [SEG].' })?.shown
  assert.deepEqual(named?.find((item) => item.kind === 'mask' && item.by !== 'record')?.by, 'ema')
  const drawn = toSample({ ...older, ...scores, made: mask, answer: 'round' })?.shown.slice(3)
  assert.deepEqual(drawn, [
    { kind: 'mask', by: 'policy', mask },
    { kind: 'text', by: 'ema', text: 'round' },
  ])
})

test('what the index reads from the ends of a line is what the whole line says', () => {
  const number = fc.oneof(fc.double(), fc.integer(), fc.constant(null))
  const text = fc.oneof(
    fc.string({ unit: 'grapheme' }),
    fc.constantFrom(',"rewards":{', '"k":1,"', '\\', '},"total":9'),
  )
  const line = fc.record({
    step: fc.nat(),
    loop: text,
    id: text,
    k: fc.nat(),
    shown: fc.array(
      fc.record({
        kind: fc.constant('text'),
        by: fc.constant('policy'),
        text,
        k: fc.nat(),
        rewards: fc.record({ total: number }),
      }),
    ),
    rewards: fc.dictionary(text, number),
    total: number,
    advantage: fc.double(),
    extra: fc.record({ a: fc.nat(), rewards: fc.dictionary(text, number), total: number, advantage: fc.double() }),
  })
  fc.assert(
    fc.property(line, fc.boolean(), (value, withExtra) => {
      const { extra, ...plain } = value
      const written = withExtra ? value : plain
      const entry = readEntry(Buffer.from(encodeLine(written).trimEnd()))
      const sample = toSample(JSON.parse(encodeLine(written)))
      assert.ok(entry && sample)
      assert.deepEqual(
        [entry.step, entry.task, entry.id, entry.k, entry.total, entry.advantage],
        [sample.step, sample.loop, sample.id, sample.k, sample.total ?? Number.NaN, sample.advantage],
      )
      const { ['__proto__']: _, ...expected } = { ...sample.rewards }
      const { ['__proto__']: __, ...found } = { ...entry.rewards }
      assert.deepEqual(found, expected)
    }),
    { numRuns: 1000 },
  )
})

test('samples come in the asked order and from the asked range, as a plain sort of all of them gives', () => {
  const index = new SampleIndex('unused')
  const all: {
    row: number
    step: number
    id: string
    total: number
    advantage: number
    iou: number
    spread: number
  }[] = []
  for (let group = 0; group < 120; group++) {
    const rows = Array.from({ length: 4 }, (_, k) => {
      const total = group % 11 === 0 && k === 0 ? null : ((group * 37 + k * 53) % 100) / 100
      const iou = ((group * 7 + k * 13) % 10) / 10
      const made = sample(Math.floor(group / 3), k, {
        id: `r${group % 7}`,
        total,
        rewards: { iou },
        advantage: k - 1.5 + group / 50,
        loop: group % 2 ? 'a' : 'b',
      })
      index.line(Buffer.from(encodeLine(made).trimEnd()), all.length * 100 + k * 10, all.length * 100 + k * 10 + 9)
      return {
        step: made.step,
        id: made.id,
        total: total ?? Number.NaN,
        advantage: made.advantage,
        iou,
        row: all.length + k,
      }
    })
    const totals = rows.map((r) => r.total).filter((t) => !Number.isNaN(t))
    const spread = Math.max(...totals) - Math.min(...totals)
    all.push(...rows.map((r) => ({ ...r, spread })))
  }
  type Row = (typeof all)[number]
  const ranks: Record<SampleOrder, (r: Row) => number> = {
    newest: (r) => r.row,
    oldest: (r) => -r.row,
    best: (r) => r.total,
    worst: (r) => -r.total,
    advantage: (r) => Math.abs(r.advantage),
    different: (r) => r.spread,
  }
  for (const order of sampleOrders)
    for (const onePerRecord of [false, true])
      for (const [task, from, to] of [
        [undefined, undefined, undefined],
        ['a', 10, 25],
      ] as const) {
        const rank = ranks[order]
        const left = all.filter(
          (r) =>
            (task === undefined || Math.floor(r.row / 4) % 2 === 1) &&
            (from === undefined || (r.step >= from && r.step <= to)),
        )
        const sorted = left.filter((r) => !Number.isNaN(rank(r))).sort((a, b) => rank(b) - rank(a) || b.row - a.row)
        const unique = sorted.filter((r, i) => !onePerRecord || sorted.findIndex((o) => o.id === r.id) === i)
        const found = selectSamples(index, { order, onePerRecord, task, from, to, offset: 2, limit: 20 })
        assert.equal(found.count, left.length)
        assert.deepEqual(
          found.rows,
          unique.slice(2, 22).map((r) => r.row),
          `${order} ${onePerRecord} ${task}`,
        )
      }
  const byPart = selectSamples(index, { order: 'best', part: 'iou', limit: 5 })
  assert.ok(byPart.rows.every((row) => all[row]!.iou === 0.9))
  assert.deepEqual(selectSamples(index, { record: 'nobody' }), { count: 0, rows: [] })
})

test('thinning keeps the spikes and NaN', () => {
  const table = new MetricTable()
  for (let step = 0; step < 10_000; step++)
    table.add(step, { a: step === 7777 ? 50 : step === 3333 ? 'NaN' : step / 1e4 }, step)
  const { values, count } = table.series('a', { points: 400 })
  assert.ok(values.length <= 402 && values.includes(50) && values.some(Number.isNaN))
  assert.equal(count, 10_000)
  assert.deepEqual(table.series('a', { from: 10, to: 12 }).steps, [10, 11, 12])
})

const odd: Record<string, (path: string) => void> = {
  'a pipe': (path) => execFileSync('mkfifo', [path]),
  'a device': (path) => symlinkSync('/dev/zero', path),
  'a folder': (path) => mkdirSync(path),
  'a link that leads out of it': (path) => {
    const outside = join(newFolder(), 'private')
    writeFileSync(outside, encodeLine({ t: 'stop', step: 1, reason: 'PRIVATE' }))
    symlinkSync(outside, path)
  },
}

for (const [kind, place] of Object.entries(odd)) {
  test(`${kind} as a file of a run folder is a problem of that run, and the rest is read`, () => {
    for (const name of ['events.jsonl', 'timing.jsonl', 'samples.jsonl', 'environment.json', 'config.json']) {
      const dir = newFolder()
      const writer = RunWriter.create(dir, newRun)
      train(writer, 1, 2)
      writer.close()
      rmSync(join(dir, name))
      place(join(dir, name))
      const run = new FollowedRun(dir)
      while (run.poll());
      assert.equal(run.problems.length, 1, name)
      assert.ok(run.problems[0]?.startsWith(`${name} could not be read: `), run.problems[0])
      assert.ok(run.problems[0]?.endsWith(`, got ${kind}`), run.problems[0])
      assert.equal(run.lastStep, name === 'events.jsonl' ? 0 : 2, name)
      assert.equal(run.samples.count, name === 'samples.jsonl' ? 0 : 8, name)
      if (name === 'events.jsonl') assert.throws(() => readRun(dir), new RegExp(`got ${kind}$`))
      else {
        const whole = readRun(dir)
        const count = [...whole.samples()].length
        assert.deepEqual([whole.problems, count], [run.problems, run.samples.count], name)
      }
      if (!name.endsWith('.jsonl')) continue
      assert.throws(() => RunWriter.resume(dir, 1, undefined, {}), new RegExp(`got ${kind}$`), name)
    }
  })
}

test('a log that a link leads to outside the run folder is not cut on resume', () => {
  const [dir, outside] = [newFolder(), join(newFolder(), 'other.jsonl')]
  const writer = RunWriter.create(dir, newRun)
  train(writer, 1, 2)
  writer.close()
  rmSync(join(dir, 'events.jsonl'))
  const bytes = `${encodeLine({ t: 'step', step: 9, metrics: {} })}a torn line`
  writeFileSync(outside, bytes)
  symlinkSync(outside, join(dir, 'events.jsonl'))
  assert.throws(() => RunWriter.resume(dir, 1, undefined, {}), /events\.jsonl: expected a part of this folder/)
  assert.equal(readFileSync(outside, 'utf8'), bytes)
})

test('a description of gigabytes is not read', () => {
  const dir = newFolder()
  RunWriter.create(dir, newRun).close()
  truncateSync(join(dir, 'config.json'), 5 * 2 ** 30)
  const run = new FollowedRun(dir)
  run.poll()
  const expected = /^config\.json could not be read: .*expected a file of at most 4194304 bytes, got 5368709120 bytes$/
  assert.match(run.problems.join(), expected)
  assert.match(readRun(dir).problems.join(), expected)
})

test('a line of 64 MiB is read by report and page, a longer one is counted by both and what follows is read', () => {
  const dir = newFolder()
  RunWriter.create(dir, newRun).close()
  const path = join(dir, 'events.jsonl')
  const limit = 64 * 2 ** 20
  const warning = (length: number) => {
    const empty = { t: 'warning', step: 1, kind: 'k', text: '', count: 1 }
    return encodeLine({ ...empty, text: 'x'.repeat(length - encodeLine(empty).length) })
  }
  const late = encodeLine({ t: 'stop', step: 1, reason: 'done' })
  for (const [lines, events, problems] of [
    [[warning(limit)], 2, []],
    [[warning(limit + 1)], 1, ['events.jsonl: 1 line could not be read']],
    [[' '.repeat(limit), late], 1, ['events.jsonl: 1 line could not be read']], // an event at the end of a line that is too long
  ] as const) {
    writeFileSync(path, [...lines, late].join(''))
    const whole = readRun(dir)
    const run = new FollowedRun(dir)
    while (run.poll());
    assert.deepEqual([whole.events.length, whole.problems], [events, problems])
    assert.deepEqual([run.events.length, run.problems], [events, problems])
  }
  rmSync(dir, { recursive: true })
})
