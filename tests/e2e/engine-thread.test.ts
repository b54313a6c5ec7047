import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import test from 'node:test'
import { Worker } from 'node:worker_threads'
import { type EngineThreadOptions, runInEngineThread } from '../../src/engine/index.ts'

const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js'
const work = new URL(`./engine-work.${extension}`, import.meta.url)
const engine = new URL(`../../src/engine/index.${extension}`, import.meta.url).href

test('the engine thread gives its result, asks main, hears refusals and sends progress', async () => {
  const received: unknown[] = []
  const onMessage: EngineThreadOptions['onMessage'] = async (message) => {
    const asked = message as { double?: number; refuse?: boolean }
    if (asked.refuse) throw Object.assign(new TypeError('no judge today'), { code: 'ERR_JUDGE' })
    if (asked.double !== undefined) return 2 * asked.double
    received.push(message)
  }
  const result = await runInEngineThread(work, 'converse', { from: 21 }, { onMessage })
  assert.deepEqual(result, { doubled: 42, refused: 'TypeError:ERR_JUDGE:no judge today', live: 0 })
  assert.deepEqual(received, [{ progress: 1 }])
})

const stopFlag = () => new Int32Array(new SharedArrayBuffer(4))

test('main keeps ticking while the engine thread multiplies and differentiates', async () => {
  const stop = stopFlag()
  let ticks = 0
  const tick = () => {
    if (++ticks < 50) setTimeout(tick, 2)
    else Atomics.store(stop, 0, 1)
  }
  // a step takes as long as many ticks; a main thread that waits for each op ticks a few times a step
  const steps = await runInEngineThread(work, 'compute', { size: 1500, stop }, { onMessage: tick })
  assert.ok(ticks === 50 && 5 * Number(steps) < ticks, `${ticks} ticks beside ${steps} steps`)
})

test('an aborted signal reaches the thread as stop, and it ends at its own safe point', async () => {
  const abort = new AbortController()
  const onMessage = () => abort.abort()
  const result = await runInEngineThread(work, 'untilStopped', { steps: 1e6 }, { onMessage, signal: abort.signal })
  assert.deepEqual(result, { why: 'stop', finished: false })
})

test('a control message sent before anybody listens is not lost', async () => {
  const result = await runInEngineThread(
    work,
    'untilStopped',
    { steps: 1e6 },
    { onStart: (control) => control('early') },
  )
  assert.deepEqual(result, { why: 'early', finished: false })
})

test('errors come back with name, code, message, fields and the stack of the thread', async () => {
  await assert.rejects(runInEngineThread(work, 'failInOp', null), (error: Error & { code?: string; op?: string }) => {
    assert.equal(error.code, 'ERR_TORCH')
    assert.equal(error.op, 'aten::add.Tensor')
    assert.match(error.message, /size of tensor a \(4\) must match/)
    assert.match(error.stack ?? '', /engine-work/)
    return true
  })
  await assert.rejects(runInEngineThread(work, 'failLater', null), /thrown from a timer/)
  await assert.rejects(
    runInEngineThread(work, 'nothing', null),
    /nothing: expected an exported function, got .*compute/,
  )
  await assert.rejects(runInEngineThread(work, 'leave', null), /ended with code 3/)
  await assert.rejects(runInEngineThread(new URL('./no-such-module.js', work), 'x', null), /Cannot find module/)
})

test('a listener that throws fails the run', async () => {
  const onMessage = () => {
    throw new Error('disk full')
  }
  await assert.rejects(
    runInEngineThread(
      work,
      'converse',
      { from: 1 },
      { onMessage: (m) => ('progress' in (m as object) ? onMessage() : 1) },
    ),
    /disk full/,
  )
})

test('a listener that is slow to fail still fails the run whose result has come', async () => {
  const onMessage = async (message: unknown) => {
    if (!('progress' in (message as object))) return 1
    await new Promise((resolve) => setTimeout(resolve, 300))
    throw new Error('disk full')
  }
  await assert.rejects(runInEngineThread(work, 'converse', { from: 1 }, { onMessage }), /disk full/)
})

test('after a thread has ended the next one finds an empty engine', async () => {
  assert.equal(await runInEngineThread(work, 'litter', null), 10)
  assert.equal(await runInEngineThread(work, 'litter', null), 10)
})

test('a second environment that loads the addon gets an error, and the first continues', async () => {
  const stop = stopFlag()
  const second = new Promise((resolve, reject) => {
    const loader = extension === 'ts' ? import.meta.resolve('tsx/esm/api') : null
    const code = `(async () => {
      if (${JSON.stringify(loader)}) (await import(${JSON.stringify(loader)})).register()
      const { native } = await import(${JSON.stringify(engine)})
      try { native(); throw new Error('loaded twice') } catch (error) { require('node:worker_threads').parentPort.postMessage(error.message) }
    })()`
    const options: EngineThreadOptions = {
      async onMessage() {
        const worker = new Worker(code, { eval: true, execArgv: [] })
        resolve(await new Promise((done, fail) => worker.on('message', done).on('error', fail)))
        Atomics.store(stop, 0, 1)
      },
    }
    runInEngineThread(work, 'compute', { size: 64, stop }, options).catch(reject)
  })
  assert.match(String(await second), /belongs to one thread of the process/)
})

/** A process whose engine thread computes for ten minutes; `then` runs in its main thread once it does. */
function endOf(
  then: string,
  signal?: NodeJS.Signals,
): Promise<{ code: number | null; signal: string | null; seconds: number }> {
  const source = `
    const { runInEngineThread } = await import(${JSON.stringify(engine)})
    const onMessage = () => setTimeout(() => { console.log('computing'); ${then} }, 100)
    await runInEngineThread(${JSON.stringify(work.href)}, 'compute', { size: 700 }, { onMessage })`
  const loader = extension === 'ts' ? ['--import', 'tsx'] : []
  const child = spawn(process.execPath, [...loader, '--input-type=module', '-e', source], {
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  let from = 0
  child.stdout.once('data', () => {
    from = performance.now()
    if (signal) child.kill(signal)
  })
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code, by) => resolve({ code, signal: by, seconds: (performance.now() - from) / 1000 }))
  })
}

test('process.exit, an uncaught error and SIGTERM end the process in the middle of compute', async () => {
  const ends = [endOf('process.exit(7)'), endOf("throw new Error('main fails')"), endOf('', 'SIGTERM')] as const
  const [exit, thrown, terminated] = await Promise.all(ends)
  assert.equal(exit.code, 7)
  assert.equal(thrown.code, 1)
  assert.equal(terminated.signal, 'SIGTERM')
  for (const end of [exit, thrown, terminated]) assert.ok(end.seconds < 300, `${end.seconds} s`) // not ten minutes
})
