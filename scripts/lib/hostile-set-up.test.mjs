// Set-up in places it does not control: a folder with Python files, a home that cannot be written to, locks that nobody holds.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { findCompiler } from './build.mjs'
import { withLock } from './lock.mjs'
import { root } from './record.mjs'

function scratch(t) {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-hostile-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  chmodSync(folder, 0o755)
  return folder
}

test('the search for torch runs no Python file of the current folder', (t) => {
  const folder = scratch(t)
  const seen = join(folder, 'seen')
  const trap = `open(${JSON.stringify(seen)}, 'a').write(__name__)\n`
  for (const name of ['json', 'importlib', 'site', 'sitecustomize', 'usercustomize', 'os', 'torch', 'encodings'])
    writeFileSync(join(folder, `${name}.py`), trap)
  const script = `import { findTorch } from ${JSON.stringify(join(root, 'scripts/lib/find-torch.mjs'))}; findTorch()`
  for (const PYTHONPATH of ['', '.', ':'])
    spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      cwd: folder,
      env: { ...process.env, PYTHONPATH },
    })
  assert.equal(existsSync(seen) ? readFileSync(seen, 'utf8') : '', '')
})

test('a torch that PYTHONPATH or the folder of the user names is found', (t) => {
  const folder = scratch(t)
  const python = (torch) => {
    mkdirSync(torch, { recursive: true })
    writeFileSync(join(torch, '__init__.py'), 'raise SystemExit(1)\n')
  }
  python(join(folder, 'named', 'torch'))
  const env = { PATH: process.env.PATH, HOME: folder, PYTHONPATH: join(folder, 'named') }
  assert.ok(findIn(env).includes(join(folder, 'named', 'torch')))
  // a virtual environment has no folder of the user
  const ask = ['-c', 'import site, sys; print(site.getusersitepackages() if sys.prefix == sys.base_prefix else "")']
  const user = spawnSync('python3', ask, {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, HOME: folder },
  }).stdout.trim()
  if (user === '') return
  python(join(user, 'torch'))
  assert.ok(findIn({ PATH: process.env.PATH, HOME: folder }).includes(join(user, 'torch')))
})

/** In a separate process: Python reads the environment of the process. */
function findIn(env) {
  const script = `import { findTorch } from ${JSON.stringify(join(root, 'scripts/lib/find-torch.mjs'))}
    console.log(JSON.stringify(findTorch().candidates.map((torch) => torch.path)))`
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
    env,
  })
  return stdout === '' ? [stderr] : JSON.parse(stdout)
}

test('a cache folder that cannot be written to is one message that names ROUNDTRIP_CACHE', (t) => {
  const folder = scratch(t)
  writeFileSync(join(folder, 'file'), '')
  mkdirSync(join(folder, 'closed'), { mode: 0o555 })
  const closed = process.getuid() === 0 ? '/sys/roundtrip' : join(folder, 'closed') // root may write to any folder of a disk
  const cases = [
    { HOME: '/proc/nonexistent' },
    { HOME: closed },
    { XDG_CACHE_HOME: '/dev/null' },
    { ROUNDTRIP_CACHE: join(folder, 'file', 'below') },
  ]
  for (const env of cases) {
    const done = spawnSync(process.execPath, [join(root, 'scripts/setup.mjs'), '--no-install'], {
      encoding: 'utf8',
      env: { PATH: process.env.PATH, ...env },
      timeout: 600_000, // Node's recursive mkdir would never end for the first
    })
    assert.equal(done.status, 1, done.stderr)
    assert.ok(done.stderr.startsWith(`cannot write to the cache folder ${Object.values(env)[0]}/`), done.stderr)
    assert.match(done.stderr, /\. Set ROUNDTRIP_CACHE to a folder that you can write to\n$/)
    assert.equal(done.stderr.trim().split('\n').length, 1, done.stderr)
  }
})

/** Ms until the lock is ours; null: still waiting after the limit. */
async function timeToTake(path, limit) {
  const started = performance.now()
  const taken = withLock(
    path,
    () => undefined,
    async () => performance.now() - started,
  )
  const late = new Promise((done) => setTimeout(done, limit, null).unref())
  return Promise.race([taken, late])
}

test('a lock that nobody holds is broken: empty, not a number, a dead process, another host with an old time', async (t) => {
  const path = join(scratch(t), 'x.lock')
  const dead = spawnSync(process.execPath, ['-e', '0']).pid
  const minutesAgo = (n) => new Date(Date.now() - n * 60_000)
  for (const [text, time] of [
    ['', minutesAgo(1)],
    ['nonsense', minutesAgo(1)],
    [`12345 other-host`, minutesAgo(11)],
    [`${process.pid} ${hostname()} pid:[1]`, minutesAgo(11)],
    [`${dead} other-host pid:[1]`, minutesAgo(11)],
  ]) {
    writeFileSync(path, text)
    utimesSync(path, time, time)
    assert.notEqual(await timeToTake(path, 60_000), null, JSON.stringify(text))
    assert.equal(existsSync(path), false)
  }
})

test('a lock of a killed process is broken at once, one of a running process is waited for', async (t) => {
  const path = join(scratch(t), 'x.lock')
  const script = `import { withLock } from ${JSON.stringify(join(root, 'scripts/lib/lock.mjs'))}
    withLock(${JSON.stringify(path)}, () => {}, () => { console.log('locked'); return new Promise((done) => setTimeout(done, 60000)) })`
  const holder = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.after(() => holder.kill('SIGKILL'))
  await new Promise((done) => holder.stdout.once('data', done))
  let owner = ''
  const waiting = withLock(
    path,
    (name) => (owner = name),
    async () => 'taken',
  )
  assert.equal(await Promise.race([waiting, new Promise((done) => setTimeout(done, 1500, 'waits'))]), 'waits')
  assert.equal(owner, `another set-up (process ${holder.pid} on ${hostname()})`)
  holder.kill('SIGKILL')
  const late = new Promise((done) => setTimeout(done, 300_000, 'late').unref())
  assert.equal(await Promise.race([waiting, late]), 'taken')
})

test('while set-up waits it names the lock file', async (t) => {
  const path = join(scratch(t), 'fresh.lock')
  writeFileSync(path, '12345 other-host')
  assert.equal(await timeToTake(path, 1500), null, 'a fresh lock of another host is waited for')
  rmSync(path)
})

test('CXX may hold a wrapper and arguments, or a path with a space', (t) => {
  const folder = join(scratch(t), 'with space')
  mkdirSync(folder)
  const wrapper = join(folder, 'wrapper')
  writeFileSync(wrapper, '#!/bin/sh\nexec "$@"\n', { mode: 0o755 })
  const compiler = join(folder, 'c++')
  writeFileSync(compiler, '#!/bin/sh\necho my compiler 1.0\n', { mode: 0o755 })
  const plain = findCompiler({})
  assert.deepEqual(findCompiler({ CXX: 'env g++' })?.words, ['env', 'g++'])
  assert.equal(findCompiler({ CXX: 'env g++' })?.version, findCompiler({ CXX: 'g++' }).version)
  assert.deepEqual(findCompiler({ CXX: compiler }), { words: [compiler], version: 'my compiler 1.0' })
  assert.equal(findCompiler({ CXX: 'no-such-compiler g++' }), null)
  assert.deepEqual(findCompiler({ CXX: ' ' }), plain)
})
