// GAR-Bench VQA: multiple-choice questions about one or several regions; right is the letter, and nothing but the letter.
import { dirname, join } from 'node:path'
import { Mismatch, readJson } from '../core/index.ts'
import type { Rle } from '../mask/index.ts'
import { findFolder, namesIn } from './folders.ts'
import { type MeasureOptions, measure, share } from './measure.ts'
import type { TextBenchmark, TextItem } from './text-benchmark.ts'

const fileName = 'GAR-Bench-VQA.json'

interface Item {
  image: string
  question: string
  choices: string[]
  answer: string
  type: string
  mask_rles: Rle[]
}

function checked(item: Partial<Item> | null, where: string): Item {
  const check = (isRight: boolean, field: string, expected: string, got: unknown) => {
    if (!isRight) throw new Mismatch({ where, field, expected, got })
  }
  for (const field of ['image', 'question', 'answer', 'type'] as const)
    check(typeof item?.[field] === 'string', field, 'a text', item?.[field] ?? 'none')
  for (const field of ['choices', 'mask_rles'] as const)
    check(Array.isArray(item?.[field]), field, 'a list', item?.[field] ?? 'none')
  for (const [i, choice] of item!.choices!.entries())
    check(typeof choice === 'string', `choices[${i}]`, 'a text', choice ?? 'null')
  return item as Item
}

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
  const value = readJson(source)
  if (!Array.isArray(value)) throw new Mismatch({ where: source, expected: 'a list of items', got: typeof value })
  const stored = value.map((item, i) => checked(item as Partial<Item> | null, `${source}: item ${i}`))
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
