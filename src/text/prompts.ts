// Prompt strings of Sa2VA, character for character as the reference builds them. Encode a prompt as ONE string: the `<` of
// `<|end|>` merges with the punctuation before it and the `>` with the newline after it.
import { Mismatch } from '../core/index.ts'
import type { TextRange } from './plain-text.ts'
import type { ChatTemplate } from './templates.ts'

export const imagePlaceholder = '<image>'

/** Question of the released region-caption evaluation. */
export const regionQuestion = `${imagePlaceholder}\nPlease give me a short description of the region in the picture marked by region1.`

/** A question around words of others, a caption or a phrase: `<image>` in `before` and `after` is the image, in `words` it is text. */
export interface QuestionAbout {
  readonly before: string
  readonly words: string
  readonly after: string
}

/** A question as somebody wrote it for this model, or one around words that came from elsewhere. */
export type Question = string | QuestionAbout

/** Question of the released referring-segmentation evaluation; the space after the newline is the reference's. */
export function segmentQuestion(phrase: string): QuestionAbout {
  return { before: `${imagePlaceholder}\n Please segment `, words: referringPhrase(phrase), after: ' in this image.' }
}

/** Referring phrases are lower case and lose a final full stop. */
function referringPhrase(text: string): string {
  return text.trim().toLowerCase().replace(/\.$/, '')
}

/** Questions for supervised training: the evaluation's and paraphrases of it. */
export const regionQuestions: readonly string[] = [
  regionQuestion,
  `${imagePlaceholder}\nCan you provide me with a detailed description of the region in the picture marked by region1?`,
  `${imagePlaceholder}\nPlease describe the region region1 in the image in detail.`,
]

export function segmentQuestions(phrase: string): readonly QuestionAbout[] {
  const words = referringPhrase(phrase)
  return [
    segmentQuestion(phrase),
    { before: `${imagePlaceholder}\nPlease segment `, words, after: '.' },
    { before: `${imagePlaceholder}\nCan you segment `, words, after: ' in this image?' },
  ]
}

/** Answers of supervised training to a segmentation question. */
export const segmentAnswers: readonly string[] = ['Sure, it is [SEG].', 'It is [SEG].', 'Sure, [SEG].']

interface ImageTokens {
  /** Tiles, the thumbnail included. */
  numTiles: number
  tokensPerTile: number
}

interface PromptParts extends ImageTokens {
  template: ChatTemplate
  /** Region tokens of each region, in order; empty or absent without regions. */
  regionTokens?: readonly number[]
  /** User text; every `<image>` of the question becomes the image and its regions. */
  text: Question
}

function count(value: number, field: string, least: number): number {
  if (Number.isInteger(value) && value >= least) return value
  throw new Mismatch({ where: 'prompt', field, expected: `an integer of at least ${least}`, got: value })
}

/** One bracket pair around the tokens of all tiles. */
function imageString({ numTiles, tokensPerTile }: ImageTokens): string {
  const tokens = count(numTiles, 'numTiles', 1) * count(tokensPerTile, 'tokensPerTile', 1)
  return `<img>${'<IMG_CONTEXT>'.repeat(tokens)}</img>`
}

/** The sentence that lists the regions; "regions" stays plural for one region. Empty without regions. */
export function regionString(regionTokens: readonly number[], token = '<IMG_CONTEXT>'): string {
  if (regionTokens.length === 0) return ''
  const regions = regionTokens.map((tokens, i) => {
    const context = token.repeat(count(tokens, `regionTokens[${i}]`, 0))
    return `region${i + 1}<vp>${context}</vp>`
  })
  return `\nThere are ${regions.length} part regions in the picture: ${regions.join(', ')}.\n`
}

/** A prompt, and where it holds words of others; the tokenizer's `plain` option takes the ranges. */
export interface PromptText {
  text: string
  plain: readonly TextRange[]
}

/** The user text with its image and regions in place, before the chat template. */
export function expandImage(text: string, parts: ImageTokens & { regionTokens?: readonly number[] }): string {
  requireImage(text)
  return text.replaceAll(imagePlaceholder, imageString(parts) + regionString(parts.regionTokens ?? []))
}

function requireImage(text: string): void {
  if (text.includes(imagePlaceholder)) return
  throw new Mismatch({ where: 'prompt', field: 'text', expected: `a text with ${imagePlaceholder}`, got: text })
}

/** The whole prompt of a first turn. The image is put in before the words are, so that no word can be taken for one. */
function promptText(parts: PromptParts): PromptText {
  const { template, text } = parts
  const question: QuestionAbout = typeof text === 'string' ? { before: text, words: '', after: '' } : text
  requireImage(question.before + question.after)
  const [before, after] = [question.before, question.after].map((piece) =>
    piece.includes(imagePlaceholder) ? expandImage(piece, parts) : piece,
  ) as [string, string]
  const input = before + question.words + after
  const whole = template.system + template.instruction(input)
  const start = whole.indexOf(input) + before.length
  return { text: whole, plain: question.words === '' ? [] : [[start, start + question.words.length]] }
}

/** The characters of promptText. */
export function buildPrompt(parts: PromptParts): string {
  return promptText(parts).text
}

/** Region(s) -> caption. `question` defaults to the released evaluation's. */
export function regionCaptionPrompt(
  options: ImageTokens & { regionTokens: number | readonly number[]; question?: string; template: ChatTemplate },
): string {
  const regionTokens = typeof options.regionTokens === 'number' ? [options.regionTokens] : options.regionTokens
  if (regionTokens.length === 0) {
    throw new Mismatch({ where: 'region prompt', field: 'regionTokens', expected: 'at least one region', got: 'none' })
  }
  return buildPrompt({ ...options, regionTokens, text: options.question ?? regionQuestion })
}

/** Phrase -> mask. Give a phrase, asked as the released evaluation does, or a whole question with `<image>`. */
export function segmentPrompt(
  options: ImageTokens & { template: ChatTemplate } & ({ phrase: string } | { question: Question }),
): PromptText {
  return promptText({ ...options, text: 'phrase' in options ? segmentQuestion(options.phrase) : options.question })
}

/** The caption of an answer: cut at the first stop word, added tokens out, white space collapsed. Cleaning it again changes nothing. */
export function cutAnswer(text: string, stopWords: readonly string[]): string {
  const cuts = stopWords.map((word) => text.indexOf(word)).filter((at) => at >= 0)
  const kept = cuts.length === 0 ? text : text.slice(0, Math.min(...cuts))
  const clean = kept.replace(addedTokenPattern, '').replace(/\s+/g, ' ').trim()
  return clean === text ? clean : cutAnswer(clean, stopWords) // what was taken out may have stood inside another
}

const addedTokenPattern = /<\|(?:endoftext|im_start|im_end)\|>|<\/?(?:img|quad|ref|box|p|vp)>|<IMG_CONTEXT>|\[SEG\]/g
