// A judge that answers late: the other round trip is sampled and learned from meanwhile, and the run is that of a judge that answers at once.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { sha256 } from '../../src/core/index.ts'
import { runHosted } from '../../src/host/index.ts'
import { resolveRun } from '../../src/run/index.ts'
import { startServer } from '../support/judge-server.ts'
import { scratch } from '../support/runs.ts'
import type { JudgedInput } from './judge-work.ts'

const folder = scratch('judge-overlap')
after(() => rmSync(folder, { recursive: true, force: true }))
const ending = import.meta.url.slice(-2)
const module = new URL(`./judge-work.${ending}`, import.meta.url).href
const model = join(import.meta.dirname, '../../assets/miniature')

interface Late {
  /** Of the first request: its file lets the other round trip be sampled. */
  asked: string
}

/** One step whose second round trip is judged. A late judge answers when the first has been learned from. */
async function run(name: string, late: Late | null): Promise<{ numbers: string; requests: number }> {
  const [output, learned] = [join(folder, name), join(folder, `${name}-learned`)]
  let ended = false
  const isLearned = async () => {
    while (!existsSync(learned) && !ended) await new Promise((done) => setTimeout(done, 5))
  }
  const server = await startServer(async ({ user }) => {
    if (user.includes('Say yes')) return 'yes' // before the run
    if (late) {
      writeFileSync(late.asked, '')
      await isLearned()
    }
    return String(user.length % 11)
  })
  const config = resolveRun({
    ...{ model, output, dataPath: 'scenes:24', device: 'cpu', threads: 1, evalRecords: 0, batchSize: 2, maxSteps: 1 },
    ...{ saveSteps: 0, checkGroups: false, data: { workers: 0 }, lora: { rank: 4, alpha: 8 } },
    rl: { numGenerations: 3, maxCompletionLength: 10 },
    rewards: {
      preset: 'cycle-judge',
      judge: {
        enabled: true,
        baseUrl: server.url,
        model: 'words',
        mode: 'number',
        ...{ timeoutMs: 120_000, retries: 0, onUnavailable: 'stop' as const },
        cacheDir: join(folder, `${name}-cache`),
      },
    },
  })
  const input: JudgedInput = { config, asked: late?.asked ?? null, learned }
  try {
    await runHosted({ module, work: 'judgedWork', input, label: 'train', scores: { config, fromFiles: new Set() } })
  } finally {
    ended = true
    await server.close()
  }
  return { numbers: numbersOf(output), requests: server.asked.length }
}

/** Metrics of the step, and hashes of samples and weights. */
function numbersOf(output: string): string {
  const lines = readFileSync(join(output, 'events.jsonl'), 'utf8').trim().split('\n')
  const events = lines.map((line) => JSON.parse(line) as { t: string; metrics: object })
  const files = (readdirSync(output, { recursive: true }) as string[]).sort()
  const kept = files.filter((file) => /samples\.jsonl$|\.safetensors$/.test(file))
  const metrics = events.filter(({ t }) => t === 'step').map((event) => event.metrics)
  return JSON.stringify([metrics, kept.map((file) => [file, sha256(readFileSync(join(output, file)))])])
}

test('a judge is asked before the other round trip is sampled, which is learned from before the judge answers: with the same results', async () => {
  const plain = await run('plain', null)
  assert.ok(plain.requests > 2, `${plain.requests} requests`)
  // a run that waited in another order would not end: sampling waits for a request, and every answer for what is learned
  const late = await run('late', { asked: join(folder, 'asked') })
  assert.equal(late.numbers, plain.numbers)
  assert.equal(late.requests, plain.requests)
})
