// GAR-Bench VQA: multiple-choice questions about one or several regions; right is the letter, and nothing but the letter.
import { dirname, join } from 'node:path'
import { z } from 'zod'
import { namesIn, readJson } from '../core/index.ts'
import type { Rle } from '../mask/index.ts'
import { findFolder } from './folders.ts'
import { rowsOf } from './list.ts'
import { type MeasureOptions, measure, share } from './measure.ts'
import type { TextBenchmark, TextItem } from './text-benchmark.ts'

const fileName = 'GAR-Bench-VQA.json'

const Item = z.object({
  image: z.string(),
  question: z.string(),
  choices: z.array(z.string()),
  answer: z.string(),
  type: z.string(),
  mask_rles: z.array(z.custom<Rle>()), // checked where they are decoded
})
type Item = z.infer<typeof Item>

/** `<Prompt0>` is what GAR calls the first region; the models here know it as region1. */
function questionOf({ question, choices }: Item): string {
  const named = (text: string) => text.replace(/<Prompt(\d+)>/g, (_, n: string) => `region${Number(n) + 1}`)
  const options = choices.map((choice) => `\n${named(choice)}`).join('')
  return `<image>\nQuestion: ${named(question)}\nOptions:${options}\nAnswer with the correct option's letter directly.`
}

export function openGarVqa(data: string): TextBenchmark {
  const below = ['annotations', 'GAR-Bench', 'GAR-Bench/annotations', 'evaluation/GAR-Bench/annotations']
  const folder = findFolder(data, below, (f) => namesIn(f).includes(fileName), `a folder with ${fileName}`)
  const source = join(folder, fileName)
  const stored = rowsOf(readJson(source), source, 'item', Item)
  const items = stored.map((item, i): TextItem => {
    return { id: String(i), image: item.image, regions: item.mask_rles, question: questionOf(item) }
  })
  return {
    ...{ name: 'gar-vqa', source, images: () => dirname(source), items, published: 424 },
    score: async (answers, options) => scoreVqa(stored, answers, options),
  }
}

const same = (a: string, b: string) => a.trim().toLowerCase() === b.trim().toLowerCase()

/** Accuracy of each type of question, and overall. */
function scoreVqa(items: readonly Item[], answers: ReadonlyMap<string, string>, options: MeasureOptions) {
  const types = [...new Set(items.map((item) => item.type))].sort()
  const rows = items.map((item, i) => {
    const answer = answers.get(String(i))!
    return { id: String(i), type: item.type, expected: item.answer, answer, right: same(answer, item.answer) }
  })
  const measured = items.map((item, i) => ({
    image: item.image,
    // columns 2k and 2k + 1: right ones and items of type k; the last two are over all
    values: [...types.map((type) => item.type === type), true].flatMap((is) => [
      Number(is && rows[i]!.right),
      Number(is),
    ]),
  }))
  const all = 2 * types.length
  const metrics = Object.fromEntries([
    ...types.map((type, k) => [type, share(2 * k, 2 * k + 1)] as const),
    ['overall', share(all, all + 1)] as const,
  ])
  return { metrics: measure(measured, metrics, options), rows }
}
