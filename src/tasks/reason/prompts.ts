// The question of each answer form, the objects of a record in the frame of the model's image, and the answer that says them.
import type { RandomStream } from '../../core/index.ts'
import { maskArea } from '../../mask/index.ts'
import { type Box, type FrameSize, type Point, printedPoint } from '../points/frame.ts'
import { positiveOf } from '../points/item.ts'
import { coordinateLine, type QuestionParts } from '../points/prompts.ts'
import type { PointRecord } from '../points/record.ts'
import type { Placed } from './answer.ts'
import { type AnswerForm, formOf, type ReasonConfig } from './config.ts'

const wordings: Record<AnswerForm, { asks: string; short: string; example: string }> = {
  objects: {
    asks: 'a JSON list with the box of each object that is meant and a point inside it',
    short: 'Objects:',
    example: '[{"bbox_2d": [40, 60, 180, 300], "point_2d": [110, 170]}]',
  },
  single: {
    asks: 'a JSON object with the box of the object that is meant and two points well inside it',
    short: 'Object:',
    example: '{"bbox": [40, 60, 180, 300], "points_1": [110, 120], "points_2": [105, 230]}',
  },
  box: {
    asks: 'a JSON object with the box of the object that is meant',
    short: 'Box:',
    example: '{"bbox_2d": [40, 60, 180, 300]}',
  },
}

export function reasonQuestion({ query, model }: QuestionParts, config: ReasonConfig): string {
  const { asks, short, example } = wordings[formOf(config.preset)]
  if (config.wording === 'short') return `${query}. ${short}`
  return [
    `Find this in the image: ${query}`,
    'Compare what could be meant, and think inside <think></think> first.',
    `Then give ${asks} inside <answer></answer>, like <think>...</think><answer>${example}</answer>.`,
    ...(config.noTarget === 'keep' ? ['If nothing in the image is meant, give [] as the answer.'] : []),
    coordinateLine(model, config),
  ].join('\n')
}

/** What a record asks for: its list of objects, or the one that its mask shows. Empty: no target. */
export function truthOf(record: PointRecord, frame: FrameSize, form: AnswerForm): Placed[] {
  if (maskArea(record.mask) === 0) return []
  const whole = positiveOf(record)
  const listed = form === 'objects' ? record.objects : undefined
  const move = (p: Point) => printedPoint(p, 'pixel', frame, record.image)
  return (listed ?? [{ box: whole.box!, points: whole.points }]).map(({ box, points }) => ({
    box: [...move([box[0], box[1]]), ...move([box[2], box[3]])] as unknown as Box,
    points: points.map(move),
  }))
}

/** Every coordinate moved by up to `noise` of its side; both corners stay in order. */
export function displaced({ box, points }: Placed, noise: number, frame: FrameSize, random: RandomStream): Placed {
  const along = (value: number, side: number) =>
    Math.max(0, Math.min(side - 1, Math.round(value + (2 * random.uniform() - 1) * noise * side)))
  const move = ([x, y]: Point): Point => [along(x, frame.width), along(y, frame.height)]
  const [[a, b], [c, d]] = [move([box[0], box[1]]), move([box[2], box[3]])]
  return { box: [Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)], points: points.map(move) }
}

/** The answer as the question asks for it, in the numbers that the model writes; the query is its thought. */
export function writtenReason(
  query: string,
  objects: readonly Placed[],
  frame: FrameSize,
  config: ReasonConfig,
): string {
  const print = (p: Point) => printedPoint(p, config.coords, frame, frame)
  const shapes = objects.map(({ box, points }) => {
    const numbers = [...print([box[0], box[1]]), ...print([box[2], box[3]])]
    const [first, second = first] = points.map(print)
    if (formOf(config.preset) === 'box') return { bbox_2d: numbers }
    if (formOf(config.preset) === 'single') return { bbox: numbers, points_1: first, points_2: second }
    return { bbox_2d: numbers, point_2d: first }
  })
  const value = formOf(config.preset) === 'objects' ? shapes : (shapes[0] ?? [])
  const text = JSON.stringify(value)
  const spaced = config.wording === 'short' ? text : text.replace(/[,:]/g, '$& ')
  return `<think>${query}</think><answer>${spaced}</answer>`
}
