// From the columns of a row to regions, for every storage that has rows (Arrow, Parquet). Names are those of the
// Grasp-Any-Region dataset, `catagory` included.
import { type JsonObject, Mismatch, tryJsonObject } from '../../core/index.ts'
import { decodeRle, type Mask, maskFromPng, type Rle } from '../../mask/index.ts'
import { asBadRecord, BadRecord, type ImageData, type Region } from '../example.ts'

export interface Columns {
  image: string
  mask: string
  text: string
  category: string | null
  /** The rows' own id, if there is one. */
  id: string | null
}

/** The logical schema in the metadata that Hugging Face datasets writes. It is only a hint, so a damaged one is ignored. */
function featuresOf(metadata: string | undefined): JsonObject {
  const { info } = (tryJsonObject(metadata ?? '') ?? {}) as { info?: { features?: JsonObject } | null }
  return info?.features ?? {}
}

/** Which column is which; `metadata`: of Hugging Face datasets, which marks image columns. */
export function chooseColumns(names: readonly string[], metadata: string | undefined, where: string): Columns {
  const marked = Object.entries(featuresOf(metadata))
    .filter(([name, f]) => names.includes(name) && (f as { _type?: string } | null)?._type === 'Image')
    .map(([name]) => name)
    .filter((name) => !name.startsWith('mask'))
  const pick = (role: string, wanted: readonly string[]): string => {
    const found = wanted.find((name) => names.includes(name))
    if (found !== undefined) return found
    const hint = `the ${role} is looked for under these names; other layouts: write JSONL (docs/data.md)`
    throw new Mismatch({ where, field: role, expected: `a column ${wanted.join(' or ')}`, got: names.join(', '), hint })
  }
  return {
    image: pick('image', ['image', ...marked, 'img']),
    mask: pick('mask', ['mask_rle', 'mask', 'segmentation']),
    text: pick('caption', ['conversations', 'caption', 'description', 'text']),
    category: ['catagory', 'category'].find((name) => names.includes(name)) ?? null,
    id: names.includes('id') ? 'id' : null,
  }
}

/** `[{a, b}]`, or the transpose `{a: [], b: []}` that old `Sequence` features are stored as; an entry may be null. */
function listOf(value: unknown, key: string): JsonObject[] {
  if (value === null || value === undefined) return []
  if (Array.isArray(value)) return value.map((entry) => (entry ?? {}) as JsonObject)
  const fields = value as Record<string, unknown[]>
  const length = Array.isArray(fields[key]) ? fields[key].length : 0
  return Array.from({ length }, (_, i) => Object.fromEntries(Object.entries(fields).map(([k, v]) => [k, v?.[i]])))
}

/** Masks of a row, still encoded: one struct, a list of structs, the transpose of that, or a PNG. */
export function masksOf(value: unknown): unknown[] {
  if (value === null || value === undefined) return []
  if (Array.isArray(value)) return value
  const counts = (value as JsonObject).counts
  const transposed = Array.isArray(counts) && counts.some((c) => typeof c !== 'number')
  return transposed ? listOf(value, 'counts') : [value]
}

export function answersOf(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  if (Array.isArray(value) && value.every((v) => typeof v === 'string')) return value
  return listOf(value, 'from')
    .filter((turn) => turn.from === 'gpt' || turn.from === 'assistant')
    .map((turn) => String(turn.value ?? ''))
}

function textsOf(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  return listOf(value, 'from').map((turn) => String(turn.value ?? ''))
}

const prompt = /<Prompt(\d{1,9})>/ // the letters of a longer number would not fit on the stack

/** Whether the text of a row refers to its regions by number. */
export function namesRegions(value: unknown): boolean {
  return textsOf(value).some((text) => prompt.test(text))
}

/**
 * How many records a row gives: one per mask when answers and masks pair up; -1 marks a row that names its regions.
 * A row whose counts differ stays one record, which is then rejected with its reason.
 */
export function recordsInRow(masks: number, text: unknown): number {
  if (masks <= 1) return 1
  if (namesRegions(text)) return -1
  return answersOf(text).length === masks ? masks : 1
}

export function imageOf(value: unknown, where: string): ImageData {
  if (value instanceof Uint8Array) return { bytes: value }
  if (typeof value === 'string') return imageFromText(value)
  const { bytes, path } = (value ?? {}) as { bytes?: Uint8Array | null; path?: string | null }
  if (bytes && bytes.length > 0) return { bytes }
  if (path) return { path }
  throw new BadRecord('image-missing', { where, field: 'image', expected: 'bytes or a path', got: 'neither' })
}

function imageFromText(text: string): ImageData {
  const data = /^data:(?:image\/[^,]*;)?base64,/.exec(text)
  return data ? { bytes: Buffer.from(text.slice(data[0].length), 'base64') } : { path: text }
}

export async function maskOf(value: unknown, where: string, field: string): Promise<Mask> {
  try {
    const bytes = value instanceof Uint8Array ? value : (value as { bytes?: unknown } | null)?.bytes
    return bytes instanceof Uint8Array ? await maskFromPng(bytes, where) : decodeRle(value as Rle, where)
  } catch (error) {
    throw asBadRecord(error, 'mask-unreadable', where, field)
  }
}

/** Region `k` of a row; `split` says that the row is several records. */
export async function regionOfRow(
  row: JsonObject,
  columns: Columns,
  k: number,
  split: boolean,
  where: string,
): Promise<Pick<Region, 'mask' | 'caption' | 'category' | 'extraMasks'>> {
  const encoded = masksOf(row[columns.mask])
  if (encoded.length === 0) {
    throw new BadRecord('no-mask', { where, field: columns.mask, expected: 'a mask', got: 'null (the whole image)' })
  }
  const answers = answersOf(row[columns.text])
  const relation = encoded.length > 1 && namesRegions(row[columns.text])
  if (encoded.length > 1 && !split && !relation) {
    const got = `${encoded.length} masks and ${answers.length} answers`
    throw new BadRecord('turn-count', { where, field: columns.text, expected: 'as many answers as masks', got })
  }
  const mask = await maskOf(encoded[k], where, encoded.length > 1 ? `${columns.mask}[${k}]` : columns.mask)
  const caption = nonEmpty(answers[k] ?? '', where, columns.text)
  const region = { mask, caption, ...withCategory(columns.category === null ? null : row[columns.category]) }
  if (!relation) return region
  return {
    ...region,
    caption: caption.replace(new RegExp(prompt, 'g'), (_, n) => `Region ${regionLetter(Number(n))}`),
    extraMasks: await Promise.all(encoded.slice(1).map((m, i) => maskOf(m, where, `${columns.mask}[${i + 1}]`))),
  }
}

/** 0 is A, 25 is Z, 26 is AA. */
function regionLetter(n: number): string {
  return (n >= 26 ? regionLetter(Math.floor(n / 26) - 1) : '') + String.fromCharCode(65 + (n % 26))
}

export function nonEmpty(text: string, where: string, field: string): string {
  const caption = text.trim()
  if (caption !== '') return caption
  const got = text === '' ? 'nothing' : 'white space'
  throw new BadRecord('empty-caption', { where, field, expected: 'a caption', got })
}

/** The field `category` of a region, if the record has one. */
export function withCategory(value: unknown): { category?: string[] } {
  if (value === null || value === undefined) return {}
  return { category: (Array.isArray(value) ? value : [value]).map(String) }
}
