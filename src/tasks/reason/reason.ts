// The kind of task `reason`: the model thinks, answers with boxes and points, a segmenter draws. Reasoning segmentation as Seg-Zero and
// VisionReasoner train it, and grounding by boxes as VLM-R1 does; facts and thresholds are theirs.
import type { z } from 'zod'
import { Mismatch, stream } from '../../core/index.ts'
import { maskArea } from '../../mask/index.ts'
import { coordsOf, type Family } from '../../models/index.ts'
import type { OpenTask, TermConfig } from '../../rewards/index.ts'
import { noGrad } from '../../tensor/index.ts'
import type {
  BatchPosition,
  CommonSettings,
  Evaluator,
  RecordRatios,
  RecordScore,
  TaskKind,
  WorkItem,
} from '../kind.ts'
import { checkAsking, checkLessonOptions, unusedByAsking } from '../points/asking-kind.ts'
import { type Areas, areasOf } from '../points/compare.ts'
import { resolvePoints } from '../points/config.ts'
import { askAbout, type PointItem, positiveOf } from '../points/item.ts'
import { textLessons } from '../points/lessons.ts'
import type { PointRecord } from '../points/record.ts'
import { placesOf, unitOf } from '../points/records.ts'
import { askPoints } from '../points/reply.ts'
import { closeBeside, openBeside, openItems, requireAsking } from '../points/segmenter.ts'
import { answerSentences } from '../points/sentences.ts'
import { summaryOf } from '../summary.ts'
import { formOf, ReasonConfig, type ReasonInput, resolveReason, rewardOfReason, termNames } from './config.ts'
import { displaced, reasonQuestion, truthOf, writtenReason } from './prompts.ts'
import { type ReasonParts, scoreReason } from './reward.ts'
import { Reason, type ReasonSetup, readReplies, reasonTerms, shownReason } from './task.ts'

export const reasonSettings = {
  reason: ReasonConfig.prefault({}).describe('task reason: thought, boxes and points, drawn by SAM2'),
} as const

export interface ReasonRunConfig extends CommonSettings {
  readonly reason: z.infer<typeof ReasonConfig>
}

export function reasonSetup(
  family: Family,
  { reason: input, rl, featureCache }: Pick<ReasonRunConfig, 'reason' | 'rl' | 'featureCache'>,
): ReasonSetup {
  const policy = requireAsking(family)
  const reason = resolveReason(input, policy.coords)
  const { sam, coords, imageSize, multimask } = reason
  const { sam: opened } = openBeside(policy, { sam, coords }, { featureCache }, 'reason')
  const config = resolvePoints({ mode: 'joint', sam, coords, imageSize, multimask })
  const question = (parts: Parameters<typeof reasonQuestion>[0]) => reasonQuestion(parts, reason)
  return { policy, sam: opened, config, reason, question, maxNewTokens: rl.maxCompletionLength }
}

/** A record's question and the answer it teaches. */
function lessonOf(setup: ReasonSetup, record: PointRecord, { seed, step }: BatchPosition) {
  const { reason, policy } = setup
  return noGrad(() => {
    const { frame, prompt } = askAbout(setup, { record, positive: positiveOf(record), shown: record.image })
    const random = stream(seed, 'taught noise', step, record.id)
    const objects = truthOf(record, frame, formOf(reason.preset))
    const moved = objects.map((object) => displaced(object, reason.taughtNoise, frame, random))
    return { prompt, answer: policy.completion(writtenReason(record.query, moved, frame, reason)) }
  })
}

/** The greedy answer to a held-out record. */
interface ReasonScore extends RecordScore {
  readonly image: string
  readonly parts: ReasonParts
  readonly areas: Areas
  readonly target: boolean
  readonly objects: number | null
}

function scoreItems(setup: ReasonSetup, items: readonly PointItem[]): ReasonScore[] {
  const texts = askPoints(setup, items)
  return items.map((item, i) => {
    const { id, query, mask: target } = item.record
    const { text } = texts[i]![0]!
    const [sample] = readReplies(setup, item, [text])
    return {
      ...{ id, image: unitOf(item.record), target: maskArea(target) > 0 },
      ...{ parts: scoreReason(sample!, rewardOfReason(setup.reason)), areas: areasOf(target, sample!.mask) },
      ...{ objects: sample!.answer.objects?.length ?? null, shown: shownReason(query, target, text, sample) },
    }
  })
}

function reasonRatios({ parts, areas, target, objects }: ReasonScore): RecordRatios {
  if (!target) return { 'reason/none_right': [parts.mask, 1] }
  return {
    'reason/miou': [parts.mask, 1],
    'reason/ciou': [areas.both, areas.either],
    ...Object.fromEntries(termNames.flatMap((n) => (n === 'mask' ? [] : [[`reason/${n}`, [parts[n], 1] as const]]))),
    'reason/invalid': [objects === null ? 1 : 0, 1],
    'reason/objects': objects === null ? null : [objects, 1],
  }
}

const readPaths = 'sam coords imageSize wording noTarget preset'.split(' ').map((name) => `reason.${name}`)

export const reason: TaskKind<ReasonRunConfig> = {
  name: 'reason',
  doc: 'think, answer with boxes and points, be rewarded for them and for the mask that SAM2 draws',
  readsImages: true,
  defaults: { train: ['lora'], lora: { rank: 64 } },
  reads: {
    eval: [...readPaths, 'reason.multimask', 'reason.reward'],
    sft: [...readPaths, 'reason.taughtNoise'],
    plan: ['reason.sam'],
    benchmark: [...readPaths, 'reason.multimask'],
  },
  unused: { ...unusedByAsking('reason'), 'rewards.iou': 'reason.reward.mask is the overlap' },
  resolve: (config, { reason: input }) => ({
    reason: resolveReason(input as ReasonInput, coordsOf((config as { model?: string }).model ?? '')),
  }),
  close: closeBeside,
  recordRules: ({ reason: { noTarget } }) => ({ check: placesOf, usesEmpty: () => noTarget === 'keep' }),
  check(config) {
    const weights = rewardOfReason(resolveReason(config.reason))
    checkAsking('reason', config.reason.sam, config)
    if (config.rewards.modules.length > 0 || termNames.some((name) => weights[name] > 0)) return
    throw new Mismatch({ where: 'settings', field: 'reason.reward', expected: 'a weight above 0', got: 'none' })
  },
  rewards({ reason: settings, rewards }) {
    const modules = rewards.modules.map((m): TermConfig => ({ type: 'module', ...m }))
    const task: OpenTask = {
      rewards: { shaping: 'none', terms: [...reasonTerms(rewardOfReason(settings)), ...modules] },
      produced: ['reason', 'mask', 'text'],
      shapes: 'caption',
    }
    return { tasks: { reason: task }, notices: [] }
  },
  build(family, config) {
    const setup = reasonSetup(family, config)
    return [new Reason(setup, config, openItems(setup))]
  },
  lessons: {
    goal: ({ reason: { taughtNoise } }) =>
      `cross-entropy of answers built from the records${taughtNoise > 0 ? `, places moved by up to ${taughtNoise}` : ''}`,
    open(family, config, options) {
      checkLessonOptions(options)
      const setup = reasonSetup(family, config)
      return textLessons(setup, config.checkpointing, (record, place) => lessonOf(setup, record, place))
    },
  },
  evaluator(family, config): Evaluator<ReasonScore> {
    const setup = reasonSetup(family, config)
    const items = openItems(setup)
    return {
      score: (work: readonly WorkItem[]) => scoreItems(setup, items.all(work)),
      summary: (scores, seed) => summaryOf(scores, reasonRatios, seed, (r) => r.image),
      ratios: reasonRatios,
      unitOf: (r) => r.image,
      main: 'reason/miou',
    }
  },
  answers(family, config, maxRows) {
    const setup = reasonSetup(family, config)
    return answerSentences(setup, (item, { text }) => readReplies(setup, item, [text])[0]!.mask, maxRows)
  },
}
