import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import fs, { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { hostname } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { scratch } from '../../tests/support/runs.ts'
import { lockRun } from './lock.ts'

const folder = scratch('lock')
const path = join(folder, 'run.lock')
after(() => rmSync(folder, { recursive: true, force: true }))

const refused = new RegExp(`process ${process.pid} on ${hostname()} has been writing since \\d{4}-`)

test('a folder has one writer; the error for the second names host, process and time; after a release it is free', () => {
  const first = lockRun(folder)
  assert.throws(() => lockRun(folder), refused)
  first.release()
  assert.ok(!existsSync(path))
  lockRun(folder).release()
})

test('what is not a lock is never read without end: pipes, devices, links and folders are refused by name', () => {
  const puts: (() => void)[] = [
    () => spawnSync('mkfifo', [path]),
    () => fs.symlinkSync('/dev/zero', path),
    () => fs.symlinkSync('run.lock', path),
    () => fs.mkdirSync(path),
  ]
  for (const put of puts) {
    put()
    assert.throws(() => lockRun(folder), /run\.lock: expected a file, or nothing, got a folder, a pipe or a link/)
    rmSync(path, { recursive: true })
  }
})

test('a lock without the fields of one is taken over', () => {
  const fields = { host: hostname(), pid: process.pid, born: null, since: 'x', token: 'y' }
  for (const text of [
    '5',
    '"x"',
    '[]',
    '{}',
    JSON.stringify({ ...fields, pid: '1' }),
    JSON.stringify({ ...fields, host: 1 }),
  ]) {
    writeFileSync(path, text)
    lockRun(folder).release()
  }
  writeFileSync(path, JSON.stringify(fields))
  assert.throws(() => lockRun(folder), /has been writing/)
  rmSync(path)
})

test('a process is known by when it was born, however much it grows', () => {
  const lock = lockRun(folder)
  const { born } = JSON.parse(readFileSync(path, 'utf8'))
  const more = new ArrayBuffer(2 ** 28)
  assert.throws(() => lockRun(folder), refused, `${more.byteLength} bytes later`)
  lock.release()
  const another = lockRun(folder)
  assert.equal(JSON.parse(readFileSync(path, 'utf8')).born, born)
  another.release()
})

test('what a killed process left is taken over, also when its pid was given again', async () => {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' })
  const left = (pid: number, born: string | null) =>
    writeFileSync(path, JSON.stringify({ host: hostname(), pid, born, since: 'x', token: 'y' }))
  left(child.pid!, null)
  assert.throws(() => lockRun(folder), /has been writing/)
  child.kill('SIGKILL')
  await once(child, 'exit')
  lockRun(folder).release()
  left(process.pid, '1')
  lockRun(folder).release()
})

test('a lock of another host is valid while it is touched, and a torn one does not', () => {
  writeFileSync(path, JSON.stringify({ host: 'elsewhere', pid: 1, born: null, since: 'x', token: 'y' }))
  assert.throws(() => lockRun(folder), /process 1 on elsewhere/)
  const hourAgo = new Date(Date.now() - 3_600_000)
  utimesSync(path, hourAgo, hourAgo)
  lockRun(folder).release()
  writeFileSync(path, '{"host":')
  lockRun(folder).release()
})

test('clocks of two hosts that differ by an hour change nothing: a touched lock is kept, an old one is taken over', (t) => {
  const now = Date.now
  for (const hour of [-3_600_000, 3_600_000]) {
    const mine = lockRun(folder)
    const owner = { ...JSON.parse(readFileSync(path, 'utf8')), host: 'elsewhere' }
    const old = new Date(now() - 3_600_000)
    writeFileSync(path, JSON.stringify(owner))
    utimesSync(path, old, old)
    t.mock.method(Date, 'now', () => now() + hour)
    try {
      mine.touch()
      assert.throws(() => lockRun(folder), /process \d+ on elsewhere/, `${hour} ms`)
      utimesSync(path, old, old)
      lockRun(folder).release()
    } finally {
      t.mock.restoreAll()
    }
  }
})

test('a lock that was taken over is not removed by its former owner', () => {
  const first = lockRun(folder)
  writeFileSync(path, JSON.stringify({ host: 'elsewhere', pid: 1, born: null, since: 'x', token: 'y' }))
  first.release()
  assert.ok(existsSync(path))
  rmSync(path)
})

test('a run that finds its folder in other hands ends with a clear message', () => {
  const lock = lockRun(folder)
  lock.touch()
  writeFileSync(path, JSON.stringify({ host: 'elsewhere', pid: 1, born: null, since: 'x', token: 'y' }))
  assert.throws(() => lock.touch(), /expected a run folder that nobody writes to, got one that process 1 on elsewhere/)
  rmSync(path)
})

test('a process that has ended and was not fetched by its parent holds no lock', async () => {
  const parent = spawn('sh', ['-c', 'sleep 1000 & echo $!; exec sleep 1000'], { stdio: ['ignore', 'pipe', 'ignore'] })
  const until = async (is: () => boolean) => {
    while (!is()) await new Promise((done) => setTimeout(done, 5))
  }
  try {
    const pid = Number(String((await once(parent.stdout, 'data'))[0]))
    await until(() => readFileSync(`/proc/${parent.pid}/comm`, 'utf8').trim() === 'sleep') // a shell would fetch its child
    process.kill(pid, 'SIGKILL')
    const stat = () => readFileSync(`/proc/${pid}/stat`, 'utf8')
    await until(() => /\) Z /.test(stat()))
    const born = stat()
      .slice(stat().lastIndexOf(')') + 2)
      .split(' ')[19]
    writeFileSync(path, JSON.stringify({ host: hostname(), pid, born, since: 'x', token: 'y' }))
    lockRun(folder).release()
  } finally {
    parent.kill('SIGKILL')
  }
})

test('on a file system without hard links, and on one that fails for a while, a folder has one writer too', (t) => {
  const code = { code: 'EPERM', syscall: 'link' }
  const link = t.mock.method(fs, 'linkSync', () => {
    throw Object.assign(new Error('EPERM: operation not permitted, link'), code)
  })
  const open = fs.openSync
  let touched = 0
  t.mock.method(fs, 'openSync', (...[file, flags, mode]: Parameters<typeof open>) => {
    if (flags !== 'r+') return open(file, flags, mode)
    touched++
    throw Object.assign(new Error('EIO: i/o error, open'), { code: 'EIO' })
  })
  syncBuiltinESMExports()
  try {
    const lock = lockRun(folder)
    lock.touch()
    assert.deepEqual([link.mock.callCount(), touched], [1, 1])
    assert.throws(() => lockRun(folder), refused)
    lock.release()
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.startsWith('run.lock')),
      [],
    )
  } finally {
    t.mock.restoreAll()
    syncBuiltinESMExports()
  }
})

test('a lock that was deleted under the run is put back, and a deleted folder is not an error', () => {
  const dir = mkdtempSync(join(folder, 'deleted-'))
  const lock = lockRun(dir)
  rmSync(join(dir, 'run.lock'))
  lock.touch()
  assert.throws(() => lockRun(dir), /expected a run folder that nobody writes to/)
  rmSync(dir, { recursive: true })
  lock.touch()
  lock.release()
  assert.ok(!existsSync(dir))
})

const space = ['--pid', '--fork', '--mount-proc', ...(process.getuid?.() === 0 ? [] : ['--map-root-user'])]
const noSpace = spawnSync('unshare', [...space, 'true']).status !== 0 && 'this user may not create PID namespaces'

test('a process of another PID namespace on a host of the same name has its lock as long as it is touched', {
  skip: noSpace,
}, async () => {
  const dir = mkdtempSync(join(folder, 'space-'))
  const lock = new URL('./lock.ts', import.meta.url).href
  const inside = (work: string) => {
    const code = `const { lockRun } = await import(${JSON.stringify(lock)}); const lock = lockRun(process.env.DIR); ${work}`
    const program = [process.execPath, '--import', 'tsx', '--input-type=module', '-e', code]
    return spawn('unshare', [...space, '--kill-child', ...program], { env: { ...process.env, DIR: dir } })
  }
  const first = lockRun(dir)
  const second = inside('console.log("has the lock")')
  let err = ''
  second.stderr.on('data', (text) => {
    err += text
  })
  assert.equal((await once(second, 'close'))[0], 1, err)
  assert.match(err, new RegExp(`process ${process.pid} on ${hostname()}, in another container, has been writing since`))
  first.touch()
  first.release()
  const third = inside('console.log("has the lock"); setInterval(() => {}, 1000)')
  try {
    await once(third.stdout, 'data')
    assert.throws(() => lockRun(dir), /process 1 on .*, in another container, has been writing since/)
    const hourAgo = new Date(Date.now() - 3_600_000)
    utimesSync(join(dir, 'run.lock'), hourAgo, hourAgo)
    lockRun(dir).release()
  } finally {
    third.kill('SIGKILL')
  }
})
