import assert from 'node:assert/strict'
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { makeRefCoco } from '../../tests/support/benchmark-folder.ts'
import { maskFromDense } from '../mask/index.ts'
import type { ImageQuestions } from './answer.ts'
import { type AnswerRun, answerBenchmark, openBenchmark, readPredictions, scoreRecords } from './index.ts'

const root = mkdtempSync(join(tmpdir(), 'roundtrip-benchmark-run-'))
after(() => rmSync(root, { recursive: true, force: true }))
before(() => makeRefCoco(root, 8))

/** A model that draws the left half of what it is asked about, and keeps a list of what it was asked. */
function leftHalf(stopAfter = Number.POSITIVE_INFINITY) {
  const asked: ImageQuestions[][] = []
  const answer = (images: readonly ImageQuestions[]) => {
    if (asked.length >= stopAfter) throw new Error('the power went')
    asked.push([...images])
    return images.map(({ image: { height, width }, questions }) =>
      questions.map((text) => ({
        text,
        mask: maskFromDense(
          Uint8Array.from({ length: height * width }, (_, q) => (q % width < width / 2 ? 1 : 0)),
          height,
          width,
        ),
      })),
    )
  }
  return { asked, answer }
}

function runOf(rows: string, change: Partial<AnswerRun>): AnswerRun {
  const benchmark = openBenchmark(root, 'refcoco')
  const host = { progress: () => undefined, stopping: () => false, yieldToLoop: async () => undefined }
  const usual = { benchmark, records: benchmark.records, header: { model: 'a' }, batch: 4, host }
  return { ...usual, rows: join(root, rows), answer: leftHalf().answer, ...change }
}

test('each image comes once, with all its sentences, as the whole question', async () => {
  const { asked, answer } = leftHalf()
  assert.equal(await answerBenchmark(runOf('once.jsonl', { answer })), true)
  const images = asked.flat()
  assert.equal(images.length, 8)
  assert.ok(images.every((i) => i.questions.length === 2))
  assert.ok(
    asked.every((batch) => batch.flatMap((i) => i.questions).length === 4),
    'four sentences a batch',
  )
  assert.match(images[0]!.questions[1]!, /^<image>\n Please segment the \w+ in this image\.$/)
})

test('an interrupted run resumes with what is missing, and leaves the same rows as one that did not', async () => {
  await answerBenchmark(runOf('whole.jsonl', {}))
  await assert.rejects(answerBenchmark(runOf('broken.jsonl', { answer: leftHalf(2).answer })), /the power went/)
  appendFileSync(join(root, 'broken.jsonl'), '{"benchmark":"refcoco","split":"val","id":4,"sen')
  const { asked, answer } = leftHalf()
  await answerBenchmark(runOf('broken.jsonl', { answer }))
  assert.equal(asked.flat().length, 4, 'four of the eight images were open')
  assert.equal(readFileSync(join(root, 'broken.jsonl'), 'utf8'), readFileSync(join(root, 'whole.jsonl'), 'utf8'))
  const again = leftHalf()
  await answerBenchmark(runOf('broken.jsonl', { answer: again.answer }))
  assert.equal(again.asked.length, 0)
})

test('a stop is heard between two batches, and the progress counts what was open', async () => {
  const seen: [number, number, number][] = []
  const host = {
    progress: (...event: [number, number, number]) => void seen.push(event),
    stopping: () => seen.length > 2,
    yieldToLoop: async () => undefined,
  }
  assert.equal(await answerBenchmark(runOf('stopped.jsonl', { host })), false)
  assert.deepEqual(seen, [[0, 16, 0], [4, 16, 0], [8, 16, 0]]) // biome-ignore format: a table
  seen.length = 0
  await answerBenchmark(runOf('stopped.jsonl', { host: { ...host, stopping: () => false } }))
  assert.deepEqual(seen, [[0, 8, 8], [4, 8, 8], [8, 8, 8]]) // biome-ignore format: a table
})

test('the rows are predictions: scored again they give the I and U that they say', async () => {
  const run = runOf('scored.jsonl', {})
  await answerBenchmark(run)
  const scored = await scoreRecords(openBenchmark(root, 'refcoco'), run.records, readPredictions(run.rows, 'refcoco'))
  const rows = readFileSync(run.rows, 'utf8').trim().split('\n').slice(1)
  const said = rows.map((line) => JSON.parse(line) as { id: number; sentence: number; I: number; U: number })
  assert.deepEqual(
    said.map(({ I, U }) => [I, U]),
    scored.map((s) => [s.scores['union']!.intersection, s.scores['union']!.union]),
  )
  assert.ok(said.some(({ I }) => I > 0))
})

test('rows of another model are not mixed in; what differs is named, and nothing else', async () => {
  await answerBenchmark(runOf('mixed.jsonl', { header: { model: 'a', seed: 1 } }))
  const other = runOf('mixed.jsonl', { header: { model: 'b', seed: 1 } })
  await assert.rejects(answerBenchmark(other), /header: expected \{"model":"b"\}, got \{"model":"a"\}.*another --out/)
})

test('images that are not there are counted before the first answer', async () => {
  const { asked, answer } = leftHalf()
  const run = runOf('gone.jsonl', { answer })
  const [kept, gone] = [run.records[0]!, { ...run.records.at(-1)!, image: 'nowhere.png' }]
  const missing = /nowhere\.png: expected an image, got nothing there, as with 1 of 2 images.*--images DIR/
  await assert.rejects(answerBenchmark({ ...run, batch: 1, records: [kept, gone] }), missing)
  assert.equal(asked.length, 0)
})

test('an image of another size than its annotations is named', async () => {
  const benchmark = openBenchmark(root, 'refcoco')
  const file = join(benchmark.folder, 'instances.json')
  const text = readFileSync(file, 'utf8')
  const instances = JSON.parse(text) as { images: { width: number }[]; annotations: { segmentation: unknown }[] }
  instances.images[0]!.width = 90
  instances.annotations[0]!.segmentation = []
  writeFileSync(file, JSON.stringify(instances))
  try {
    const changed = openBenchmark(root, 'refcoco')
    const run = runOf('size.jsonl', { benchmark: changed, records: changed.records })
    await assert.rejects(answerBenchmark(run), /scene-11-0\.png: size: expected the 90 x 112 .* got 112 x 112/)
  } finally {
    writeFileSync(file, text)
  }
})
