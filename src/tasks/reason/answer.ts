// A model's text -> objects, as the published code of VisionReasoner, Seg-Zero and VLM-R1 reads it: the first answer block, strict
// JSON, nothing repaired. Total: every text gives a value. All searches are linear, however a text tries to be expensive.
import { isObject, tryJson } from '../../core/index.ts'
import type { CoordinateKind } from '../points/answer-config.ts'
import { type Box, type FrameSize, type Point, toModelFrame } from '../points/frame.ts'
import type { AnswerForm } from './config.ts'

/** An object in the frame of the model's image. */
export interface Placed {
  box: Box
  /** One in a list of objects, two of a single one, none with a box alone; none if they cannot be read. */
  points: readonly Point[]
}

export interface ReasonAnswer {
  /** Whether the text is a thought and then an answer, and nothing else. */
  thinking: boolean
  /** From 0 to 1. */
  format: number
  /** Null: cannot be read. */
  objects: readonly Placed[] | null
}

export interface ReadOptions {
  form: AnswerForm
  coords: CoordinateKind
  frame: FrameSize
  /** `[]` is an answer: there is no such object. */
  allowNone: boolean
}

export function readAnswer(text: string, { form, coords, frame, allowNone }: ReadOptions): ReasonAnswer {
  const thinking = inOrder(text, [/^<think>/, /<\/think>\s*<answer>/, /<\/answer>$/])
  const move = (p: Point) => toModelFrame(p, coords, frame)
  const moved = ({ box: [x1, y1, x2, y2], points }: Placed): Placed => ({
    box: [...move([x1, y1]), ...move([x2, y2])] as unknown as Box,
    points: points.map(move),
  })
  const { format, objects } = readers[form](text, allowNone)
  return { thinking, format, objects: objects?.map(moved) ?? null }
}

/** Whether the patterns occur one after the other. The earliest place of each is as good as any. */
function inOrder(text: string, patterns: readonly RegExp[]): boolean {
  let rest = text
  for (const pattern of patterns) {
    const match = pattern.exec(rest)
    if (!match) return false
    rest = rest.slice(match.index + match[0].length)
  }
  return true
}

type Written = Pick<ReasonAnswer, 'format' | 'objects'>

const readers: Record<AnswerForm, (text: string, allowNone: boolean) => Written> = {
  objects: readObjects,
  single: readSingle,
  box: readBox,
}

/** Inside of the first answer block; null: there is none. */
function answerBlock(text: string): string | null {
  const start = text.indexOf('<answer>') + '<answer>'.length
  const end = text.indexOf('</answer>', start)
  return start < '<answer>'.length || end < 0 ? null : text.slice(start, end).trim()
}

const isList = (value: unknown, length: number) => Array.isArray(value) && value.length === length

function numbersIn(value: unknown, length: number): number[] | null {
  return isList(value, length) && (value as unknown[]).every((v) => Number.isFinite(v)) ? (value as number[]) : null
}

/** `[{"bbox_2d": [..4], "point_2d": [..2]}, ..]`; one unreadable object makes the list unreadable. */
function readObjects(text: string, allowNone: boolean): Written {
  const list = tryJson(answerBlock(text) ?? '') // an untrained policy rarely writes JSON; the format is then 0
  if (!Array.isArray(list)) return { format: 0, objects: null }
  if (list.length === 0) return { format: allowNone ? 1 : 0, objects: [] }
  let correct = 0
  for (const item of list) {
    if (!isObject(item)) break // the published code ends its count at what has no keys
    correct += Number(isList(item['bbox_2d'], 4)) + Number(isList(item['point_2d'], 2))
  }
  const objects = list.map((item) => {
    const [box, point] = isObject(item) ? [numbersIn(item['bbox_2d'], 4), numbersIn(item['point_2d'], 2)] : []
    return box && point ? { box: box as unknown as Box, points: [point as unknown as Point] } : null
  })
  return { format: correct / (2 * list.length), objects: objects.includes(null) ? null : (objects as Placed[]) }
}

/** The first `{..}` of the whole text: `{"bbox": [..4], "points_1": [..2], "points_2": [..2]}`. */
function readSingle(text: string, allowNone: boolean): Written {
  if (allowNone && answerBlock(text) === '[]') return { format: 1, objects: [] }
  const ended = text.slice(0, text.lastIndexOf('}') + 1) // else each { would be followed to the end of the text
  const value = tryJson(/\{[^}]+\}/.exec(ended)?.[0] ?? '')
  if (!isObject(value)) return { format: 0, objects: null }
  const lists = [value['points_1'], value['points_2']]
  const format = isList(value['bbox'], 4) && lists.every((list) => isList(list, 2)) ? 1 : 0
  const box = numbersIn(value['bbox'], 4)
  if (!box) return { format, objects: null }
  const points = lists.map((list) => numbersIn(Array.isArray(list) ? list.slice(0, 2) : null, 2))
  const both = points.includes(null) ? [] : (points as number[][]).map((p) => p.map(Math.trunc) as unknown as Point)
  return { format, objects: [{ box: box as unknown as Box, points: both }] }
}

const boxPattern = /\[(\d+),\s*(\d+),\s*(\d+),\s*(\d+)\]/

/** The first four whole numbers in brackets, inside of an object in braces. */
function readBox(text: string, allowNone: boolean): Written {
  const block = answerBlock(text)
  if (allowNone && block === '[]') return { format: 1, objects: [] }
  const format = inOrder(text, [/<think>/, /<\/think>\s*<answer>/, /\{/, boxPattern, /\}/, /<\/answer>/]) ? 1 : 0
  const numbers = block === null ? null : boxPattern.exec(block)
  if (!numbers) return { format, objects: null }
  return { format, objects: [{ box: numbers.slice(1, 5).map(Number) as unknown as Box, points: [] }] }
}

/** 0 when two sentences repeat earlier ones. */
export function nonRepeat(text: string): number {
  const sentences = text.split('.').flatMap((s) => s.trim() || [])
  return sentences.length - new Set(sentences).size >= 2 ? 0 : 1
}
