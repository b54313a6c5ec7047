// From a reference caption's checklist (what it states, what it does not mention) to multiple-choice questions. The judge
// only fills in the checklist; every item is checked against the reference here, and every sentence is written here.
import { sha256, shuffled, stream } from '../../core/index.ts'
import { porterStem, wordNet } from '../meteor/index.ts'
import { makeSafe, talksToJudge } from './hostile.ts'

export interface Positive {
  part: string | null
  attribute: string
  value: string
}

export interface Negative {
  name: string
  plural: boolean
  kind: 'part' | 'object'
}

export interface Checklist {
  object: string
  plural: boolean
  positives: Positive[]
  negatives: Negative[]
}

export interface Option {
  text: string
  score: number
}

export interface Question {
  kind: 'recognition' | 'positive' | 'negative' | 'canary'
  text: string
  options: Option[]
}

const [text, flag] = [{ type: 'string' }, { type: 'boolean' }]
const listOf = (items: object) => ({ type: 'array', items })
const objectOf = (properties: Readonly<Record<string, object>>) => {
  return { type: 'object', additionalProperties: false, required: Object.keys(properties), properties }
}

export const checklistSchema = {
  name: 'checklist',
  schema: objectOf({
    object: text,
    plural: flag,
    positives: listOf(objectOf({ part: { type: ['string', 'null'] }, attribute: text, value: text })),
    negatives: listOf(objectOf({ name: text, plural: flag, kind: { ...text, enum: ['part', 'object'] } })),
  }),
}

const stopWords = new Set(
  'a an the of and or with in on at to by for from as is are was were be its it his her their this that these those has have'.split(
    ' ',
  ),
)

/** Stems of a text's words, without the small ones. */
export function contentStems(text: string): string[] {
  const words = text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []
  return words.filter((w) => !stopWords.has(w)).map(porterStem)
}

/** Stems of a text's words and of their synonyms. */
function widerStems(text: string): Set<string> {
  const out = new Set(contentStems(text))
  for (const word of text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []) {
    if (!stopWords.has(word)) for (const synonym of wordNet().synonyms(word)) out.add(porterStem(synonym))
  }
  return out
}

/** A short phrase fit for a question, or null. */
function phrase(value: unknown): string | null {
  if (typeof value !== 'string' || value.length > 80 || /[\r\n]/.test(value)) return null
  const { text, flags } = makeSafe(value, 16)
  return text === '' || flags.length > 0 || talksToJudge(text) ? null : text
}

function readPositive(item: unknown, reference: ReadonlySet<string>): Positive | null {
  const raw = (item ?? {}) as Record<string, unknown>
  const part = raw.part === null || raw.part === undefined || raw.part === '' ? null : phrase(raw.part)
  const attribute = phrase(raw.attribute)
  const value = phrase(raw.value)
  if (!attribute || !value || (part === null && typeof raw.part === 'string' && raw.part !== '')) return null
  const stems = contentStems(value)
  return stems.length > 0 && stems.every((s) => reference.has(s)) ? { part, attribute, value } : null
}

function readNegative(item: unknown, taken: ReadonlySet<string>): Negative | null {
  const raw = (item ?? {}) as Record<string, unknown>
  const name = phrase(raw.name)
  if (!name || (raw.kind !== 'part' && raw.kind !== 'object')) return null
  const stems = contentStems(name)
  return stems.length > 0 && !stems.some((s) => taken.has(s))
    ? { name, plural: raw.plural === true, kind: raw.kind }
    : null
}

function distinct<T>(items: readonly (T | null)[], keyOf: (item: T) => string, most: number): T[] {
  const byKey = new Map<string, T>()
  for (const item of items) if (item && !byKey.has(keyOf(item))) byKey.set(keyOf(item), item)
  return [...byKey.values()].slice(0, most)
}

/** A checklist whose every item agrees with the reference; null when there is no object. */
export function readChecklist(
  value: unknown,
  reference: string,
  most: { positives: number; negatives: number },
): Checklist | null {
  const raw = (value ?? {}) as Record<string, unknown>
  const object = phrase(raw.object)
  if (!object) return null
  const list = (x: unknown): unknown[] => (Array.isArray(x) ? x.slice(0, 100) : [])
  const stated = new Set(contentStems(reference))
  const taken = widerStems(`${reference} ${object}`)
  const positives = list(raw.positives).map((item) => readPositive(item, stated))
  const negatives = list(raw.negatives).map((item) => readNegative(item, taken))
  const key = (...parts: (string | null)[]) => parts.map((p) => contentStems(p ?? '').join(' ')).join('|')
  return {
    object,
    plural: raw.plural === true,
    positives: distinct(positives, (p) => key(p.part, p.attribute, p.value), most.positives),
    negatives: distinct(negatives, (n) => key(n.name), most.negatives),
  }
}

const article = (name: string) => (/^[aeiou]/i.test(name) ? 'an' : 'a')

function recognition(c: Checklist): Question {
  const what = c.plural ? c.object : `${article(c.object)} ${c.object}`
  return {
    kind: 'recognition',
    text: `Going by the text, could the thing it describes be ${what}, or something of the same kind?`,
    options: [
      { text: 'Yes', score: 1 },
      { text: 'No', score: 0 },
    ],
  }
}

function positive(p: Positive, object: string): Question {
  const subject = p.part ?? object
  return {
    kind: 'positive',
    text: `What does the text say of the ${p.attribute} of the ${subject}?`,
    options: [
      { text: `The text does not mention the ${subject}.`, score: 0 },
      {
        text: `The text mentions the ${subject} but says nothing of its ${p.attribute}.`,
        score: p.part === null ? 0 : 0.5,
      },
      { text: `The text gives the ${subject} a ${p.attribute} that is not "${p.value}".`, score: -1 },
      { text: `The text says that the ${p.attribute} of the ${subject} is "${p.value}", or means the same.`, score: 1 },
    ],
  }
}

function negative(n: Negative, object: string, kind: 'negative' | 'canary' = 'negative'): Question {
  const options = [
    { text: `The text does not mention the ${n.name}.`, score: 1 },
    { text: `The text mentions the ${n.name} as something that is there.`, score: -1 },
  ]
  if (n.kind === 'part') options.push({ text: `The text does not mention the ${object} itself.`, score: 0 })
  return { kind, text: `Does the text speak of the ${n.name}?`, options }
}

/** The order of the options depends on the question and the seed alone: the same for all captions of a group. */
function shuffleOptions(q: Question, seed: number): Question {
  return { ...q, options: shuffled(q.options, stream(sha256(q.text), seed)) }
}

/** All questions of a checklist; the first is the recognition question. */
export function questionsOf(c: Checklist, seed: number): Question[] {
  const all = [
    recognition(c),
    ...c.positives.map((p) => positive(p, c.object)),
    ...c.negatives.map((n) => negative(n, c.object)),
  ]
  return all.map((q) => shuffleOptions(q, seed))
}

/** Things a region caption hardly ever has; a text without them cannot honestly be said to mention one. */
const rarities =
  'accordion anchor anvil bagpipe barnacle cactus canoe catapult chandelier chimney cobra compass crocodile dynamite fjord giraffe glacier gondola harp hammock hourglass igloo jukebox kayak lighthouse lobster magnet microscope octopus parachute pelican periscope pyramid raccoon rhinoceros saxophone scarecrow sombrero stethoscope submarine tambourine telescope trombone volcano walrus windmill xylophone zeppelin'.split(
    ' ',
  )

/** A question about something neither text mentions: "mentioned" means that the caption steers the judge. */
export function canaryQuestion(reference: string, hypothesis: string, object: string, seed: number): Question | null {
  const taken = widerStems(`${reference} ${hypothesis}`)
  const order = shuffled(rarities, stream('canary', sha256(`${reference}\n${hypothesis}`), seed))
  const name = order.find((word) => !taken.has(porterStem(word)))
  return name ? shuffleOptions(negative({ name, plural: false, kind: 'object' }, object, 'canary'), seed) : null
}

export interface Tally {
  raw: number
  positive: number
  /** Null without negative questions. */
  negative: number | null
  recognised: boolean
  answered: number
  asked: number
}

/** Scores of the chosen options, or null: recognition unanswered, or too few of the others answered. */
export function tally(
  questions: readonly Question[],
  choices: readonly (number | null)[],
  minAnswered: number,
): Tally | null {
  const gate = choices[0]
  if (gate === null || gate === undefined) return null
  const recognised = questions[0]!.options[gate]!.score > 0
  const sums = { positive: [0, 0], negative: [0, 0] } as Record<'positive' | 'negative', [number, number]>
  let asked = 0
  questions.forEach((q, i) => {
    if (q.kind !== 'positive' && q.kind !== 'negative') return
    asked++
    const choice = choices[i]
    if (choice === null || choice === undefined) return
    const score = q.options[choice]!.score
    sums[q.kind][0] += recognised ? score : Math.min(0, score)
    sums[q.kind][1]++
  })
  const answered = sums.positive[1] + sums.negative[1]
  if (answered === 0 || answered < minAnswered * asked) return null
  const mean = ([sum, n]: [number, number]) => (n > 0 ? sum / n : 0)
  return {
    raw: (sums.positive[0] + sums.negative[0]) / answered,
    positive: mean(sums.positive),
    negative: sums.negative[1] > 0 ? mean(sums.negative) : null,
    recognised,
    answered,
    asked,
  }
}
