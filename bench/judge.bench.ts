// What a judge that answers after a second costs: `roundtrip train` as in train.bench.ts, the captions of loop 2 judged by a server on
// loopback. It answers every second step late, so that both kinds of step are of one run. Without a GPU the delay is that share of a step
// which a second is on an H200. `other` of the ratio: the steps answered at once. ROUNDTRIP_BENCH_STEPS: steps that count (12).
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TimingLine } from '../src/tracking/index.ts'
import { type BenchRow, median, row } from './bench.ts'
import { onGpu } from './gpu/random-model.ts'
import { modelFolder, settings, start, stepsOf, writeRecords } from './train.bench.ts'

const [warmUps, counted] = [4, Number(process.env.ROUNDTRIP_BENCH_STEPS ?? 12)]

export async function run(): Promise<BenchRow[]> {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-judge-'))
  const [recipe, output] = [join(folder, 'recipe.json'), join(folder, 'run')]
  const asked = new Set<number>()
  let delay = 0
  const server = createServer((request, response) => {
    const done = existsSync(join(output, 'timing.jsonl')) ? stepsOf(output).map(({ time }) => time) : []
    const late = done.length >= warmUps && done.length % 2 === 1
    if (late) asked.add(done.length)
    if (delay === 0 && done.length === warmUps) delay = onGpu ? 1000 : 0.61 * (done.at(-1)! - done.at(-2)!)
    const reply = () => response.end(JSON.stringify({ choices: [{ message: { content: '7' } }] }))
    request.resume().on('end', () => setTimeout(reply, late ? delay : 0))
  })
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  const judge = { enabled: true, mode: 'number', cacheDir: join(folder, 'cache') }
  try {
    const model = await modelFolder(join(folder, 'model'))
    const dataPath = await writeRecords(folder, 4 * (warmUps + counted))
    const rewards = { preset: 'cycle-judge', judge }
    writeFileSync(
      recipe,
      JSON.stringify({ model, dataPath, output, ...settings, rewards, maxSteps: warmUps + counted }),
    )
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
    await start(['bin/roundtrip.mjs', 'train', '--recipe', recipe, '--llm_judge_base_url', url])
    return rowsOf(stepsOf(output), asked, delay)
  } finally {
    server.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

/** `asked`: steps whose requests were answered late; one in which the judge was not asked counts for neither. */
function rowsOf(steps: readonly TimingLine[], asked: ReadonlySet<number>, delay: number): BenchRow[] {
  const wall = (i: number) => steps[i]!.time - steps[i - 1]!.time
  const waited = (i: number) => (steps[i]!.metrics?.['seconds/score'] ?? 0) * 1000
  const all = Array.from({ length: steps.length - warmUps }, (_, i) => warmUps + i)
  const [late, atOnce] = [[...asked], all.filter((i) => i % 2 === 0)]
  const of = (which: readonly number[], value: (i: number) => number) => median(which.map(value))
  return [
    row('delay of the judge', delay, null, 'ms'),
    row(`step, answered late (${late.length})`, of(late, wall), of(atOnce, wall), 'ms'),
    row('  of it waiting for scores', of(late, waited), of(atOnce, waited), 'ms'),
    row('  limit', of(late, wall) / of(atOnce, wall), 1.1, 'times'),
  ]
}
