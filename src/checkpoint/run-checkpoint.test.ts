import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs, {
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { basename, join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fixture, refuses, scratch } from '../../tests/support/checkpoint.ts'
import { stream } from '../core/index.ts'
import { listCheckpoints, newestValid, prune, whyInvalid, writeCheckpoint } from './run-checkpoint.ts'
import { writeSafetensors } from './safetensors.ts'

const files = (step: number) => ({
  'adapter/weights.bin': new Uint8Array(1000).fill(step),
  'state.json': JSON.stringify({ step }),
})

test('a checkpoint holds its files and a manifest with sizes and hashes', (t) => {
  const dir = scratch(t)
  const entries = [{ name: 'w', dtype: 'U8' as const, shape: [4], data: new Uint8Array(4) }]
  const path = writeCheckpoint(join(dir, 'run'), 12, {
    ...files(12),
    'ema.safetensors': (file) => writeSafetensors(file, entries),
  })
  assert.equal(basename(path), 'checkpoint_step_12')
  assert.deepEqual(readdirSync(path).sort(), ['adapter', 'ema.safetensors', 'manifest.json', 'state.json'])
  const manifest = JSON.parse(readFileSync(join(path, 'manifest.json'), 'utf8'))
  assert.equal(manifest.step, 12)
  assert.deepEqual(manifest.files['state.json'], {
    size: 11,
    // printf '{"step":12}' | sha256sum
    sha256: 'baf3780d76ee381d829aa5f1a176298b0250a0dd1389468d2ff10db6c98f7702',
  })
  assert.deepEqual(newestValid(join(dir, 'run')), { checkpoint: { step: 12, path }, invalid: [] })
})

test('the newest valid checkpoint is found under damaged ones, each reported with its reason', (t) => {
  const dir = scratch(t)
  for (const step of [1, 2, 3, 4, 5, 6, 10]) writeCheckpoint(dir, step, files(step))
  const at = (step: number, name: string) => join(dir, `checkpoint_step_${step}`, name)
  writeFileSync(at(10, 'adapter/weights.bin'), new Uint8Array(1000).fill(99))
  truncateSync(at(6, 'adapter/weights.bin'), 999)
  rmSync(at(5, 'state.json'))
  truncateSync(at(4, 'manifest.json'), 20)
  rmSync(at(3, 'manifest.json'))
  const { checkpoint, invalid } = newestValid(dir)
  assert.equal(checkpoint?.step, 2)
  assert.deepEqual(
    invalid.map((c) => c.step),
    [10, 6, 5, 4, 3],
  )
  const reasons = [
    /weights\.bin: its SHA-256/,
    /expected 1000 bytes, got 999/,
    /state\.json: .*no file/,
    /JSON/,
    /readable|JSON/,
  ]
  reasons.forEach((reason, i) => {
    assert.match(invalid[i]!.reason, reason)
  })
  assert.equal(newestValid(dir, { hashes: false }).checkpoint?.step, 10)
})

test('a manifest that points outside, a link and a wrong step do not pass', (t) => {
  const dir = scratch(t)
  const path = writeCheckpoint(dir, 1, files(1))
  const manifest = readFileSync(join(path, 'manifest.json'), 'utf8')
  writeFileSync(join(path, 'manifest.json'), manifest.replace('state.json', '../state.json'))
  assert.match(whyInvalid({ step: 1, path })!, /a file name inside the checkpoint/)
  writeFileSync(join(path, 'manifest.json'), manifest)
  renameSync(join(path, 'state.json'), join(dir, 'state.json'))
  symlinkSync(join(dir, 'state.json'), join(path, 'state.json'))
  assert.match(whyInvalid({ step: 1, path })!, /state\.json: expected 10 bytes, got no file/)
  const moved = join(dir, 'checkpoint_step_7')
  renameSync(writeCheckpoint(dir, 2, files(2)), moved)
  assert.match(newestValid(dir).invalid[0]!.reason, /says step 2/)
})

test('names that leave the folder or take the manifest are refused, and a failed writer leaves nothing', (t) => {
  const dir = scratch(t)
  for (const name of ['../x', '/x', 'a//b', '.', 'a/../b', 'manifest.json', '', 'a\\b']) {
    refuses(() => writeCheckpoint(dir, 1, { [name]: 'x' }), /a file name inside the checkpoint/)
  }
  const fails = () => {
    throw new Error('disk full')
  }
  assert.throws(() => writeCheckpoint(dir, 1, { 'a.bin': 'x', 'b.bin': fails }), /disk full/)
  assert.deepEqual(readdirSync(dir), [])
})

test('writing a step again replaces it, and one that stepped aside still counts', (t) => {
  const dir = scratch(t)
  const path = writeCheckpoint(dir, 5, files(5))
  mkdirSync(join(dir, '.tmp-checkpoint_step_6-killed')) // of a killed writer
  writeCheckpoint(dir, 5, { 'state.json': 'new' })
  assert.deepEqual(readdirSync(dir), ['checkpoint_step_5'])
  assert.equal(readFileSync(join(path, 'state.json'), 'utf8'), 'new')
  renameSync(path, `${path}.old`)
  assert.equal(newestValid(dir).checkpoint?.path, `${path}.old`)
  writeCheckpoint(dir, 5, files(5))
  assert.equal(newestValid(dir).checkpoint?.path, path)
})

const [plain, old] = ['checkpoint_step_5', 'checkpoint_step_5.old'] as const

/** A folder with step 5 under both names; `damaged` is not whole. */
function bothNames(t: TestContext, damaged: string | null): string {
  const dir = scratch(t)
  cpSync(writeCheckpoint(dir, 5, files(5)), join(dir, old), { recursive: true })
  if (damaged) rmSync(join(dir, damaged, 'state.json'))
  return dir
}

test('of two whole checkpoints of a step the one that did not step aside counts', (t) => {
  const dir = bothNames(t, null)
  assert.equal(newestValid(dir).checkpoint?.path, join(dir, plain))
})

/** Whether `work` fails because its rename number `failing` does. */
function failsAtRename(t: TestContext, failing: number, work: () => void): boolean {
  const rename = fs.renameSync
  let numRenames = 0
  const mock = t.mock.method(fs, 'renameSync', (from: string, to: string) => {
    if (++numRenames === failing) throw new Error('no rename')
    rename(from, to)
  })
  syncBuiltinESMExports()
  try {
    work()
    return false
  } catch (error) {
    assert.match(String(error), /no rename/)
    return true
  } finally {
    mock.mock.restore()
    syncBuiltinESMExports()
  }
}

test('a writer that fails at any rename leaves a whole checkpoint of the step, whichever of its two names is damaged', (t) => {
  for (const damaged of [null, plain, old]) {
    for (let failing = 1; ; failing++) {
      const dir = bothNames(t, damaged)
      const isFailed = failsAtRename(t, failing, () => writeCheckpoint(dir, 5, files(5)))
      assert.equal(newestValid(dir).checkpoint?.step, 5, `${damaged} damaged, rename ${failing}`)
      if (isFailed) continue
      assert.ok(failing > 3, 'a writer without any failure')
      break
    }
  }
})

test('prune keeps the newest whole ones, never counts a damaged one, and leaves newer damaged ones', (t) => {
  const dir = scratch(t)
  for (const step of [1, 2, 3, 4, 5]) writeCheckpoint(dir, step, files(step))
  rmSync(join(dir, 'checkpoint_step_5', 'state.json'))
  mkdirSync(join(dir, 'checkpoint_step_notes'))
  assert.deepEqual(
    prune(dir, 2).map((path) => basename(path)),
    ['checkpoint_step_2', 'checkpoint_step_1'],
  )
  assert.deepEqual(
    listCheckpoints(dir).map((c) => c.step),
    [5, 4, 3],
  )
  assert.ok(readdirSync(dir).includes('checkpoint_step_notes'))
  refuses(() => prune(dir, 0), /keep: expected a whole number of 1 or more, got 0/)
  assert.deepEqual(newestValid(join(dir, 'none')), { checkpoint: null, invalid: [] })
})

/** Starts a writer that waits for its first step. */
function startWriter(dir: string) {
  const args = ['--import', 'tsx', fixture('write-loop.ts'), dir]
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  const writer = { child, said: '', closed: new Promise((done) => child.on('close', done)) }
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    writer.said += text
  })
  return writer
}

/** Lets a writer run for a while, if asked from its first safe step on, and kills it; the last step it reported as safe, or null. */
async function runAndKill(
  writer: ReturnType<typeof startWriter>,
  first: number,
  afterMs: number,
  fromFirst: boolean,
): Promise<number | null> {
  while (!writer.said.includes('ready') && writer.child.exitCode === null) await sleep(5)
  writer.child.stdin.write(`${first}\n`)
  while (fromFirst && writer.said.split('\n').length < 3 && writer.child.exitCode === null) await sleep(2)
  await sleep(afterMs)
  writer.child.kill('SIGKILL')
  await writer.closed
  const lines = writer.said.split('\n').slice(1, -1)
  return lines.length > 0 ? Number(lines.at(-1)) : null
}

test('20 writers killed at random moments lose no checkpoint that was safe', async (t) => {
  const dir = scratch(t)
  const random = stream('kill')
  let newest = 1
  let next = startWriter(dir)
  for (let round = 0; round < 20; round++) {
    const writer = next
    if (round < 19) next = startWriter(dir)
    const safe = await runAndKill(writer, newest + 1, random.below(60), round % 4 === 0) // a busy machine writes little in 60 ms
    newest = safe ?? newest
    const { checkpoint, invalid } = newestValid(dir)
    assert.deepEqual(invalid, [], `round ${round}`)
    assert.ok((checkpoint?.step ?? 1) >= newest, `round ${round}: ${checkpoint?.step} >= ${newest}`)
    for (const each of listCheckpoints(dir)) assert.equal(whyInvalid(each), null, `round ${round}: ${each.path}`)
    newest = checkpoint?.step ?? newest
  }
  assert.ok(newest >= 4, `${newest} steps`)
})
