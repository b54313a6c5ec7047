// Recomputes points.jsonl: the parser, frames, derived prompts, rewards, baseline clicks and advantages of the point task.
import { type CheckRow, type JsonObject, Mismatch, readJsonLines } from '../core/index.ts'
import { decodeRle, encodeRle, type Mask, type Rle } from '../mask/index.ts'
import { groupAdvantages } from '../rl/index.ts'
import {
  contour,
  derivePrompt,
  heuristicNegatives,
  isInside,
  keepRecords,
  oracleClick,
  type Point,
  PointAnswerConfig,
  type PointMode,
  type PointParts,
  type PointPreset,
  PointRewardConfig,
  parsePointAnswer,
  pixelAt,
  pointAnswerPreset,
  pointRewardPreset,
  printedPoint,
  randomNegatives,
  rescale,
  scorePoints,
  settledRewards,
  specifiedRewards,
  toModelFrame,
} from '../tasks/index.ts'
import type { GoldenCase } from './compare.ts'
import { camelKeys } from './grpo-loss.ts'

export function verifyPoints(path: string): CheckRow[] {
  return readJsonLines(path).map(({ value, where }) => checkLine(value as unknown as GoldenCase, where))
}

function checkLine(line: GoldenCase, where: string): CheckRow {
  const recompute = kinds[line.kind]
  if (!recompute) throw new Mismatch({ where, field: 'kind', expected: Object.keys(kinds).join(', '), got: line.kind })
  const worst = { abs: 0, rel: 0 }
  const detail = difference(recompute(line.input, line.expected), line.expected, '', worst)
  const name = `${line.id} ${line.name}`
  return { name, ...worst, limit: 'equal; numbers 1e-9', pass: detail === null, ...(detail && { detail }) }
}

/** Null when all that was expected is there; more than was expected may be. */
function difference(got: unknown, want: unknown, at: string, worst: { abs: number; rel: number }): string | null {
  if (typeof want === 'number' && typeof got === 'number') {
    const abs = Math.abs(got - want)
    worst.abs = Math.max(worst.abs, abs)
    worst.rel = Math.max(worst.rel, abs / Math.max(Math.abs(want), 1e-300))
    return abs <= 1e-9 * Math.max(1e-6, Math.abs(want)) ? null : `${at}: ${got}, not ${want}`
  }
  if (Array.isArray(want)) {
    if (!Array.isArray(got) || got.length !== want.length)
      return `${at}: ${JSON.stringify(got)}, not ${JSON.stringify(want)}`
    return firstOf(want.map((w, i) => difference(got[i], w, `${at}.${i}`, worst)))
  }
  if (typeof want === 'object' && want !== null) {
    if (typeof got !== 'object' || got === null) return `${at}: ${got}, not ${JSON.stringify(want)}`
    const fields = got as JsonObject
    return firstOf(Object.entries(want).map(([key, w]) => difference(fields[key], w, `${at}.${key}`, worst)))
  }
  return got === want ? null : `${at}: ${JSON.stringify(got)}, not ${JSON.stringify(want)}`
}

function firstOf(problems: readonly (string | null)[]): string | null {
  return problems.find((p) => p !== null) ?? null
}

function settingsOf(input: JsonObject, preset: PointPreset = 'default'): PointAnswerConfig {
  return PointAnswerConfig.parse({
    ...pointAnswerPreset(preset),
    ...camelKeys((input['settings'] ?? {}) as JsonObject),
  })
}

const maskOf = (value: unknown): Mask => decodeRle(value as Rle)

const kinds: Record<string, (input: JsonObject, expected: JsonObject) => JsonObject> = {
  parse(input) {
    const frame = { width: input['w'] as number, height: input['h'] as number }
    const answer = parsePointAnswer(input['text'] as string, frame, settingsOf(input), input['truncated'] === true)
    const { counts: c, negatives, ...rest } = answer
    const extra = { n_extra: c.extra, extra: c.extra > 0 }
    return { ...rest, points: negatives, n: c.kept, n_raw: c.raw, n_oob: c.oob, n_dup: c.dup, ...extra }
  },
  frame(input) {
    const { model, original } = frames(input)
    const point = toModelFrame(input['value'] as unknown as Point, input['coords'] as 'pixel', model)
    const [pixel, sam2] = [pixelAt(point, model, original), rescale(point, model, samFrame)]
    return { model: point, inside: isInside(point, model), original: rescale(point, model, original), pixel, sam2 }
  },
  print(input) {
    const { model, original } = frames(input)
    const index = input['index'] as unknown as Point
    const printed = printedPoint(index, input['coords'] as 'pixel', model, original)
    return { printed, sam2: rescale(index, original, samFrame) }
  },
  derive: (input) => ({ ...derivePrompt(maskOf(input['mask'])) }),
  contour: (input, expected) => {
    const made = contour(maskOf(input['mask']))
    const want = maskOf(expected['contour'])
    // run lengths have two spellings; masks have one
    return { contour: encodeRle(made).counts === encodeRle(want).counts ? expected['contour'] : encodeRle(made) }
  },
  reward: (input) => rewardFields(scoredOf(input)),
  oracle: (input) => ({
    click: oracleClick(maskOf(input['target']), maskOf(input['mask']), input['mode'] as PointMode),
  }),
  random(input) {
    const numbers = (input['u'] as number[]).values()
    const uniform = () => numbers.next().value as number
    return { points: randomNegatives(maskOf(input['target']), (input['u'] as number[]).length, { uniform }) }
  },
  heuristic: (input) => ({ points: heuristicNegatives(maskOf(input['target']), input['count'] as number) }),
  keep(input) {
    const rows = input['records'] as [number, number, number][]
    const records = rows.map(([iou0, error, target]) => ({ iou0, error, target }))
    const { easyKept, ...rest } = keepRecords(records, input['tau'] as number, input['keep_easy'] as number)
    return { ...rest, easy_kept: easyKept }
  },
  group(input) {
    const rewards = input['rewards'] as number[]
    const options = groupOptions(rewards.length)
    const raw = groupAdvantages(rewards, options)
    const { advantages } = groupAdvantages(settledRewards(rewards), options)
    return { mean: raw.groupMean[0], std: raw.groupStd[0], advantages: [...advantages] }
  },
}

const samFrame = { width: 1024, height: 1024 }

function groupOptions(numGenerations: number) {
  return {
    numGenerations,
    scaleRewards: 'group',
    advantageEps: 1e-4,
    ddof: 1,
    multiObjectiveAggregation: 'sum_then_normalize',
  } as const
}

function frames(input: JsonObject) {
  const side = (key: string) => input[key] as number
  return {
    model: { width: side('w'), height: side('h') },
    original: { width: side('W0'), height: side('H0') },
  }
}

function scoredOf(input: JsonObject): PointParts {
  const preset = input['preset'] as PointPreset
  const settings = settingsOf(input, preset)
  const [width, height] = input['frame'] as [number, number]
  const frame = { width, height }
  const given = Object.entries((input['weights'] ?? {}) as JsonObject)
  const changed = Object.fromEntries(given.flatMap(([k, v]) => (specifiedRewards[k] ? [[specifiedRewards[k], v]] : [])))
  const weights = PointRewardConfig.parse({ ...pointRewardPreset(preset, settings.mode), ...changed })
  const turns = (input['answers'] as { text: string; truncated?: boolean; mask: unknown }[]).map((a) => ({
    answer: parsePointAnswer(a.text, frame, settings, a.truncated === true),
    mask: a.mask ? maskOf(a.mask) : null,
  }))
  const windows = input['windows'] as { iou: number[]; gain: number[]; neg: number[] } | undefined
  const sample = {
    target: maskOf(input['target']),
    mask0: input['mask0'] ? maskOf(input['mask0']) : null,
    frame,
    mode: settings.mode,
    turns,
    manyTurns: settings.turns > 1,
    iouOracle: (input['iou_oracle'] ?? null) as number | null,
  }
  return scorePoints(sample, weights, windows && { iou: windows.iou, gain: windows.gain, placement: windows.neg })
}

function rewardFields(p: PointParts): JsonObject {
  const { valid, format, reward, iou0, iou1, gain, overshoot, turns, extra } = p
  return {
    ...{ valid, format, reward, iou0, iou1, gain, overshoot, turns, r_neg: p.placement },
    ...{ n: p.kept, n_raw: p.raw, n_oob: p.oob, n_dup: p.dup, extra, n_right: p.right, n_wrong: p.wrong },
    ...{ error_area: p.errorArea, confused_area: p.confusedArea, no_target: p.noTarget },
    ...{ rank_iou: p.ranked.iou, rank_gain: p.ranked.gain, rank_neg: p.ranked.placement },
  }
}
