// DLC-Bench: detailed captions of regions, judged by a language model that answers fixed multiple-choice questions about each.
import { join } from 'node:path'
import { z } from 'zod'
import { parseWith } from '../config/index.ts'
import { Mismatch, namesIn, readJson, readJsonObject } from '../core/index.ts'
import { encodeRle } from '../mask/index.ts'
import { parseChoice } from '../rewards/index.ts'
import { regionQuestions } from '../text/index.ts'
import { annotationTarget, imageOf, readInstances } from './coco.ts'
import { findFolder, findImages } from './folders.ts'
import { type MeasureOptions, measure, share } from './measure.ts'
import { unionTarget } from './target.ts'
import type { TextBenchmark, TextItem, TextScores } from './text-benchmark.ts'

const DlcQuestion = z.object({
  question: z.string(),
  /** Text and score. */
  choices: z.array(z.tuple([z.string(), z.number()])),
  type: z.string(),
})
export type DlcQuestion = z.infer<typeof DlcQuestion>
/** By annotation. */
const Questions = z.record(z.string(), z.array(DlcQuestion))

/** One request to the judge; the reply's text. */
export type AskJudge = (prompt: string) => Promise<string>

export interface DlcOptions {
  images: string | null
  /** Null: no judge, the answers are only collected. */
  ask: AskJudge | null
  /** Words around description, question and choices; {description}, {question} and {choices} are filled in. */
  prompt?: string
}

/** Our own wording of the published rules; another, such as the authors', comes from a file. */
export const judgePrompt = `You answer one multiple-choice question about a description of an object. Follow these rules. Do not reason, do not correct the description, do not repeat the question. Answer with exactly one of the choices, letter and text. The wording need not match; take the closest choice.

Description: {description}

Question: {question}

Choices:
{choices}`

const letters = 'ABCDE'

function requestOf(prompt: string, description: string, question: string, choices: readonly string[]): string {
  const list = choices.map((text, i) => `${letters[i]}. ${text}`).join('\n')
  const values: Record<string, string> = { description, question, choices: list }
  return prompt.replace(/\{(description|question|choices)\}/g, (_, name: string) => values[name]!)
}

/** A class in the plural ends in s, but for bus, glass and their like; the authors ask a library of English inflections. */
export function isPlural(name: string): boolean {
  return /s$/i.test(name) && !/(ss|us)$/i.test(name)
}

function recognition(name: string): string {
  if (isPlural(name)) return `Are the objects in the description likely to be ${name}, or objects of a similar kind?`
  const article = /^[aeiou]/i.test(name) ? 'an' : 'a'
  return `Is the object in the description likely to be ${article} ${name}, or an object of a similar kind?`
}

export interface DlcScore {
  id: string
  answer: string
  recognised: boolean
  positive: number[]
  negative: number[]
  /** Replies that named no choice. */
  unread: number
}

/** Scores of one caption: a class that is not recognised leaves no score above 0. */
export async function judgeCaption(
  ask: AskJudge,
  prompt: string,
  caption: string,
  className: string,
  questions: readonly DlcQuestion[],
): Promise<Omit<DlcScore, 'id' | 'answer'>> {
  const put = async (question: string, choices: readonly string[]) =>
    parseChoice(await ask(requestOf(prompt, caption, question, choices)), choices)
  const known = await put(recognition(className), ['Yes', 'No'])
  const textsOf = (q: DlcQuestion) => q.choices.map(([text]) => text)
  const picked = await Promise.all(questions.map((q) => put(q.question, textsOf(q))))
  const recognised = known === 0
  const scores = questions.map((q, i) => {
    const score = picked[i] === null ? 0 : q.choices[picked[i]!]![1]
    return recognised ? score : Math.min(0, score)
  })
  const of = (type: 'positive' | 'negative') => scores.filter((_, i) => questions[i]!.type === type)
  const unread = [known, ...picked].filter((choice) => choice === null).length
  return { recognised, positive: of('positive'), negative: of('negative'), unread }
}

/** A name for each annotation that has questions. */
function readClasses(file: string, questions: ReadonlyMap<string, unknown>): Map<string, string> {
  const classes = readJsonObject(file)
  const odd = [...questions.keys()].find((id) => typeof classes[id] !== 'string')
  if (odd === undefined) return new Map(Object.entries(classes as Record<string, string>))
  throw new Mismatch({ where: file, field: odd, expected: 'a name', got: classes[odd] ?? 'none' })
}

export function openDlcBench(data: string, options: DlcOptions): TextBenchmark {
  const below = ['annotations', 'DLC-Bench', 'DLC-Bench/annotations', 'evaluation/DLC-Bench/annotations']
  const has = (f: string) => ['annotations.json', 'qa.json', 'class_names.json'].every((n) => namesIn(f).includes(n))
  const folder = findFolder(data, below, has, 'a folder with annotations.json, qa.json and class_names.json')
  const source = join(folder, 'annotations.json')
  const instances = readInstances(source)
  const qa = join(folder, 'qa.json')
  const questions = new Map(Object.entries(parseWith(Questions, readJson(qa), qa)))
  const classes = readClasses(join(folder, 'class_names.json'), questions)
  const items = [...questions.keys()].map((id): TextItem => {
    const annotation = instances.annotations.get(Number(id))
    if (!annotation)
      throw new Mismatch({ where: source, field: 'id', expected: `annotation ${id} of qa.json`, got: 'none' })
    const image = imageOf(instances, annotation.image_id, `${source}: annotation ${id}`)
    const target = annotationTarget(instances, image, annotation.id, source)
    return { id, image: image.file_name, regions: [encodeRle(unionTarget(target))], question: regionQuestions[1]! }
  })
  return {
    ...{ name: 'dlc-bench', source, items, published: 100 },
    images: () => findImages(folder, options.images, items[0]?.image ?? ''),
    score: (answers, scoring) => scoreAll(items, questions, classes, answers, options, scoring),
  }
}

export function noJudge(): Mismatch {
  const [field, expected] = ['rewards.judge.enabled', 'a judge for DLC-Bench']
  const hint =
    '--rewards.judge.enabled true --rewards.judge.baseUrl URL; the published numbers use Llama-3.1-8B-Instruct'
  return new Mismatch({ where: 'flags', field, expected, got: 'none', hint })
}

const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length

async function scoreAll(
  items: readonly TextItem[],
  questions: ReadonlyMap<string, readonly DlcQuestion[]>,
  classes: ReadonlyMap<string, string>,
  answers: ReadonlyMap<string, string>,
  { ask, prompt = judgePrompt }: DlcOptions,
  options: MeasureOptions,
): Promise<TextScores> {
  if (!ask) throw noJudge()
  const rows = await Promise.all(
    items.map(async ({ id }): Promise<DlcScore> => {
      const answer = answers.get(id)!
      return { id, answer, ...(await judgeCaption(ask, prompt, answer, classes.get(id)!, questions.get(id)!)) }
    }),
  )
  // mean of each instance, then of the instances that have such questions
  const column = (scores: readonly number[]) => (scores.length > 0 ? [mean(scores), 1] : [0, 0])
  const measured = rows.map((row, i) => ({
    image: items[i]!.image,
    values: [...column(row.positive), ...column(row.negative), Number(row.recognised), 1],
  }))
  const [Pos, Neg] = [share(0, 1), share(2, 3)]
  const metrics = { Pos, Neg, Avg: (s: Float64Array) => (Pos(s) + Neg(s)) / 2, recognised: share(4, 5) }
  return { metrics: measure(measured, metrics, options), rows: rows.map((row) => ({ ...row })) }
}
