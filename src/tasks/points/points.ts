// The kind of task `points`: settings, rewards, the task of a run and its evaluation.
import type { z } from 'zod'
import { log, Mismatch } from '../../core/index.ts'
import type { Region } from '../../data/index.ts'
import { coordsOf, type Family, isVqa, trainGroupNames, type VqaFamily } from '../../models/index.ts'
import type { OpenTask, TermConfig } from '../../rewards/index.ts'
import { openSegmenter, type Segmenter } from '../../sam/index.ts'
import type { CommonSettings, Evaluator, TaskKind, WorkItem } from '../kind.ts'
import type { CoordinateKind } from './answer-config.ts'
import { pointChooser } from './choose.ts'
import { type ComparedRecord, compareItems, type KnownClicks } from './compare.ts'
import { comparedMetrics, pointRatios } from './compared-metrics.ts'
import { PointsConfig, type PointsInput, resolvePoints, rewardOfPoints } from './config.ts'
import type { PointSetup } from './item.ts'
import { pointLessons } from './lessons.ts'
import { OpenItems } from './open-items.ts'
import { openTerm, PointsRewards } from './reward-term.ts'
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

export function requireAsking(family: Family): VqaFamily {
  if (isVqa(family)) return family
  throw new Mismatch({
    where: family.dir,
    field: 'model',
    expected: 'one that answers questions about an image, such as qwen2_5_vl or qwen3_vl',
    got: family.name,
  })
}

/** What is open next to a family: one segmenter for the task of a run and its evaluation, and their items. */
interface Beside {
  path: string
  sam: Segmenter
  items: OpenItems[]
}
const beside = new WeakMap<Family, Beside>()

/** The segmenter on the device and in the dtype of the family. */
function openBeside(family: VqaFamily, { sam: path, coords }: PointsConfig): Beside {
  const known = beside.get(family)
  if (known?.path === path) return known
  closeBeside(family)
  const { device, dtype } = family.placement
  const opened = { path, sam: openSegmenter(path, { device, dtype }), items: [] }
  beside.set(family, opened)
  log.info(coordinatesText(family, coords))
  return opened
}

const units = { pixel: 'pixels of the resized image', thousand: '0 to 1000 of the sides', unit: '0 to 1 of the sides' }

/** One line at the start: in a wrong frame nearly every answer would be wrong while it parses well. */
export function coordinatesText(
  { name, coords: usual }: Pick<VqaFamily, 'name' | 'coords'>,
  coords: CoordinateKind,
): string {
  const text = `points.coords ${coords}: coordinates are ${units[coords]}`
  return coords === usual ? text : `warning: ${text}, but ${name} was trained to write ${usual}`
}

function closeBeside(family: Family): void {
  const opened = beside.get(family)
  if (!opened) return
  for (const items of opened.items) items.close()
  opened.sam.dispose()
  beside.delete(family)
}

function openItems(setup: PointSetup): OpenItems {
  const items = new OpenItems(setup, maxOpen)
  beside.get(setup.policy)!.items.push(items)
  return items
}

function setupOf(family: Family, config: PointsRunConfig): PointSetup {
  const policy = requireAsking(family)
  const settings = resolvePoints(config.points, policy.coords)
  const { sam } = openBeside(policy, settings)
  return { policy, sam, config: settings, maxNewTokens: config.rl.maxCompletionLength }
}

const otherGroups = trainGroupNames.filter((group) => group !== 'lora')
const noText = 'the answers are points, which only their masks score'

/** Items kept open: a step's records stay while it samples, answers and learns. */
const maxOpen = 48

const asked =
  'mode sam positivePrompt previousMask multimask coords imageSize thinking wording maxPoints allowEmpty oob dupRadius formatScore turns noTarget preset'
const readPaths = asked.split(' ').map((name) => `points.${name}`)

export const points: TaskKind<PointsRunConfig> = {
  name: 'points',
  doc: 'points for SAM2: answer with points, be rewarded for the mask',
  readsImages: true,
  defaults: { train: ['lora'], lora: { rank: 64 } },
  reads: { eval: readPaths, sft: [...readPaths, 'points.keepEasy'], plan: ['points.sam'] },
  unused: {
    maxTiles: 'images are stretched to points.imageSize',
    region: 'the object is marked in the words of the question',
    rounding: 'the masks are drawn by points.sam, which has no such choice',
    featureCache: 'SAM2 and the model read each image anew',
    adaptiveLoops: 'there is one loss to weigh',
    ...Object.fromEntries(otherGroups.map((group) => [`lrScale.${group}`, 'only lora learns'])),
    'rewards.judge': noText,
    'rewards.meteor': noText,
    'rewards.length': noText,
    'rewards.iou.multiSeg': 'an answer has one mask',
  },
  resolve: (config, { points: input }) => ({
    points: resolvePoints(input as PointsInput, coordsOf((config as { model?: string }).model ?? '')),
  }),
  close: closeBeside,
  recordRules({ points: { mode, noTarget } }) {
    const prompted = ({ meta }: Region) => meta['box'] !== undefined || meta['points'] !== undefined
    return { usesEmpty: (region) => noTarget === 'keep' && (mode === 'joint' || prompted(region)) }
  },
  chooser: (family, config) => pointChooser(setupOf(family, config)),
  check(config) {
    resolvePoints(config.points)
    const refuse = (field: string, expected: string, got: unknown, hint?: string): never => {
      throw new Mismatch({ where: 'settings', field, expected, got, hint })
    }
    const { model } = config as { model?: string }
    if (config.points.sam === '' && model)
      refuse('points.sam', 'a SAM2 checkpoint', 'nothing', 'give --points.sam FILE')
    const other = config.train.filter((group) => group !== 'lora')
    if (other.length > 0) refuse('train', 'lora: nothing else learns in this task', other.join(', '), '--train lora')
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
    open(family, config, { everything, maskWeight }) {
      const refuse = (field: string, expected: string, got: unknown, hint?: string) =>
        new Mismatch({ where: 'sft', field, expected, got, hint })
      if (everything) throw refuse('train', 'lora: nothing else learns in this task', 'all', '--train lora')
      if (maskWeight !== 1) throw refuse('maskWeight', 'nothing: this task has no mask loss', maskWeight)
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
}
