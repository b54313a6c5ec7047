// Reading a large Arrow set: opening, random reads, an epoch through the loader with its memory, decode + tiling.
// ROUNDTRIP_BENCH_ARROW names a set written by tools/make-big-arrow.ts (2 GB for the numbers in docs/data.md); without it a
// small one is written to the temporary folder. `other` is the limit.
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { openLoader, openSource, type Source } from '../src/data/index.ts'
import { tiles } from '../src/image/index.ts'
import { makeBigArrow } from '../tools/make-big-arrow.ts'
import { type BenchRow, median, row } from './bench.ts'

async function timed<T>(work: () => Promise<T>): Promise<[number, T]> {
  const began = performance.now()
  const result = await work()
  return [performance.now() - began, result]
}

async function randomReads(source: Source, n: number): Promise<number[]> {
  const times: number[] = []
  for (let i = 0; i < n; i++) {
    const index = (i * 7919) % source.length
    times.push((await timed(() => source.get(index)))[0])
  }
  return times
}

/** An epoch through the loader in this process: images per second and the largest resident memory. */
async function epoch(path: string): Promise<{ perSecond: number; peakMB: number; records: number }> {
  const source = await openSource(path)
  const loader = openLoader(source, { workers: 2 })
  let peak = 0
  const watch = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage().rss)
  }, 20)
  const began = performance.now()
  let records = 0
  for await (const _ of loader) records++
  const perSecond = (1000 * records) / (performance.now() - began)
  clearInterval(watch)
  await loader.close()
  await source.close()
  return { perSecond, peakMB: peak / 1e6, records }
}

/** Images per CPU second: decoding, and decoding plus 448 px tiles, on the main thread. */
async function decodeAndTile(source: Source, n: number): Promise<{ decode: number; both: number }> {
  const cpu = () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1e6
  }
  let decoding = 0
  let tiling = 0
  for (let i = 0; i < n; i++) {
    const start = cpu()
    const { image } = await source.get(i)
    const middle = cpu()
    tiles(image)
    decoding += middle - start
    tiling += cpu() - middle
  }
  return { decode: n / decoding, both: n / (decoding + tiling) }
}

/** The epoch runs in a separate process, so that only its memory is measured. */
async function epochApart(path: string): Promise<Awaited<ReturnType<typeof epoch>>> {
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--import',
    'tsx',
    fileURLToPath(import.meta.url),
    path,
  ])
  return JSON.parse(stdout)
}

async function measure(path: string): Promise<BenchRow[]> {
  const [first, once] = await timed(() => openSource(path))
  await once.close()
  const [opening, source] = await timed(() => openSource(path))
  try {
    await randomReads(source, 3)
    const reads = await randomReads(source, Math.min(100, source.length))
    const cost = await decodeAndTile(source, Math.min(30, source.length))
    const streamed = await epochApart(path)
    return [
      row(`open with index of ${source.length} records`, opening, 1000, 'ms'),
      row('open the first time, indexing', first, null, 'ms'),
      row('random read with decode, median', median(reads), 50, 'ms'),
      row(`epoch of ${streamed.records}: largest resident memory`, streamed.peakMB, 600, 'MB'),
      row('epoch through the loader, 2 workers', streamed.perSecond, null, 'images/s'),
      row('decode', cost.decode, null, 'images/s per core'),
      row('decode + 448 px tiles', cost.both, null, 'images/s per core'),
    ]
  } finally {
    await source.close()
  }
}

export async function run(): Promise<BenchRow[]> {
  const given = process.env.ROUNDTRIP_BENCH_ARROW
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-bench-data-'))
  process.env.ROUNDTRIP_CACHE = join(folder, 'cache')
  try {
    const path = given ?? join(folder, 'set')
    if (!given) await makeBigArrow(path, 0.1)
    return await measure(path)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const called = process.argv[1] === fileURLToPath(import.meta.url) ? process.argv[2] : undefined
if (called) process.stdout.write(JSON.stringify(await epoch(called)))
