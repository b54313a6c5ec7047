// A tracker over the network that goes away. The clock is the row's, so that minutes pass with the steps.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { newestValid } from '../../src/checkpoint/index.ts'
import { sha256 } from '../../src/core/index.ts'
import type { RunInput } from '../../src/run/index.ts'
import { hostOf, spread } from '../support/runs.ts'
import { type Bench, refusal, withClock } from './bench.ts'
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

interface Life {
  /** Between two steps, by the row's clock. */
  seconds: number
  steps: number
  more?: Partial<RunInput>
  stepped?(step: number): void
}

/** A run whose tracker has answered, or has failed to, before each step. Returns the warnings of the tracker. */
async function watched(bench: Bench, output: string, { seconds, steps, more, stepped }: Life): Promise<string[]> {
  const life = (setOff: (ms: number) => void) =>
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
          stepped?.(event.step!)
        },
      })
      await bench.train(output, { maxSteps: steps, saveSteps: 0, reportTo: ['mlflow'], ...more }, host)
      assert.equal(newestValid(bench.at(output)).checkpoint?.step, steps)
    })
  await withClock(life, [Date, performance])
  const notices = bench.events(output).filter((e) => e.t === 'warning' && e['kind'] === 'tracker')
  return notices.map((e) => String(e['text']))
}

const upTo = (steps: number) => Array.from({ length: steps }, (_, i) => i + 1)

async function away(bench: Bench): Promise<string> {
  return await withServer(async (server) => {
    const minute = await watched(bench, 'tracker-minute', {
      seconds: 12,
      steps: 10,
      stepped: (step) => {
        server.there = step < 2 || step > 7
      },
    })
    assert.deepEqual(server.steps, upTo(10), 'every step has come to the tracker')
    assert.equal(minute.length, 1, minute.join('; '))
    server.there = false
    const longer = await watched(bench, 'tracker-without', { seconds: 180, steps: 8, more: { reportTimeout: 0 } })
    assert.equal(longer.length, 2, longer.join('; '))
    assert.match(longer[1]!, /mlflow: failed \d+ times in \d+ minutes and is left alone now/)
    return `unreachable for a minute: one warning, and every step arrived; permanently, with reportTimeout 0: ${longer[1]}; both runs whole`
  })
}

async function gone(bench: Bench): Promise<string> {
  const calm = { seconds: 600, steps: 8 }
  return await withServer(async (server) => {
    const leaves = (step: number) => {
      server.there = step < 2
    }
    const said = await refusal(
      () => watched(bench, 'tracker-gone', { ...calm, stepped: leaves }),
      /mlflow: reportTimeout: expected an answer within 1800 s, got failures for \d+ s, the last: .* step [67] is saved/,
    )
    const step = Number(/step (\d) is saved/.exec(said)![1])
    assert.equal(newestValid(bench.at('tracker-gone')).checkpoint?.step, step)
    assert.deepEqual(server.steps, [1], 'no step has come since')
    server.there = true
    await watched(bench, 'tracker-gone', calm)
    assert.deepEqual(server.steps, upTo(8), 'the same command sends what waited')
    await watched(bench, 'tracker-calm', { ...calm, more: { reportTo: [] } })
    const [stopped, undisturbed] = ['tracker-gone', 'tracker-calm'].map((name) => weightsOf(bench.at(name)))
    assert.deepEqual(stopped, undisturbed, 'weights of a run that nothing disturbed')
    return `${said.split('. ')[0]}; step ${step} saved; the same command again: all 8 steps at the tracker, the weights of an undisturbed run`
  })
}

const weightsOf = (run: string) =>
  sha256(readFileSync(join(newestValid(run).checkpoint!.path, 'adapter_model.safetensors')))

export const trackers: readonly Row[] = [
  quick(65, 'tracker', 'a tracker goes away for a minute, and for good', 'counted', away),
  quick(66, 'tracker-gone', 'a tracker is unreachable for longer than reportTimeout', 'ends', gone),
]
