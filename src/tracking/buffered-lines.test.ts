import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { diskTrouble, lackOfRoom } from '../core/index.ts'
import { BufferedLines } from './buffered-lines.ts'
import { readRun } from './run-reader.ts'
import { RunWriter } from './run-writer.ts'

const newFolder = () => mkdtempSync(join(tmpdir(), 'patient-'))
const here = fileURLToPath(new URL('.', import.meta.url))
const hasPrlimit = spawnSync('prlimit', ['--version']).status === 0

test('a quota that is used up has a name although Node has none for it', () => {
  assert.equal(lackOfRoom({ code: 'Unknown system error -122', errno: -122 }), 'the disk quota is used up (EDQUOT)')
  assert.equal(lackOfRoom({ code: 'ENOSPC', errno: -28 }), 'the disk is full (ENOSPC)')
  assert.equal(lackOfRoom(new Error('x', { cause: { code: 'EFBIG' } })), 'the file size limit is reached (EFBIG)')
  assert.equal(lackOfRoom({ code: 'EIO', errno: -5 }), null)
  assert.equal(diskTrouble(new Error('x', { cause: { code: 'EIO' } })), 'the disk fails (EIO)')
  assert.equal(diskTrouble({ code: 'ENOSPC' }), 'the disk is full (ENOSPC)')
  assert.equal(diskTrouble({ code: 'ENOENT' }), null)
})

test('lines without room wait in memory up to a limit, and what is beyond it is counted', () => {
  const path = join(newFolder(), 'x.jsonl')
  symlinkSync('/dev/full', path)
  const lines = new BufferedLines(path, 30)
  for (let i = 0; i < 5; i++) assert.equal(lines.put({ step: i }), 0)
  assert.deepEqual([lines.waiting, lines.lost], [2, 3]) // 11 bytes a line
  lines.close()
})

test('a run whose log disk is full continues, and its lines are written in order as soon as there is space', {
  skip: !hasPrlimit && 'no prlimit here',
}, async () => {
  const dir = newFolder()
  const script = `
    import { RunWriter } from './run-writer.ts'
    const writer = RunWriter.create(process.env.TARGET, { config: {}, environment: {} })
    for (let step = 1; step <= 100; step++) writer.step(step, { loss: step })
    console.log('full')
    process.stdin.once('data', () => {
      for (let step = 101; step <= 110; step++) writer.step(step, { loss: step })
      writer.close()
      process.exit(0)
    })`
  const node = `'${process.execPath}' --import tsx --input-type=module -e "$SCRIPT"`
  const child = spawn('bash', ['-c', `ulimit -S -f 3; exec ${node}`], {
    cwd: here,
    env: { ...process.env, SCRIPT: script, TARGET: dir, TSX_DISABLE_CACHE: '1' },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text
  })
  await once(child.stdout, 'data')
  assert.ok(readRun(dir).events.length < 100)
  assert.equal(spawnSync('prlimit', ['--fsize=unlimited', '--pid', String(child.pid)]).status, 0)
  child.stdin.write('go\n')
  assert.deepEqual(await once(child, 'close'), [0, null])
  const run = readRun(dir)
  assert.deepEqual(run.problems, [])
  const steps = run.events.flatMap((e) => (e.t === 'step' ? [e.step] : []))
  assert.deepEqual(
    steps,
    Array.from({ length: 110 }, (_, i) => i + 1),
  )
  const late = run.events.filter((e) => e.t === 'warning')
  assert.ok(late.length >= 1 && late.every((e) => e.kind === 'log-late' && e.count > 10), JSON.stringify(late))
  assert.equal(said.match(/events\.jsonl: the file size limit is reached/g)?.length, 1)
})

test('a warning is an event of the step the run is at', () => {
  const dir = newFolder()
  const writer = RunWriter.create(dir, { config: {}, environment: {} })
  writer.notice('settings', 'the sampler is not the policy')
  writer.step(7, { loss: 1 })
  writer.notice('bad-record', 'row 3 has no mask', 4)
  writer.close()
  const found = readRun(dir).events.filter((e) => e.t === 'warning')
  assert.deepEqual(found, [
    { t: 'warning', step: 0, kind: 'settings', text: 'the sampler is not the policy', count: 1 },
    { t: 'warning', step: 7, kind: 'bad-record', text: 'row 3 has no mask', count: 4 },
  ])
})

test('a folder deleted under the run is put back whole at the next checkpoint', () => {
  const dir = join(newFolder(), 'run')
  const writer = RunWriter.create(dir, { config: { seed: 3 }, environment: { device: 'cpu' } })
  for (let step = 1; step <= 5; step++) writer.step(step, { loss: step })
  const before = readFileSync(join(dir, 'events.jsonl'), 'utf8')
  rmSync(dir, { recursive: true })
  writer.step(6, { loss: 6 })
  const { events } = writer.position()
  writer.step(7, { loss: 7 })
  writer.close()
  const text = readFileSync(join(dir, 'events.jsonl'), 'utf8')
  assert.ok(text.startsWith(before))
  const run = readRun(dir)
  assert.deepEqual([run.config, run.environment, run.problems], [{ seed: 3 }, { device: 'cpu' }, []])
  assert.equal(run.events.find((e) => e.t === 'warning')?.kind, 'log-deleted')
  assert.ok(text.slice(events).startsWith('{"t":"step","step":7'))
})

test('a log that another file replaced ends the run with a clear message', () => {
  const dir = newFolder()
  const writer = RunWriter.create(dir, { config: {}, environment: {} })
  rmSync(join(dir, 'events.jsonl'))
  writeFileSync(join(dir, 'events.jsonl'), '')
  assert.throws(() => writer.position(), /events\.jsonl: expected the log this run writes, got another file/)
  writer.close()
})

test('a folder with checkpoints and no log is not begun anew', () => {
  const dir = newFolder()
  mkdirSync(join(dir, 'checkpoint_step_6'))
  assert.throws(
    () => RunWriter.create(dir, { config: {}, environment: {} }),
    /expected a folder without a run, got checkpoint_step_6 and no events\.jsonl/,
  )
  assert.equal(existsSync(join(dir, 'config.json')), false)
})
