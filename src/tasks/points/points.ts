// The kind of task `points`: settings, rewards, the task of a run and its evaluation.
import type { z } from 'zod'
import { log } from '../../core/index.ts'
import type { Region } from '../../data/index.ts'
import { coordsOf, type Family } from '../../models/index.ts'
import type { OpenTask, TermConfig } from '../../rewards/index.ts'
import type { CommonSettings, Evaluator, TaskKind, WorkItem } from '../kind.ts'
import { checkAsking, checkLessonOptions, unusedByAsking } from './asking-kind.ts'
import { pointChooser } from './choose.ts'
import { type ComparedRecord, compareItems, type KnownClicks } from './compare.ts'
import { comparedMetrics, pointRatios } from './compared-metrics.ts'
import { PointsConfig, type PointsInput, resolvePoints, rewardOfPoints } from './config.ts'
import type { PointSetup } from './item.ts'
import { pointLessons } from './lessons.ts'
import { replyToLooks } from './multi-turn.ts'
import { placesOf } from './records.ts'
import { openTerm, PointsRewards } from './reward-term.ts'
import { closeBeside, openBeside, openItems, requireAsking } from './segmenter.ts'
import { answerSentences } from './sentences.ts'
import { PlacePoints } from './task.ts'

export const pointsSettings = {
  points: PointsConfig.prefault({}).describe('task points: a vision-language model that places points for SAM2'),
} as const

export const pointsRewardSettings = {
  points: PointsRewards.optional().describe('task points: other terms than the reward of points.preset'),
} as const

export interface PointsRunConfig extends CommonSettings {
  readonly points: z.infer<typeof PointsConfig>
  readonly rewards: CommonSettings['rewards'] & { readonly points?: PointsRewards }
}

function setupOf(family: Family, config: PointsRunConfig): PointSetup {
  const policy = requireAsking(family)
  const settings = resolvePoints(config.points, policy.coords)
  const { sam } = openBeside(policy, settings, config)
  return { policy, sam, config: settings, maxNewTokens: config.rl.maxCompletionLength }
}

const asked =
  'mode sam positivePrompt previousMask multimask coords imageSize showMask thinking wording maxPoints allowEmpty oob dupRadius formatScore turns noTarget preset'
const readPaths = asked.split(' ').map((name) => `points.${name}`)

export const points: TaskKind<PointsRunConfig> = {
  name: 'points',
  doc: 'points for SAM2: answer with points, be rewarded for the mask',
  readsImages: true,
  defaults: { train: ['lora'], lora: { rank: 64 } },
  reads: {
    ...{ eval: readPaths, sft: [...readPaths, 'points.keepEasy'], plan: ['points.sam'] },
    benchmark: readPaths.filter((path) => path !== 'points.formatScore'),
  },
  unused: { ...unusedByAsking('points'), 'rewards.iou.multiSeg': 'an answer has one mask' },
  resolve: (config, { points: input }) => ({
    points: resolvePoints(input as PointsInput, coordsOf((config as { model?: string }).model ?? '')),
  }),
  close: closeBeside,
  recordRules({ points: { mode, noTarget } }) {
    const prompted = ({ meta }: Region) => meta['box'] !== undefined || meta['points'] !== undefined
    return { check: placesOf, usesEmpty: (region) => noTarget === 'keep' && (mode === 'joint' || prompted(region)) }
  },
  chooser: (family, config) => pointChooser(setupOf(family, config)),
  check(config) {
    resolvePoints(config.points)
    checkAsking('points', config.points.sam, config)
  },
  rewards({ points: settings, rewards }) {
    const config = resolvePoints(settings)
    const parameters = rewardOfPoints(config)
    const own = { type: 'points', weight: 1, of: 'points', parameters } as const
    const { terms, shaping } = rewards.points ?? { terms: [own], shaping: 'none' as const }
    const modules = rewards.modules.map((m): TermConfig => ({ type: 'module', ...m }))
    const open = terms.map((term) => openTerm(term, config.turns))
    const task: OpenTask = {
      rewards: { shaping, terms: [...open, ...modules] },
      produced: ['points', 'mask', 'text'],
      shapes: 'caption',
    }
    return { tasks: { points: task }, notices: [] }
  },
  build(family, config) {
    const setup = setupOf(family, config)
    return [new PlacePoints(setup, config, openItems(setup))]
  },
  lessons: {
    goal: ({ points: { mode } }) => `cross-entropy of answers built from the records (mode ${mode})`,
    open(family, config, options) {
      checkLessonOptions(options)
      return pointLessons(setupOf(family, config), config.checkpointing)
    },
  },
  evaluator(family, config): Evaluator<ComparedRecord> {
    const setup = setupOf(family, config)
    const items = openItems(setup)
    const known: KnownClicks = new Map()
    const score = (work: readonly WorkItem[]) => compareItems(setup, items.all(work), config.seed, known)
    return { score, summary: comparedMetrics, ratios: pointRatios, unitOf: (r) => r.image, main: 'points/gain' }
  },
  answers(family, config, maxRows) {
    const setup = setupOf(family, config)
    const { mode } = setup.config
    if (mode !== 'joint')
      log.warn(`points.mode ${mode}: the prompt of each object comes from its target; not comparable with papers`)
    const maskOf: Parameters<typeof answerSentences>[1] = (item, words) => {
      const [{ mask0, mask1 }] = replyToLooks(setup, item, [words]) as [ReturnType<typeof replyToLooks>[number]]
      return mask1 ?? mask0
    }
    return answerSentences(setup, maskOf, maxRows)
  },
}
