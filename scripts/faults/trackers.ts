// A tracker over the network that goes away. The clock is the row's, so that minutes pass with the steps.
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { newestValid } from '../../src/checkpoint/index.ts'
import { hostOf, spread } from '../../tests/support/runs.ts'
import { type Bench, withClock } from './bench.ts'
import { quick, type Row } from './row.ts'

interface Server {
  /** Steps whose loss has come. */
  readonly steps: number[]
  there: boolean
}

/** As much of an MLflow server as a run asks for; while it is not there connections break. */
async function withServer<T>(work: (server: Server) => Promise<T>): Promise<T> {
  const seen: Server = { steps: [], there: true }
  const replies: Record<string, unknown> = {
    'experiments/create': { experiment_id: '5' },
    'runs/create': { run: { info: { run_id: 'run-1' } } },
  }
  const server = createServer(async (request, response) => {
    if (!seen.there) return void request.socket.destroy()
    const pieces: Buffer[] = []
    for await (const piece of request) pieces.push(piece as Buffer)
    const path = request.url!.replace('/api/2.0/mlflow/', '').split('?')[0]!
    const { metrics = [] } = JSON.parse(Buffer.concat(pieces).toString() || '{}') as { metrics?: Metric[] }
    seen.steps.push(...metrics.filter(({ key }) => key === 'learning_rate').map(({ step }) => step))
    response.end(JSON.stringify(replies[path] ?? {}))
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  process.env['MLFLOW_TRACKING_URI'] = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  try {
    return await work(seen)
  } finally {
    delete process.env['MLFLOW_TRACKING_URI']
    server.closeAllConnections()
    server.close()
  }
}

interface Metric {
  key: string
  step: number
}

/** Waits for the answers of the tracker before a step, so that what it does in a step is the same on every machine. */
async function answered<T>(work: (settled: () => Promise<void>) => Promise<T>): Promise<T> {
  const real = globalThis.fetch
  let open = 0
  globalThis.fetch = async (...args) => {
    open++
    try {
      const answer = await real(...args)
      return new Response(await answer.arrayBuffer(), answer)
    } finally {
      open--
    }
  }
  const turn = () => new Promise((done) => setImmediate(done))
  try {
    return await work(async () => {
      for (let quiet = 0; quiet < 3; quiet = open > 0 ? 0 : quiet + 1) await turn()
    })
  } finally {
    globalThis.fetch = real
  }
}

/** A run with a step every `seconds`; `stepped` hears of each. */
async function watched(bench: Bench, output: string, seconds: number, steps: number, stepped: (step: number) => void) {
  return await withClock((setOff) =>
    answered(async (settled) => {
      const calm = hostOf(spread)
      const host = hostOf(spread, {
        score: async (...args) => {
          await settled()
          return await calm.score(...args)
        },
        progress: (event) => {
          if (event.kind !== 'step') return
          setOff(1000 * seconds * event.step!)
          stepped(event.step!)
        },
      })
      await bench.train(output, { maxSteps: steps, saveSteps: steps, reportTo: ['mlflow'] }, host)
      assert.equal(newestValid(bench.at(output)).checkpoint?.step, steps)
      const notices = bench.events(output).filter((e) => e.t === 'warning' && e['kind'] === 'tracker')
      return notices.map((e) => String(e['text']))
    }),
  )
}

async function away(bench: Bench): Promise<string> {
  return await withServer(async (server) => {
    const minute = await watched(bench, 'tracker-minute', 12, 10, (step) => {
      server.there = step < 2 || step > 7
    })
    assert.deepEqual(server.steps, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 'every step has come to the tracker')
    assert.equal(minute.length, 1, minute.join('; '))
    server.there = false
    const longer = await watched(bench, 'tracker-gone', 180, 8, () => undefined)
    assert.equal(longer.length, 2, longer.join('; '))
    assert.match(longer[1]!, /mlflow: failed \d+ times in \d+ minutes and is left alone now/)
    return `away for a minute: one notice, and every step came; for good: ${longer[1]}; both runs whole`
  })
}

export const trackers: readonly Row[] = [
  quick(65, 'tracker', 'a tracker goes away for a minute, and for good', 'counted', away),
]
