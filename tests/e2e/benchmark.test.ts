// `roundtrip eval --benchmark` as a user has it: predictions of a file, a model end to end, a stop in between, a comparison.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after, before } from 'node:test'
import { fileURLToPath } from 'node:url'
import { makeRefCoco } from '../support/benchmark-folder.ts'
import { type Outcome, roundtrip, start } from './cli.ts'

const golden = fileURLToPath(new URL('../fixtures/golden/benchmarks-tiny', import.meta.url))
const model = fileURLToPath(new URL('../../assets/miniature', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'roundtrip-benchmark-'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))
before(() => makeRefCoco(at('scenes'), 24))

type Row = Record<string, number | string>

function succeeded(outcome: Outcome): Outcome {
  assert.equal(outcome.code, 0, `${outcome.out}\n${outcome.err}`)
  return outcome
}

const tableOf = (file: string) => (JSON.parse(readFileSync(file, 'utf8')) as { table: Row[] }).table

test('every metric of benchmarks-tiny comes from its predictions, in every protocol', async () => {
  const expected = tableOf(join(golden, 'expected.json'))
  const names = [...new Set(expected.map((row) => row['benchmark']))].join(',')
  const predictions = ['--predictions', join(golden, 'predictions.jsonl'), '--out', at('golden'), '--json']
  const { out, err } = succeeded(await roundtrip('eval', '--benchmark', names, '--data', golden, ...predictions))
  const { table } = JSON.parse(out) as { table: Row[] }
  assert.equal(table.length, expected.length)
  for (const want of expected) {
    const same = (row: Row) => (['benchmark', 'split', 'protocol'] as const).every((key) => row[key] === want[key])
    const printed = table.find(same)!
    const stored = tableOf(at(`golden/eval-${want['benchmark']}-${want['split']}.json`)).find(same)!
    for (const [key, value] of Object.entries(want)) {
      if (typeof value !== 'number') continue
      for (const row of [printed, stored])
        assert.ok(Math.abs((row[key] as number) - value) < 1e-6, `${JSON.stringify(want)} ${key}`)
    }
  }
  assert.match(err, /refcoco val: 13 sentences, the published split has 10834/)
})

const onScenes = ['eval', '--benchmark', 'refcoco', '--data', at('scenes'), '--model', model, '--evalBatch', '4']

/** SIGINT once the evaluation has begun; one that had ended before the signal came is begun anew. */
async function stoppedInside(out: string): Promise<Outcome> {
  for (let attempt = 0; ; attempt++) {
    const stopped = start(...onScenes, '--out', out)
    await stopped.seen(/evaluation refcoco/)
    stopped.signal('SIGINT')
    const outcome = await stopped.ended
    if (outcome.code !== 0 || attempt === 9) return outcome
    rmSync(out, { recursive: true })
  }
}

test('a model is stopped by a signal and resumes: the same metrics and rows as without the stop', async () => {
  const whole = succeeded(await roundtrip(...onScenes, '--out', at('whole')))
  assert.match(whole.out, /refcoco +val +union +24 +12 +0 +\d/)
  assert.match(whole.out, /val +testA +testB\n/)
  const { code, err } = await stoppedInside(at('stopped'))
  assert.deepEqual([code, /the same command resumes/.test(err)], [130, true], err)
  assert.ok(!existsSync(at('stopped/eval-refcoco-val.json')), 'no metrics of a part')
  const resumed = succeeded(await roundtrip(...onScenes, '--out', at('stopped')))
  assert.equal(resumed.out, whole.out)
  const rows = (dir: string) => readFileSync(at(`${dir}/eval-refcoco.jsonl`), 'utf8')
  assert.equal(rows('stopped'), rows('whole'))
  const [row] = tableOf(at('whole/eval-refcoco-val.json'))
  assert.ok((row!['gIoU'] as number) > 0.1, `the miniature reads scenes: ${row!['gIoU']}`)
})

test('before and after: the change with its interval in the terminal, and a page', async () => {
  succeeded(await roundtrip(...onScenes, '--out', at('forced'), '--protocol', 'forced,union', '--split', 'val'))
  const files = ['whole', 'forced'].map((dir) => at(`${dir}/eval-refcoco-val.json`))
  const { out, err } = succeeded(await roundtrip('eval', '--compare', ...files, '--out', at('compare')))
  assert.match(out, /refcoco val, protocol union: 24 sentences, 12 images/)
  assert.match(out, /gIoU +\d+\.\d +\d+\.\d +[+-]\d+\.\d \[[+-]\d+\.\d, [+-]\d+\.\d\]/)
  assert.match(out, /B is better on \d+ sentences, worse on \d+, equal on \d+/)
  assert.match(err, /page: .*compare-refcoco-val\.html/)
  assert.deepEqual(readdirSync(at('compare')), ['compare-refcoco-val.html'])
})

test('a flag that would do nothing is refused', async () => {
  const { code, err } = await roundtrip('eval', '--split', 'val', '--data', golden, '--model', model)
  assert.deepEqual(
    [code, /--split: expected nothing: eval does not read it.*belongs to eval --benchmark/.test(err)],
    [1, true],
    err,
  )
})
