// Datasets with bad records, too few records, or records that change under the run.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { stream } from '../../src/core/index.ts'
import { encodePng } from '../../src/image/index.ts'
import { encodeRle, maskFromDense } from '../../src/mask/index.ts'
import { hostOf, runBytes, stoppingAfter } from '../support/runs.ts'
import { type Bench, refusal, withClock } from './bench.ts'
import { quick, type Row } from './row.ts'

const [width, height] = [56, 56]

/** Records of our own JSONL; every `bad`th is one of several kinds that cannot be used. */
async function dataset(bench: Bench, name: string, count: number, bad: number): Promise<string> {
  const dir = bench.at(name)
  mkdirSync(dir)
  const random = stream('faults', name)
  const data = Uint8Array.from({ length: width * height * 3 }, () => random.below(256))
  writeFileSync(join(dir, 'a.png'), await encodePng({ width, height, data }))
  writeFileSync(join(dir, 'torn.png'), readFileSync(join(dir, 'a.png')).subarray(0, 100))
  const bits = new Uint8Array(width * height).fill(1, 100, 1500)
  const mask = encodeRle(maskFromDense(bits, height, width))
  const empty = encodeRle(maskFromDense(new Uint8Array(width * height), height, width))
  const whole = (i: number) => ({ id: `r${i}`, image: 'a.png', mask, caption: `a thing ${i}` })
  const kinds: ((i: number) => object | string)[] = [
    (i) => ({ ...whole(i), image: 'torn.png' }),
    (i) => ({ ...whole(i), image: 'missing.png' }),
    (i) => ({ ...whole(i), mask: empty }),
    (i) => ({ ...whole(i), caption: '' }),
    () => '{"id": "half',
  ]
  const lines = Array.from({ length: count }, (_, i) => {
    const record = bad > 0 && i % bad === bad - 1 ? kinds[Math.floor(i / bad) % kinds.length]!(i) : whole(i)
    return typeof record === 'string' ? record : JSON.stringify(record)
  })
  writeFileSync(join(dir, 'records.jsonl'), `${lines.join('\n')}\n`)
  return join(dir, 'records.jsonl')
}

const reading = (dataPath: string, fraction = 0.2) => ({
  dataPath,
  data: { workers: 0, evalFraction: 0, shuffle: false, maxRejectFraction: fraction },
})

async function few(bench: Bench): Promise<string> {
  const dataPath = await dataset(bench, 'few', 12, 4)
  const input = { ...reading(dataPath, 0.5), batchSize: 2, maxSteps: 4 }
  await bench.train('few-run', input)
  const host = stoppingAfter(2)
  await bench.train('few-split', input, host)
  await bench.train('few-split', input)
  assert.deepEqual(runBytes(bench.at('few-split')), runBytes(bench.at('few-run')))
  const warnings = bench.events('few-run').filter((e) => e.t === 'warning')
  assert.match(
    String(warnings[0]?.['text']),
    /so far: 1 image-unreadable; new: .*records\.jsonl: .* \(image-unreadable\)$/,
  )
  return `${warnings.length} warnings: ${warnings[0]!['text']}; the same after a resume`
}

async function many(bench: Bench): Promise<string> {
  const dataPath = await dataset(bench, 'many', 12, 2)
  return refusal(() => bench.train('many-run', { ...reading(dataPath, 0.1), maxSteps: 40 }), /unusable|usable/)
}

async function none(bench: Bench): Promise<string> {
  const empty = await dataset(bench, 'none', 0, 0)
  await refusal(() => bench.train('none-run', reading(empty)), /record/)
  const three = await dataset(bench, 'three', 3, 0)
  return refusal(() => bench.train('three-run', { ...reading(three), batchSize: 8 }), /at least batchSize \(8\)/)
}

async function changing(bench: Bench): Promise<string> {
  const dataPath = await dataset(bench, 'changing', 24, 0)
  const { data, ...rest } = reading(dataPath)
  const input = { ...rest, data: { ...data, prefetch: 1 }, batchSize: 4 }
  return withClock(
    (setOff) => {
      const host = hostOf(undefined, {
        progress: (e) => {
          if (e.kind !== 'step' || e.step !== 1) return
          truncateSync(dataPath, 100)
          setOff(60_000) // a file is checked again after a second, which four steps may not take
        },
      })
      return refusal(() => bench.train('changing-run', input, host), /records\.jsonl/)
    },
    [performance],
  )
}

export const data: readonly Row[] = [
  quick(49, 'bad-records', 'some records are bad in five ways', 'counted', few),
  quick(50, 'half-bad', 'half of the records are bad', 'words', many),
  quick(51, 'too-few', 'no record, or fewer than a batch', 'words', none),
  quick(52, 'changing', 'the dataset changes during the run', 'words', changing),
]
