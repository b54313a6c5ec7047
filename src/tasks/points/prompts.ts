// The questions of the three modes. The wording is part of the method: a model is compared with itself under the same words.

import type { PositivePrompt } from './click-geometry.ts'
import type { PointsConfig } from './config.ts'
import { type Box, type FrameSize, type Point, printedPoint } from './frame.ts'

export interface QuestionParts {
  query: string
  /** What SAM2 is given, in pixels of the original. */
  positive: PositivePrompt
  model: FrameSize
  original: FrameSize
  /** With showMask: the box of the first mask; null if that is empty. */
  first?: Box | null
}

export function pointQuestion(parts: QuestionParts, config: PointsConfig): string {
  if (config.wording === 'short') return shortQuestion(parts, config)
  const writers = { negatives: negativesLines, 'second-look': secondLookLines, joint: jointLines }
  const { lines, reply, kind } = writers[config.mode](parts, config)
  const last = config.thinking
    ? `Think first inside <think></think>. Then give the JSON ${kind} inside <answer></answer>, like <think>...</think><answer>${reply.short}</answer>.`
    : `Reply with ${kind === 'list' ? 'a JSON list' : 'one JSON object'} and nothing else, like ${reply.long}.`
  return [`Object of interest: ${parts.query}`, ...lines, coordinateLine(parts.model, config), last].join('\n')
}

const shortAsks = { negatives: 'Points outside:', 'second-look': 'Corrections:', joint: 'Box and points:' } as const

function shortQuestion(parts: QuestionParts, config: PointsConfig): string {
  const marker = config.mode === 'joint' ? '' : ` at ${markerText(parts, config)}`
  const first = parts.first === undefined ? '' : `, cut out ${boxText(parts.first, parts, config)}`
  return `${parts.query}${marker}${first}. ${shortAsks[config.mode]}`
}

interface Wording {
  lines: string[]
  kind: 'list' | 'object'
  reply: { long: string; short: string }
}

function negativesLines(parts: QuestionParts, config: PointsConfig): Wording {
  return {
    lines: [
      `It is already marked by ${markerText(parts, config)}. A segmentation tool will cut out the marked object, but it may also take in nearby or similar-looking things.`,
      ...(parts.first === undefined ? [] : [`What it cuts out now is red: ${boxText(parts.first, parts, config)}.`]),
      `Give at most ${config.maxPoints} points that lie outside the object, each on a place the tool would most likely include by mistake.`,
      'If there is no such place, give an empty list.',
    ],
    kind: 'list',
    reply: {
      long: '[{"point_2d": [120, 45]}, {"point_2d": [300, 212]}]',
      short: '[{"point_2d": [120, 45]}]',
    },
  }
}

function secondLookLines(parts: QuestionParts, config: PointsConfig): Wording {
  const example = '{"negative_points": [[120, 45]], "positive_points": [[300, 212]]}'
  return {
    lines: [
      `It was marked by ${markerText(parts, config)}, and a segmentation tool cut it out. The red line is the border of the result.`,
      `Give at most ${config.maxPoints} negative points, each on a place the tool took in by mistake, and at most ${config.maxPoints} positive points, each on a part of the object the tool left out.`,
      'If the result is right, give two empty lists.',
    ],
    kind: 'object',
    reply: { long: example, short: example },
  }
}

function jointLines(_: QuestionParts, config: PointsConfig): Wording {
  const example = '{"bbox_2d": [100, 40, 320, 260], "points": [[180, 120], [240, 200]], "negative_points": [[120, 45]]}'
  return {
    lines: [
      `Give its box, two points inside it, and at most ${config.maxPoints} points outside it, each on a place a segmentation tool would most likely include by mistake.`,
      ...(config.noTarget === 'keep' ? ['If there is no such object in the image, reply with [].'] : []),
    ],
    kind: 'object',
    reply: { long: example, short: example },
  }
}

/** What SAM2 is given of the object: a point, its box, or both; what there is where a record lacks the one asked for. */
export function givenPrompt(
  { positivePrompt }: Pick<PointsConfig, 'positivePrompt'>,
  { box, points }: PositivePrompt,
): PositivePrompt {
  if (!box || (positivePrompt === 'point' && points.length > 0)) return { box: null, points: points.slice(0, 1) }
  return { box, points: points.slice(0, positivePrompt === 'box+points' ? 2 : 0) }
}

/** The positive prompt in the numbers the model reads. */
export function markerText({ positive, model, original }: QuestionParts, config: PointsConfig): string {
  const print = (p: Point) => printedPoint(p, config.coords, model, original)
  const given = givenPrompt(config, positive)
  const points = given.points.map((p) => `[${print(p).join(', ')}]`).join(', ')
  const box = given.box && boxText(given.box, { model, original }, config)
  const shown = points && `the ${given.points.length > 1 ? 'points' : 'point'} ${points}`
  return [box, shown].filter(Boolean).join(' and ')
}

/** `nothing`: of a mask without pixels. */
function boxText(
  box: Box | null,
  { model, original }: Omit<QuestionParts, 'query' | 'positive'>,
  config: PointsConfig,
) {
  if (!box) return 'nothing'
  const corners = [[box[0], box[1]] as const, [box[2], box[3]] as const]
  return `the box [${corners.flatMap((p) => printedPoint(p, config.coords, model, original)).join(', ')}]`
}

/** An answer in the numbers the model writes. */
export interface WrittenPoints {
  negatives: readonly Point[]
  positives: readonly Point[]
  box: readonly number[] | null
  /** There is no such object. */
  none: boolean
}

/** The answer as the question asks for it; the short question is answered without spaces. */
export function writtenAnswer({ negatives, positives, box, none }: WrittenPoints, config: PointsConfig): string {
  const write = (value: unknown) => {
    const text = JSON.stringify(value)
    return config.wording === 'short' ? text : text.replace(/,/g, ', ').replace(/:/g, ': ')
  }
  if (config.mode === 'second-look') return write({ negative_points: negatives, positive_points: positives })
  if (config.mode === 'joint')
    return none ? '[]' : write({ bbox_2d: box, points: positives, negative_points: negatives })
  return write(config.wording === 'short' ? negatives : negatives.map((p) => ({ point_2d: p })))
}

export function coordinateLine({ width, height }: FrameSize, { coords }: Pick<PointsConfig, 'coords'>): string {
  const corner = '(0, 0) is the top left corner.'
  if (coords === 'pixel')
    return `Coordinates are pixels of this image, which is ${width} wide and ${height} high; ${corner}`
  const unit = coords === 'thousand' ? ['thousandths', '0 to 999'] : ['fractions', '0 to 1']
  return `Coordinates are ${unit[0]} of the image's width and height, from ${unit[1]}; ${corner}`
}
