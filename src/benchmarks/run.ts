// A benchmark answered by a model: image by image, each sentence's row appended as soon as it is known, so that a run that was
// stopped resumes where it ended.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Mismatch, pushTo } from '../core/index.ts'
import { decodeImage, type RgbImage } from '../image/index.ts'
import { encodeRle } from '../mask/index.ts'
import type { AnswerImages, MaskAnswer } from './answer.ts'
import type { BenchmarkRecord } from './benchmark.ts'
import { checkImages } from './folders.ts'
import { isMaskBenchmark } from './open.ts'
import { predictionKey } from './predictions.ts'
import { protocolsOf } from './protocols.ts'
import { answerInBatches, type Row, type RowsRun } from './rows.ts'
import { type Target, unionTarget } from './target.ts'

/** What a run must know of a benchmark whose answers are masks. */
export interface AnswerSource {
  name: string
  orient: boolean
  images(): string
}

export interface AnswerRun extends RowsRun {
  benchmark: AnswerSource
  records: readonly BenchmarkRecord[]
  /** Sentences per batch, about: an image's sentences stay together. */
  batch: number
  answer: AnswerImages
}

interface Asked {
  record: BenchmarkRecord
  sentence: number
}

function rowKey(value: Row): string {
  const text = (field: string) => String(value[field])
  return predictionKey(text('benchmark'), text('split'), text('id'), Number(value['sentence']))
}

/** Open sentences by image, in batches of about `batch` sentences. */
function batchesOf({ benchmark, records, batch }: AnswerRun, known: ReadonlySet<string>): Map<string, Asked[]>[] {
  const byImage = new Map<string, Asked[]>()
  for (const record of records) {
    record.sentences.forEach((_, sentence) => {
      if (known.has(predictionKey(benchmark.name, record.split, record.id, sentence))) return
      pushTo(byImage, record.image, { record, sentence })
    })
  }
  const batches: Map<string, Asked[]>[] = []
  let room = 0
  for (const [image, asked] of byImage) {
    if (room <= 0) {
      batches.push(new Map())
      room = batch
    }
    batches.at(-1)!.set(image, asked)
    room -= asked.length
  }
  return batches
}

interface Loaded {
  batch: Map<string, Asked[]>
  images: RgbImage[]
  targets: Map<BenchmarkRecord, Target>
}

async function load(run: AnswerRun, folder: string, batch: Map<string, Asked[]>): Promise<Loaded> {
  const { orient } = run.benchmark
  const images = await Promise.all(
    [...batch.keys()].map((name) => {
      const path = join(folder, name)
      return decodeImage(readFileSync(path), path, { orient })
    }),
  )
  const targets = new Map<BenchmarkRecord, Target>()
  for (const [i, [name, asked]] of [...batch].entries()) {
    for (const { record } of asked) {
      if (!targets.has(record))
        targets.set(record, checkedTarget(await record.target(), images[i]!, join(folder, name)))
    }
  }
  return { batch, images, targets }
}

function checkedTarget(target: Target, image: RgbImage, where: string): Target {
  if (target.height === image.height && target.width === image.width) return target
  const expected = `the ${target.width} x ${target.height} that the annotations are for`
  throw new Mismatch({ where, field: 'size', expected, got: `${image.width} x ${image.height}` })
}

function rowOf(run: AnswerRun, { record, sentence }: Asked, target: Target, { text, mask }: MaskAnswer) {
  const { name } = run.benchmark
  const score = isMaskBenchmark(name) ? protocolsOf(name)[0]!.scorer(target)(mask) : null
  return {
    ...{ benchmark: name, split: record.split, id: record.id, sentence },
    ...{ image: record.image, text: record.sentences[sentence], answer: text },
    ...(score ? { I: score.intersection, U: score.union } : {}),
    rle: mask && encodeRle(mask),
  }
}

/** Answers every open sentence; returns false when it was stopped before the last. */
export async function answerBenchmark(run: AnswerRun): Promise<boolean> {
  return answerInBatches<Map<string, Asked[]>, Loaded>(run, (known) => {
    const batches = batchesOf(run, new Set(known.map(rowKey)))
    const total = batches.reduce((n, batch) => n + [...batch.values()].flat().length, 0)
    const folder = total === 0 ? '' : run.benchmark.images()
    const images = batches.flatMap((batch) => [...batch.keys()])
    checkImages(images, folder)
    return { total, batches, load: (batch) => load(run, folder, batch), answer: (loaded) => answerBatch(run, loaded) }
  })
}

function answerBatch(run: AnswerRun, { batch, images, targets }: Loaded): Row[] {
  const asked = [...batch.values()]
  const questions = asked.map((rows, i) => ({
    image: images[i]!,
    questions: rows.map(({ record, sentence }) => record.questions[sentence]!),
    sentences: rows.map(({ record, sentence }) => record.sentences[sentence]!),
    target: (j: number) => unionTarget(targets.get(rows[j]!.record)!),
  }))
  const answers = run.answer(questions)
  return asked.flatMap((list, i) => list.map((a, j) => rowOf(run, a, targets.get(a.record)!, answers[i]![j]!)))
}
