// A model's text -> points in the frame of its image. Total: every text gives a value, and no point lies outside the image.
import { isObject, type JsonObject } from '../../core/index.ts'
import type { PointAnswerConfig } from './answer-config.ts'
import { type Candidate, findJson } from './find-json.ts'
import { type Box, type FrameSize, isInside, type Point, toModelFrame } from './frame.ts'

export interface PointAnswer {
  valid: boolean
  /** 0 invalid, 1 exactly the asked form, 0.5 otherwise. */
  format: number
  candidate: Candidate | null
  repaired: boolean
  /** Kept points, frame of the model's image. */
  negatives: Point[]
  positives: Point[]
  /** joint only. */
  box: Box | null
  /** joint: there is no such object. */
  none: boolean
  /** second-look: nothing to correct. */
  stop: boolean
  /** Points kept, written, outside the image, duplicate, above the limit. raw = kept + oob + dup + extra. */
  counts: { kept: number; raw: number; oob: number; dup: number; extra: number }
}

const noCounts = { kept: 0, raw: 0, oob: 0, dup: 0, extra: 0 }

function invalidAnswer(): PointAnswer {
  const nothing = { negatives: [], positives: [], box: null, none: false, stop: false, counts: { ...noCounts } }
  return { valid: false, format: 0, candidate: null, repaired: false, ...nothing }
}

/** `text`: decoded, special tokens removed; `truncated`: the model did not end its answer. */
export function parsePointAnswer(
  text: string,
  frame: FrameSize,
  settings: PointAnswerConfig,
  truncated = false,
): PointAnswer {
  const trimmed = text.trim()
  const found = findJson(settings.thinking ? answerRegion(trimmed) : trimmed)
  const shape = found && shapeOf(found.value, settings)
  if (!found || !shape) return invalidAnswer()
  const filtered = filterShape(shape, frame, settings)
  if (!filtered) return invalidAnswer()
  const { candidate, repaired } = found
  const strict = !truncated && candidate === 'whole' && !repaired && (!settings.thinking || isStrictThought(trimmed))
  const format = strict || settings.formatScore === 'binary' ? 1 : 0.5
  return { valid: true, format, candidate, repaired, ...filtered, none: shape.none, stop: shape.stop }
}

/** The last complete answer block; else what follows the last thought; else everything. */
function answerRegion(text: string): string {
  const close = text.lastIndexOf('</answer>')
  const open = close < 0 ? -1 : text.lastIndexOf('<answer>', close - '<answer>'.length)
  if (open >= 0 && close >= '<answer>'.length) {
    const start = open + '<answer>'.length
    return text.slice(start, text.indexOf('</answer>', start))
  }
  const thought = text.lastIndexOf('</think>')
  return thought < 0 ? text : text.slice(thought + '</think>'.length)
}

function isStrictThought(text: string): boolean {
  const parts = /^<think>([\s\S]*)<\/think>\s*<answer>([\s\S]*)<\/answer>$/.exec(text)
  const tag = /<\/?(?:think|answer)>/
  return parts !== null && !tag.test(parts[1]!) && !tag.test(parts[2]!)
}

/** What an answer says, as written. */
type Shape = Pick<PointAnswer, 'negatives' | 'positives' | 'box' | 'none' | 'stop'>

const negativeKeys = ['negative_points', 'points_neg', 'negatives']
const positiveKeys = ['positive_points', 'points_pos', 'positives']

function shapeOf(value: unknown, settings: PointAnswerConfig): Shape | null {
  const readers = { negatives: negativesShape, 'second-look': secondLookShape, joint: jointShape }
  const shape = readers[settings.mode](value)
  if (!shape || settings.allowEmpty || shape.stop) return shape
  return shape.none || shape.negatives.length === 0 ? null : shape
}

/** The value of the first key that is there; undefined: none is. */
function firstOf(object: JsonObject, keys: readonly string[]): unknown {
  const key = keys.find((k) => Object.hasOwn(object, k))
  return key === undefined ? undefined : object[key]
}

function shaped(parts: Partial<Shape>): Shape {
  return { negatives: [], positives: [], box: null, none: false, stop: false, ...parts }
}

function negativesShape(value: unknown): Shape | null {
  const list = isObject(value) ? firstOf(value, [...negativeKeys, 'points']) : value
  const negatives = pointsIn(list)
  return negatives && shaped({ negatives })
}

function secondLookShape(value: unknown): Shape | null {
  if (!isObject(value)) {
    const negatives = pointsIn(value)
    return negatives && shaped({ negatives, stop: negatives.length === 0 })
  }
  if (Object.hasOwn(value, 'stop') && value['stop'] !== false)
    return value['stop'] === true ? shaped({ stop: true }) : null
  const [minus, plus] = [firstOf(value, negativeKeys), firstOf(value, positiveKeys)]
  if (minus === undefined && plus === undefined) return null
  const [negatives, positives] = [minus, plus].map((list) => (list === undefined ? [] : pointsIn(list)))
  if (!negatives || !positives) return null
  return shaped({ negatives, positives, stop: negatives.length + positives.length === 0 })
}

function jointShape(value: unknown): Shape | null {
  if (Array.isArray(value)) return value.length === 0 ? shaped({ none: true }) : null
  if (!isObject(value)) return null
  const box = numbersIn(firstOf(value, ['bbox_2d', 'bbox']), 4) as Box | null
  const positives = jointPositives(value)
  const negatives = pointsIn(firstOf(value, negativeKeys))
  return box && positives && negatives && shaped({ box, positives, negatives })
}

function jointPositives(value: JsonObject): Point[] | null {
  if (!Object.hasOwn(value, 'points')) return pointsIn([value['points_1'], value['points_2']])
  const points = pointsIn(value['points'])
  return points && points.length > 0 ? points : null
}

/** A list of finite numbers of that length. */
function numbersIn(value: unknown, length: number): number[] | null {
  const fits = Array.isArray(value) && value.length === length && value.every((v) => Number.isFinite(v))
  return fits ? (value as number[]) : null
}

function pointIn(value: unknown): Point | null {
  if (!isObject(value)) return numbersIn(value, 2) as Point | null
  const pair = Object.hasOwn(value, 'point_2d') ? value['point_2d'] : [own(value, 'x'), own(value, 'y')]
  return numbersIn(pair, 2) as Point | null
}

function own(object: JsonObject, key: string): unknown {
  return Object.hasOwn(object, key) ? object[key] : undefined
}

/** One bad element makes the whole list unreadable. */
function pointsIn(value: unknown): Point[] | null {
  if (!Array.isArray(value)) return null
  const points: Point[] = []
  for (const element of value) {
    const point = pointIn(element)
    if (!point) return null
    points.push(point)
  }
  return points
}

type Filtered = Pick<PointAnswer, 'negatives' | 'positives' | 'box' | 'counts'>

/** Null where a place outside the image makes the answer invalid, or a box is none. */
function filterShape(shape: Shape, frame: FrameSize, settings: PointAnswerConfig): Filtered | null {
  const inFrame = (points: readonly Point[]) => points.map((p) => toModelFrame(p, settings.coords, frame))
  const [negatives, positives] = [inFrame(shape.negatives), inFrame(shape.positives)]
  const corners = shape.box ? inFrame([cornerOf(shape.box, 0), cornerOf(shape.box, 2)]) : []
  if (settings.oob === 'invalid') {
    if (![...negatives, ...positives].every((p) => isInside(p, frame))) return null
    if (corners.some((c) => String(c) !== String(clamped(c, frame)))) return null
  }
  const box = shape.box && boxOf(corners, frame)
  if (shape.box && !box) return null
  const minus = filterPoints(negatives, frame, settings)
  if (settings.mode === 'joint')
    return {
      counts: minus.counts,
      negatives: minus.points,
      positives: positives.filter((p) => isInside(p, frame)).slice(0, 2),
      box,
    }
  const plus = filterPoints(positives, frame, settings)
  return { negatives: minus.points, positives: plus.points, box, counts: sumCounts(minus.counts, plus.counts) }
}

const cornerOf = (box: Box, at: 0 | 2): Point => [box[at], box[at + 1]!]

function clamped([x, y]: Point, { width, height }: FrameSize): Point {
  return [Math.min(width, Math.max(0, x)), Math.min(height, Math.max(0, y))]
}

function boxOf(corners: readonly Point[], frame: FrameSize): Box | null {
  const [[x1, y1], [x2, y2]] = corners.map((c) => clamped(c, frame)) as [Point, Point]
  return x1 < x2 && y1 < y2 ? [x1, y1, x2, y2] : null
}

function sumCounts(a: PointAnswer['counts'], b: PointAnswer['counts']): PointAnswer['counts'] {
  const add = (key: keyof typeof a) => a[key] + b[key]
  return { kept: add('kept'), raw: add('raw'), oob: add('oob'), dup: add('dup'), extra: add('extra') }
}

function filterPoints(points: readonly Point[], frame: FrameSize, settings: PointAnswerConfig) {
  const inside = points.filter((p) => isInside(p, frame))
  const radius = settings.dupRadius === null ? null : settings.dupRadius * Math.max(frame.width, frame.height)
  const distinct: Point[] = []
  for (const p of inside) if (radius === null || !distinct.some((q) => isNear(p, q, radius))) distinct.push(p)
  const kept = distinct.slice(0, settings.maxPoints)
  const counts = {
    kept: kept.length,
    raw: points.length,
    oob: points.length - inside.length,
    dup: inside.length - distinct.length,
    extra: distinct.length - kept.length,
  }
  return { points: kept, counts }
}

function isNear([x, y]: Point, [u, v]: Point, radius: number): boolean {
  const [dx, dy] = [x - u, y - v]
  return dx * dx + dy * dy <= radius * radius
}
