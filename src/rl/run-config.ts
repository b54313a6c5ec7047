// Every setting of a run, composed once from the rooms' own schemas. Flags, recipe files and the reference page come from here.
import { z } from 'zod'
import { Mismatch } from '../core/index.ts'
import { DataConfig } from '../data/index.ts'
import { OptimConfig } from '../optim/index.ts'
import { RewardsConfig } from '../rewards/index.ts'
import { GrpoConfig, type GrpoInput, resolveGrpo } from './config.ts'

export const LoraConfig = z.strictObject({
  rank: z.int().positive().default(128).describe('rank of the adapters'),
  alpha: z.number().positive().default(256).describe('the adapters are scaled by alpha / rank'),
  dropout: z
    .number()
    .min(0)
    .lt(1)
    .default(0.05)
    .describe('dropout on the adapters in sft; reinforcement learning uses none'),
})

/** Patterns of each trainable group; a group that matches nothing is an error. */
export const trainGroups = {
  mlp1: [/^mlp1\./],
  lora: [/\.lora_[AB]\./],
  text_hidden_fcs: [/^text_hidden_fcs\./],
  mask_decoder: [/^grounding_encoder\.sam2_model\.sam_mask_decoder\./],
  prompt_encoder: [/^grounding_encoder\.sam2_model\.sam_prompt_encoder\.(not_a_point_embed|no_mask_embed)\./],
} as const
export type TrainGroup = keyof typeof trainGroups
const groupNames = Object.keys(trainGroups) as [TrainGroup, ...TrainGroup[]]

const scaleOf = (group: string) =>
  z.number().positive().default(1).describe(`factor on optim.learningRate for ${group}`)

/** One factor for each trainable group. */
export const LrScaleConfig = z.strictObject({
  mlp1: scaleOf('mlp1'),
  lora: scaleOf('the adapters'),
  text_hidden_fcs: scaleOf('text_hidden_fcs'),
  mask_decoder: scaleOf('the mask decoder'),
  prompt_encoder: scaleOf('the trained vectors of the prompt encoder'),
} satisfies Record<TrainGroup, z.ZodType>)

export const LoopConfig = {
  loop1: z.strictObject({
    weight: z
      .number()
      .nonnegative()
      .default(1)
      .describe('weight of mask -> caption -> mask in the loss; 0 switches it off'),
    question: z.string().optional().describe("the question about a region; the model family's own if absent"),
  }),
  loop2: z.strictObject({
    weight: z
      .number()
      .nonnegative()
      .default(1)
      .describe('weight of caption -> mask -> caption in the loss; 0 switches it off'),
    action: z
      .enum(['field', 'embedding', 'text'])
      .default('field')
      .describe('what is sampled: the pooled mask logits, the [SEG] prompt, or the answer text alone'),
    actionStd: z
      .number()
      .positive()
      .default(0.5)
      .describe('noise of the action, as a multiple of its spread over records, measured at the start'),
    grid: z.int().positive().default(16).describe('side of the grid the field action perturbs'),
    beta: z
      .number()
      .nonnegative()
      .nullable()
      .default(null)
      .describe('weight of the KL term in this loop; rl.beta if null'),
    sampleText: z.boolean().default(false).describe('sample the answer text instead of decoding it greedily'),
    maskLoss: z
      .number()
      .nonnegative()
      .default(0)
      .describe('weight of the supervised BCE + Dice term on the undisturbed mask'),
  }),
}

export const RunConfig = z.strictObject({
  model: z.string().default('').describe('folder of the Sa2VA checkpoint'),
  output: z.string().default('runs/train').describe('run folder'),
  device: z.string().default('auto').describe('cpu, cuda, cuda:N, or auto: cuda where there is one'),
  dtype: z
    .enum(['auto', 'float32', 'bfloat16'])
    .default('auto')
    .describe('of the frozen weights and activations; auto: float32 on the CPU, bfloat16 on CUDA'),
  seed: z.int().nonnegative().default(42).describe('decides weights, order, sampling and noise'),
  threads: z.int().nonnegative().default(0).describe('CPU threads; 0: all cores'),
  dataPath: z.string().default('').describe('folder or file of the records, or scenes:N for N generated ones'),
  evalPath: z
    .string()
    .nullable()
    .default(null)
    .describe('records of the evaluation; a part of dataPath (data.evalFraction) if null'),
  data: DataConfig.prefault({}).describe('records'),
  maxTiles: z
    .int()
    .positive()
    .nullable()
    .default(null)
    .describe("tiles per image at most; the model's own limit if null"),
  batchSize: z.int().positive().default(4).describe('records per micro-batch and process'),
  epochs: z.number().positive().default(1).describe('passes over the data; maxSteps wins'),
  maxSteps: z.int().default(-1).describe('optimizer steps; -1: as epochs say'),
  rl: GrpoConfig.prefault({}).describe('the GRPO loss and sampling'),
  optim: OptimConfig.prefault({}).describe('optimizer, schedule, EMA'),
  lrScale: LrScaleConfig.prefault({}).describe('learning rates of the groups against each other'),
  loop1: LoopConfig.loop1.prefault({}).describe('mask -> caption -> mask'),
  loop2: LoopConfig.loop2.prefault({}).describe('caption -> mask -> caption'),
  adaptiveLoops: z
    .boolean()
    .default(false)
    .describe("scale each loop's weight by the inverse of its running gradient norm"),
  rewards: RewardsConfig.prefault({}).describe('what is rewarded'),
  shuffleRewards: z
    .boolean()
    .default(false)
    .describe('test switch: permute rewards inside each group, so that they carry no signal'),
  lora: LoraConfig.prefault({}).describe('adapters on the language model'),
  train: z
    .array(z.enum(groupNames))
    .nonempty()
    .default([...groupNames])
    .describe('groups of weights that learn; every other weight is frozen'),
  checkpointing: z
    .boolean()
    .default(false)
    .describe('recompute decoder layers in backward: less memory, about a third more time'),
  featureCache: z
    .string()
    .nullable()
    .default(null)
    .describe('folder that keeps the frozen image features across epochs and runs'),
  evalRecords: z.int().nonnegative().default(64).describe('held-out records of an evaluation; 0: none'),
  evalSteps: z.int().nonnegative().default(0).describe('optimizer steps between evaluations; 0: before and after only'),
  evalBatch: z.int().positive().default(16).describe('records per evaluation batch'),
  saveSteps: z.int().nonnegative().default(500).describe('optimizer steps between checkpoints; 0: at the end only'),
  saveTotalLimit: z.int().positive().default(3).describe('checkpoints kept'),
  logSteps: z
    .int()
    .positive()
    .default(1)
    .describe('optimizer steps between updates of the status line; the run folder has every step'),
  onNonFinite: z
    .enum(['stop', 'skip'])
    .default('stop')
    .describe('a NaN or infinity in loss or gradient ends the run, or skips the update'),
  checkGroups: z
    .boolean()
    .default(true)
    .describe('end the run when a trainable group gets no gradient in the first steps'),
  tensorboard: z.boolean().default(true).describe('also write TensorBoard event files'),
})
export type RunConfig = z.infer<typeof RunConfig>
export type RunInput = z.input<typeof RunConfig>

/** Types, presets and combinations checked; what cannot work is refused here with the reason. */
export function resolveRun(input: RunInput): RunConfig {
  const parsed = RunConfig.safeParse(input)
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!
    throw new Mismatch({
      where: 'settings',
      field: issue.path.join('.') || 'settings',
      expected: issue.message,
      got: valueAt(input, issue.path),
    })
  }
  const config = { ...parsed.data, rl: resolveGrpo((input.rl ?? {}) as GrpoInput) }
  checkRun(config)
  return config
}

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  let value: unknown = input
  for (const key of path) value = (value as Record<PropertyKey, unknown> | undefined)?.[key]
  return value ?? 'nothing'
}

function refuse(field: string, expected: string, got: unknown, hint?: string): never {
  throw new Mismatch({ where: 'settings', field, expected, got, hint })
}

function checkRun(c: RunConfig): void {
  if (c.loop1.weight === 0 && c.loop2.weight === 0)
    refuse('loop1.weight, loop2.weight', 'at least one loop with a weight', 0)
  if (c.loop2.action === 'text' && c.loop2.weight > 0 && !c.loop2.sampleText) {
    refuse(
      'loop2.sampleText',
      'true with loop2.action text',
      false,
      'a greedy answer gives K equal masks: no spread, no gradient',
    )
  }
  checkSupported(c)
  const unreached = unreachedGroups(c)
  if (unreached.length > 0) {
    refuse(
      'train',
      'groups that the enabled losses reach',
      unreached.join(', '),
      'use loop2.action field, set loop2.maskLoss, or leave them out of train',
    )
  }
}

/** What could have no effect in a run is refused. */
function checkSupported({ rl, loop2 }: RunConfig): void {
  const hint = 'a run samples with the weights and the engine it scores with: every weight would be 1'
  if (rl.rolloutCorrection !== null) refuse('rl.rolloutCorrection', 'null', rl.rolloutCorrection, hint)
  if (rl.lossType === 'luspo' && (loop2.beta ?? 0) !== 0) refuse('loop2.beta', '0 or null for luspo', loop2.beta)
}

/** Groups no enabled loss has a path to: they would be called trainable and never move. */
export function unreachedGroups(c: RunConfig): TrainGroup[] {
  const reached = new Set<TrainGroup>(['mlp1', 'lora'])
  if (c.loop2.weight > 0 && (c.loop2.action !== 'text' || c.loop2.maskLoss > 0)) reached.add('text_hidden_fcs')
  if (c.loop2.weight > 0 && (c.loop2.action === 'field' || c.loop2.maskLoss > 0)) {
    reached.add('mask_decoder')
    reached.add('prompt_encoder')
  }
  return c.train.filter((g) => !reached.has(g))
}
