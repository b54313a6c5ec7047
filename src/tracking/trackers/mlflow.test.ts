import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterEach, test } from 'node:test'
import { config, expectedRows, newFolder, train } from '../../../tests/support/tracked-run.ts'
import { readRun } from '../run-reader.ts'
import { RunWriter } from '../run-writer.ts'
import { MlflowTracker } from './mlflow.ts'

const before = { ...process.env }
afterEach(() => {
  for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name]
})

interface Asked {
  path: string
  body: Record<string, unknown>
  authorization: string | undefined
}

/** A server that speaks as much MLflow as the tracker asks for; `answer` may refuse. */
async function mlflow(answer: (path: string, count: number) => number = () => 200) {
  const asked: Asked[] = []
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    let text = ''
    request.setEncoding('utf8').on('data', (piece: string) => {
      text += piece
    })
    request.on('end', () => {
      const path = request.url!.replace('/api/2.0/mlflow/', '')
      asked.push({ path, body: text === '' ? {} : JSON.parse(text), authorization: request.headers.authorization })
      const status = answer(path, asked.length)
      const missing = path.startsWith('experiments/get-by-name')
      response.statusCode = status === 200 && missing ? 404 : status
      const bodies: Record<string, unknown> = {
        'experiments/create': { experiment_id: '5' },
        'runs/create': { run: { info: { run_id: 'run-1' } } },
      }
      response.end(JSON.stringify(bodies[path] ?? {}))
    })
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  process.env.MLFLOW_TRACKING_URI = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { asked, close: () => server.close() }
}

test('an MLflow server gets the experiment, the settings, every number and the end', async () => {
  const dir = newFolder()
  process.env.MLFLOW_TRACKING_TOKEN = 'secret-token'
  const { asked, close } = await mlflow()
  await train(dir, 400, ['mlflow'])
  close()
  assert.deepEqual(
    asked.slice(0, 3).map(({ path }) => path.split('?')[0]),
    ['experiments/get-by-name', 'experiments/create', 'runs/create'],
  )
  assert.ok(asked.every(({ authorization }) => authorization === 'Bearer secret-token'))
  const batches = asked.filter(({ path }) => path === 'runs/log-batch').map(({ body }) => body)
  const params = batches.flatMap((body) => (body.params ?? []) as { key: string; value: string }[])
  assert.deepEqual(
    params.find(({ key }) => key === 'rl.beta'),
    { key: 'rl.beta', value: '0.04' },
  )
  const metrics = batches.flatMap((body) => (body.metrics ?? []) as { key: string; value: unknown; step: number }[])
  assert.ok(batches.every((body) => ((body.metrics ?? []) as unknown[]).length <= 1000))
  for (const [step, expected] of expectedRows(dir)) {
    const found = metrics.filter((m) => m.step === step).map(({ key, value }) => [key, Number(value)])
    const numbers = Object.entries(expected).filter(([key]) => !/\/(low|high)$/.test(key))
    assert.deepEqual(Object.fromEntries(found), Object.fromEntries(numbers), `step ${step}`)
  }
  assert.deepEqual(asked.at(-1)?.path, 'runs/update')
  assert.equal(asked.at(-1)?.body.status, 'FINISHED')
})

test('metrics that a server did not take are sent again', async () => {
  const dir = newFolder()
  const { asked, close } = await mlflow((_, count) => (count <= 2 ? 503 : 200))
  await train(dir, 5, ['mlflow'])
  close()
  const steps = asked.flatMap(({ body }) =>
    ((body.metrics ?? []) as { key: string; step: number }[]).filter((m) => m.key === 'loss').map((m) => m.step),
  )
  assert.deepEqual(steps, [1, 2, 3, 4, 5])
  const notices = readRun(dir).events.filter((e) => e.t === 'warning')
  assert.ok(notices.every((e) => e.kind === 'tracker' && e.text.startsWith('mlflow: ')))
})

/** Numbers of `loss` that came, as [step, value]. */
const lossesOf = (asked: readonly Asked[]) =>
  asked.flatMap(({ body }) =>
    ((body.metrics ?? []) as { key: string; step: number; value: unknown }[])
      .filter(({ key }) => key === 'loss')
      .map(({ step, value }) => [step, value]),
  )

const pathsOf = (asked: readonly Asked[], path: string) => asked.filter((request) => request.path === path)

test('a resumed run sends what an MLflow server missed at the end, to the same MLflow run', async (t) => {
  const dir = newFolder()
  let [now, there] = [performance.now(), true]
  t.mock.method(performance, 'now', () => now)
  const { asked, close } = await mlflow(() => (there ? 200 : 503))
  const turn = async (writer: RunWriter, step: number) => {
    now += 10_000
    writer.step(step, { loss: step === 4 ? Number.NaN : step }, { step_time: 0.5 })
    while (asked.length === 0) await new Promise((done) => setImmediate(done))
  }
  const first = RunWriter.create(dir, { config, environment: {}, reportTo: ['mlflow'] })
  await turn(first, 1)
  while (lossesOf(asked).length === 0) await new Promise((done) => setImmediate(done))
  there = false
  for (const step of [2, 3, 4]) await turn(first, step)
  first.eval(4, 'step 4', 2, { giou: { mean: 0.5, low: 0, high: 1 } })
  first.stop(4, 'stopped')
  await first.close()
  const tried = asked.length
  there = true
  const again = RunWriter.resume(dir, 4, undefined, { reportTo: ['mlflow'] })
  await turn(again, 5)
  again.stop(5, 'done')
  await again.close()
  close()
  const second = asked.slice(tried)
  assert.deepEqual(lossesOf(second), [
    [2, 2],
    [3, 3],
    [4, 'NaN'],
    [5, 5],
  ])
  assert.equal(pathsOf(asked, 'runs/create').length, 1)
  assert.deepEqual(
    pathsOf(second, 'runs/update').map(({ body }) => body.status),
    ['RUNNING', 'FINISHED'],
  )
  const kept = second.flatMap(({ body }) => (body.metrics ?? []) as { key: string; step: number; value: unknown }[])
  assert.deepEqual(kept.find(({ key }) => key === 'eval/giou')?.value, 0.5)
  assert.equal(kept.filter(({ key, value }) => key === 'step_time' && value === 0.5).length, 4)
})

test('a server that does not know the run any more gets all of it as a new one', async () => {
  const dir = newFolder()
  const known = await mlflow()
  await train(dir, 3, ['mlflow'])
  known.close()
  assert.equal(lossesOf(known.asked).length, 3)
  const { asked, close } = await mlflow((path) =>
    path === 'runs/update' && pathsOf(asked, 'runs/create').length === 0 ? 404 : 200,
  )
  const kept = join(dir, 'mlflow.json')
  const reached = JSON.parse(readFileSync(kept, 'utf8')) as Record<string, unknown>
  writeFileSync(kept, JSON.stringify({ ...reached, server: `${process.env.MLFLOW_TRACKING_URI}/api/2.0/mlflow` }))
  const again = RunWriter.resume(dir, 3, undefined, { reportTo: ['mlflow'] })
  again.step(4, { loss: 4 })
  await again.close()
  close()
  assert.deepEqual(
    lossesOf(asked).map(([step]) => step),
    [1, 2, 3, 4],
  )
  assert.equal(pathsOf(asked, 'runs/create').length, 1)
})

test('more metrics than memory may hold are read from the log when the server is back', async (t) => {
  const dir = newFolder()
  let [now, there] = [performance.now(), false]
  t.mock.method(performance, 'now', () => now)
  const { asked, close } = await mlflow(() => (there ? 200 : 503))
  const writer = RunWriter.create(dir, { config, environment: {} })
  const tracker = new MlflowTracker(process.env.MLFLOW_TRACKING_URI!, { dir, name: 'run', settings: {} })
  const many = Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`m${i}`, i]))
  for (let step = 1; step <= 14; step++) {
    now += 10_000
    there = step > 12
    const metrics = { loss: step, ...many }
    writer.step(step, metrics)
    const sent = Promise.resolve(tracker.step(step, metrics, 0))
    await (there ? sent : assert.rejects(sent, /503/))
  }
  await writer.close()
  await tracker.close('done', 0)
  close()
  assert.deepEqual(
    lossesOf(asked),
    Array.from({ length: 14 }, (_, i) => [i + 1, i + 1]),
  )
})
