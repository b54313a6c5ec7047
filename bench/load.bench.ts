// `roundtrip caption` on the CPU with a checkpoint of the full Sa2VA-4B shape: loading from a warm cache, peak memory, one token.
// ROUNDTRIP_BENCH_MODEL names a folder written by tools/make-checkpoint.ts; without it one of 7.9 GB is written to the temporary
// folder. `other` is the limit that must hold.
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { log } from '../src/core/index.ts'
import { type BenchRow, row } from './bench.ts'

const at = (path: string) => fileURLToPath(new URL(`../${path}`, import.meta.url))
const golden = 'tests/fixtures/golden/sa2va-tiny'

interface Measured {
  loading: number
  peakGiB: number
  tokens: number
  seconds: number
}

/** The kernel's own high-water mark of a process, mapped files included; undefined once it has ended. */
function peakOf(pid: number): number | undefined {
  try {
    const kb = readFileSync(`/proc/${pid}/status`, 'utf8').match(/^VmHWM:\s+(\d+)/m)
    return kb ? Number(kb[1]) / 2 ** 20 : undefined
  } catch {
    return undefined
  }
}

async function caption(model: string): Promise<Measured> {
  const began = performance.now()
  const picture = ['--image', at(`${golden}/image.png`), '--mask', at(`${golden}/mask.png`)]
  const args = ['caption', '--model', model, ...picture, '--max-tiles', '1', '--max-new-tokens', '1', '--json']
  const child = spawn(process.execPath, [at('bin/roundtrip.mjs'), ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  let [out, err, peakGiB] = ['', '', 0]
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text
    process.stderr.write(text)
  })
  const watch = setInterval(() => {
    peakGiB = peakOf(child.pid!) ?? peakGiB
  }, 50)
  const status = await new Promise((done) => child.on('close', done))
  clearInterval(watch)
  if (status !== 0) throw new Error(`caption ended with ${status}: ${err}`)
  const loading = Number(err.match(/model ready after ([\d.]+) s/)![1])
  const { tokens } = JSON.parse(out) as { tokens: number }
  return { loading, peakGiB, tokens, seconds: (performance.now() - began) / 1000 }
}

export async function run(): Promise<BenchRow[]> {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-bench-load-'))
  try {
    const model = process.env.ROUNDTRIP_BENCH_MODEL ?? join(folder, '4b')
    if (!process.env.ROUNDTRIP_BENCH_MODEL) {
      log.info(`writing 7.9 GB of random weights to ${model}`)
      execFileSync(process.execPath, ['--import', 'tsx', at('tools/make-checkpoint.ts'), model, '--shape', '4b'])
    }
    const first = await caption(model) // fills the page cache
    const warm = await caption(model)
    return [
      row('loading, warm cache', warm.loading, 60, 's'),
      row('loading, first time', first.loading, null, 's'),
      row('largest resident memory of the command', Math.max(first.peakGiB, warm.peakGiB), 12, 'GiB'),
      row('caption tokens', warm.tokens, 1, 'tokens'),
      row('the whole command, warm cache', warm.seconds, null, 's'),
    ]
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
