import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { launchOf } from './launch.ts'

const module = fileURLToPath(new URL('./launch.ts', import.meta.url))

/** A launcher process that runs a script as ranks. `$F` is a folder of the test; newest checkpoint: the number in $F/step. */
function launcher(script: string, { count = 2, maxRestarts = 3, grace = 30, rootCauseWait = 10 } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-launch-test-'))
  writeFileSync(join(folder, 'rank.cjs'), `const F = ${JSON.stringify(folder)}; const fs = require('fs');${script}`)
  const code = `
    const { launch } = await import(${JSON.stringify(module)})
    const { existsSync, readFileSync } = await import('node:fs')
    const step = ${JSON.stringify(join(folder, 'step'))}
    process.exitCode = await launch({ count: ${count}, maxRestarts: ${maxRestarts}, grace: ${grace}, rootCauseWait: ${rootCauseWait},
      command: [process.execPath, ${JSON.stringify(join(folder, 'rank.cjs'))}],
      newestStep: () => existsSync(step) ? Number(readFileSync(step, 'utf8')) : null })`
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', code])
  let out = ''
  let err = ''
  child.stdout.on('data', (text) => {
    out += text
  })
  child.stderr.on('data', (text) => {
    err += text
  })
  const ended = new Promise<{ code: number | null; out: string; err: string }>((resolve) => {
    child.on('close', (code) => resolve({ code, out, err }))
  })
  const file = async (name: string) => {
    while (!existsSync(join(folder, name))) await new Promise((done) => setTimeout(done, 20))
    return readFileSync(join(folder, name), 'utf8')
  }
  const has = (name: string) => existsSync(join(folder, name))
  return { child, ended, file, has, remove: () => rmSync(folder, { recursive: true, force: true }) }
}

const attempt = 'const attempt = Number(process.env.TORCHELASTIC_RESTART_COUNT);'
const rank = 'const rank = Number(process.env.RANK);'
const wait = 'setTimeout(() => {}, 600000);'
/** A process that has ended stays in the process table until its parent waits for it: state Z. */
const alive = (pid: number) => {
  try {
    return !/^\d+ \(.*\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

test('every rank gets its place, standard error is marked with it, standard output is that of rank 0', async () => {
  const run = launcher(
    `${rank} console.error('hello ' + process.env.WORLD_SIZE + ' ' + process.env.LOCAL_RANK); console.log('from ' + rank)`,
  )
  const { code, out, err } = await run.ended
  assert.equal(code, 0, err)
  assert.match(err, /^\[0\] hello 2 0$/m)
  assert.match(err, /^\[1\] hello 2 1$/m)
  assert.equal(out, 'from 0\n')
  assert.match(err, /^\[1\] from 1$/m)
  run.remove()
})

test('a failed peer leads to a restart of all, with a fresh store', async () => {
  const run = launcher(
    `${rank}${attempt} fs.appendFileSync(F + '/stores', process.env.ROUNDTRIP_STORE + '\\n');
     if (attempt === 0 && rank === 1) process.kill(process.pid, 'SIGKILL'); if (attempt === 0) process.exit(75)`,
  )
  const { code, err } = await run.ended
  assert.equal(code, 0, err)
  assert.match(err, /rank 1 ended by SIGKILL\n.*restart 1 of at most 3, from the beginning/)
  const stores = new Set((await run.file('stores')).trim().split('\n'))
  assert.equal(stores.size, 2)
  run.remove()
})

test('two failures without a new checkpoint in between are a crash loop; with one the run resumes', async () => {
  const loop = launcher('process.exit(70)')
  const first = await loop.ended
  assert.equal(first.code, 70)
  assert.match(first.err, /no new checkpoint since the failure before this one/)
  loop.remove()
  const moving = launcher(
    `${rank}${attempt} if (attempt < 3) { fs.writeFileSync(F + '/step' + rank, String(attempt)); fs.renameSync(F + '/step' + rank, F + '/step'); process.exit(70) }`,
  )
  const second = await moving.ended
  assert.equal(second.code, 0, second.err)
  assert.match(second.err, /restart 3 of at most 3, from step 2/)
  moving.remove()
})

test('restarts are limited, and an error in the settings gets none, although a peer noticed first', async () => {
  const limited = launcher(`${attempt} fs.writeFileSync(F + '/step', String(attempt)); process.exit(75)`, {
    maxRestarts: 1,
  })
  const one = await limited.ended
  assert.equal(one.code, 75)
  assert.match(one.err, /1 restarts used; giving up/)
  limited.remove()
  const settings = launcher(
    `${rank} if (rank === 1) { process.on('SIGTERM', () => process.exit(2)); fs.writeFileSync(F + '/ready', ''); ${wait} }
     else { const t = setInterval(() => { if (fs.existsSync(F + '/ready')) { clearInterval(t); process.exit(75) } }, 20) }`,
    { rootCauseWait: 1 },
  )
  const two = await settings.ended
  assert.equal(two.code, 2)
  assert.doesNotMatch(two.err, /restart/)
  settings.remove()
})

test('a rank that says another one failed is a witness: the launcher waits for the cause, and asks nobody to end meanwhile', async () => {
  // rank 1 is the cause and slow: it ends once the launcher has taken note of the witness, whose pid is then gone
  const run = launcher(
    `${rank} if (rank === 0) { fs.writeFileSync(F + '/pid.new', String(process.pid)); fs.renameSync(F + '/pid.new', F + '/pid'); process.exitCode = 75 }
     else {
       process.on('SIGTERM', () => { fs.writeFileSync(F + '/asked', ''); process.exit(143) });
       const gone = () => fs.existsSync(F + '/pid') && !fs.existsSync('/proc/' + fs.readFileSync(F + '/pid', 'utf8'));
       let turns = 0;
       setInterval(() => { if (gone() && ++turns > 20) { fs.writeFileSync(F + '/done', ''); process.exit(2) } }, 20) }`,
    { rootCauseWait: 600 },
  )
  const { code, err } = await run.ended
  assert.equal(run.has('asked'), false, 'asked to end before it could say why')
  assert.equal(code, 2, err)
  assert.match(err, /rank 1 ended with code 2/)
  assert.doesNotMatch(err, /restart/)
  run.remove()
})

test('a witness alone is not waited for without end: the others are asked after that time', async () => {
  const run = launcher(
    `${rank} if (rank === 0) { const t = setInterval(() => { if (fs.existsSync(F + '/ready')) process.exit(75) }, 20) }
     else { process.on('SIGTERM', () => process.exit(143)); fs.writeFileSync(F + '/ready', ''); ${wait} }`,
    { rootCauseWait: 1, maxRestarts: 0 },
  )
  const { code, err } = await run.ended
  assert.equal(code, 75, err)
  run.remove()
})

test('a rank that does not end when asked is ended by force after the grace', async () => {
  const run = launcher(
    `${rank} if (rank === 1) { process.on('SIGTERM', () => {}); fs.writeFileSync(F + '/ready', ''); ${wait} }
     else { const t = setInterval(() => { if (fs.existsSync(F + '/ready')) { clearInterval(t); process.exit(77) } }, 20) }`,
    { grace: 1 },
  )
  const { code, err } = await run.ended
  assert.equal(code, 77, err)
  run.remove()
})

test('SIGTERM reaches every rank once, and an orderly end is not started again', async () => {
  const run = launcher(
    `${rank} process.on('SIGTERM', () => { fs.appendFileSync(F + '/heard', rank + '\\n'); process.exit(143) });
     fs.writeFileSync(F + '/ready' + rank, ''); ${wait}`,
  )
  await run.file('ready0')
  await run.file('ready1')
  run.child.kill('SIGTERM')
  const { code } = await run.ended
  assert.equal(code, 143)
  assert.deepEqual((await run.file('heard')).trim().split('\n').sort(), ['0', '1'])
  run.remove()
})

test('ranks end when their launcher is killed', async () => {
  const loader = JSON.stringify(import.meta.resolve('tsx/esm/api')) // the rank's script lies outside the package
  const watch = `import(${loader}).then(({ register }) => { register(); return import(${JSON.stringify(module)}) }).then(({ endWithLauncher }) => { endWithLauncher();
    fs.writeFileSync(F + '/pid' + process.env.RANK, String(process.pid)) });`
  const run = launcher(`${watch} ${wait}`)
  const pids = await Promise.all(['pid0', 'pid1'].map(async (name) => Number(await run.file(name))))
  run.child.kill('SIGKILL')
  await run.ended
  while (pids.some(alive)) await new Promise((done) => setTimeout(done, 20))
  run.remove()
})

test('--nproc inside another launcher is refused, and a rank that we started trains itself', () => {
  const flags = new Map([['nproc', ['2']]])
  assert.throws(() => launchOf('train', flags, () => null, { RANK: '0', WORLD_SIZE: '2' }), /one launcher is enough/)
  assert.equal(
    launchOf('train', flags, () => null, { RANK: '0', ROUNDTRIP_STORE: '/x' }),
    null,
  )
  assert.equal(
    launchOf('train', new Map(), () => null, {}),
    null,
  )
  assert.equal(launchOf('train', flags, () => null, {})?.count, 2)
  assert.throws(
    () => launchOf('train', new Map([['nproc', ['two']]]), () => null, {}),
    /--nproc: expected a whole number/,
  )
})
