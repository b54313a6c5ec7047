// Region captions on RefCOCOg, in the layout that GLaMM and Sa2VA evaluate: one file of masks, one of captions, joined by id.
import { join } from 'node:path'
import { z } from 'zod'
import { parseWith } from '../config/index.ts'
import { Mismatch, namesIn, pushTo, readJson } from '../core/index.ts'
import { encodeRle, type Rle } from '../mask/index.ts'
import { ciderD, meteor } from '../rewards/index.ts'
import { regionQuestion } from '../text/index.ts'
import { annotationTarget, type Instances, imageOf, readInstances } from './coco.ts'
import { findFolder, findImages } from './folders.ts'
import { type MeasureOptions, measure, share } from './measure.ts'
import { unionTarget } from './target.ts'
import type { TextBenchmark, TextItem } from './text-benchmark.ts'

const maskFile = /^finetune_refcocog_(val|test)_with_mask\.json$/

const Captions = z.object({ annotations: z.array(z.object({ image_id: z.number(), caption: z.string() })) })

function readCaptions(file: string): Map<number, string[]> {
  const out = new Map<number, string[]>()
  for (const { image_id, caption } of parseWith(Captions, readJson(file), file).annotations)
    pushTo(out, image_id, caption)
  return out
}

/** Annotation, caption and image share one id: an image that occurs with three regions has three entries. */
function itemsOf(instances: Instances): TextItem[] {
  return [...instances.annotations.values()].map((annotation) => {
    const where = `${instances.file}: annotation ${annotation.id}`
    const image = imageOf(instances, annotation.image_id, where)
    const regions: Rle[] = [encodeRle(unionTarget(annotationTarget(instances, image, annotation.id, where)))]
    return { id: String(annotation.image_id), image: image.file_name, regions, question: regionQuestion }
  })
}

export function openRegionCaptions(data: string, images: string | null): TextBenchmark {
  const below = ['region_caption/refcocog', 'refcocog', 'annotations']
  const has = (folder: string) => namesIn(folder).some((name) => maskFile.test(name))
  const folder = findFolder(data, below, has, 'a folder with finetune_refcocog_val_with_mask.json')
  const source = join(folder, namesIn(folder).find((name) => maskFile.test(name))!)
  const captions = readCaptions(source.replace('_with_mask', '_captions'))
  const items = itemsOf(readInstances(source))
  const lost = items.find((item) => !captions.has(Number(item.id)))
  if (lost) throw new Mismatch({ where: source, field: lost.id, expected: 'a caption of the same id', got: 'none' })
  return {
    ...{ name: 'refcocog-captions', source, items, published: null },
    images: () => findImages(folder, images, items[0]?.image ?? ''),
    score: async (answers, options) => scoreCaptions(items, captions, answers, options),
  }
}

/** What Sa2VA's script deletes from an answer, substrings inside words included: "this" becomes "th". */
export function sa2vaCaption(text: string): string {
  const words = ['region1', 'Region1', 'The region marked by', 'The region marked as', ':', 'is', 'shows']
  return words.reduce((kept, word) => kept.replaceAll(word, ''), text).trim()
}

function scoreCaptions(
  items: readonly TextItem[],
  captions: ReadonlyMap<number, readonly string[]>,
  answers: ReadonlyMap<string, string>,
  options: MeasureOptions,
) {
  const pairs = items.map(({ id }) => ({ candidate: answers.get(id)!, references: captions.get(Number(id))! }))
  const cider = ciderD(pairs)
  const cleaned = ciderD(pairs.map((p) => ({ ...p, candidate: sa2vaCaption(p.candidate) })))
  const rows = pairs.map(({ candidate, references }, i) => {
    const best = Math.max(...references.map((reference) => meteor(reference, candidate)))
    return { id: items[i]!.id, answer: candidate, references, meteor: best, cider: cider[i]!, ciderSa2va: cleaned[i]! }
  })
  const measured = rows.map((row, i) => ({
    image: items[i]!.image,
    values: [row.meteor, row.cider, row.ciderSa2va, 1],
  }))
  const metrics = { 'METEOR (nltk)': share(0, 3), 'CIDEr-D': share(1, 3), 'CIDEr-D (Sa2VA clean-up)': share(2, 3) }
  return { metrics: measure(measured, metrics, options), rows }
}
