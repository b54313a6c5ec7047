// The live page's server on a run of 20,000 steps and 500,000 samples: time until the curves are answered and until all samples are
// indexed, and peak memory. `other` is the limit. On a busy machine only the CPU time is meaningful.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type BenchRow, row } from './bench.ts'
import { makeLargeRun } from './large-run.ts'
import { cpuSeconds, serveRuns } from './watch-server.ts'

interface Summary {
  id: string
  step: number
  samplesWhole: boolean
}

export async function run(): Promise<BenchRow[]> {
  const folder = mkdtempSync(join(tmpdir(), 'watch-large-'))
  makeLargeRun(folder, '0;51003')
  const server = await serveRuns(folder)
  try {
    const [startedAt, usedAt] = [performance.now(), cpuSeconds(server.pid)]
    const since = () => ({ clock: (performance.now() - startedAt) / 1000, used: cpuSeconds(server.pid) - usedAt })
    const ask = async (path: string) => (await fetch(new URL(path, server.url))).json()
    const summary = async () => ((await ask('/api/runs')) as { runs: Summary[] }).runs[0]
    const until = async (wanted: (found: Summary) => boolean): Promise<Summary> => {
      for (;;) {
        const found = await summary()
        if (found && wanted(found)) return found
        await new Promise((done) => setTimeout(done, 20))
      }
    }
    const { id } = await until(({ step }) => step === 20_000)
    const { metrics } = (await ask(`/api/runs/${id}`)) as { metrics: string[] }
    const names = metrics.map((name): [string, string] => ['name', name])
    await ask(`/api/runs/${id}/series?${new URLSearchParams(names)}`)
    const curves = since()
    await until(({ samplesWhole }) => samplesWhole)
    const samples = since()
    const peak = Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${server.pid}/status`, 'utf8'))?.[1]) / 1024
    return [
      row('curves, CPU time', curves.used, 2, 's'),
      row('curves, by the clock', curves.clock, 2, 's'),
      row('all samples indexed, CPU time', samples.used, null, 's'),
      row('peak memory of the server', peak, 300, 'MB'),
    ]
  } finally {
    server.close()
    rmSync(folder, { recursive: true, force: true })
  }
}
