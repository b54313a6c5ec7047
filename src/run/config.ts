// Every setting of a run, composed once from the rooms' own schemas. Flags, recipe files and the reference page come from here.
import { z } from 'zod'
import { oneOf, optional, refusalOf, setting } from '../config/index.ts'
import { Mismatch } from '../core/index.ts'
import { DataConfig } from '../data/index.ts'
import { backendNames } from '../distributed/index.ts'
import { defaultTrainGroups, type TrainGroup, trainGroupNames } from '../models/index.ts'
import { frozenForms } from '../nn/index.ts'
import { OptimConfig } from '../optim/index.ts'
import { RewardsConfig } from '../rewards/index.ts'
import { GrpoConfig, type GrpoInput, resolveGrpo } from '../rl/index.ts'
import {
  builtInKind,
  resolveTask,
  type TaskKind,
  taskKinds,
  taskRewardSettings,
  taskSettings,
  whyUnused,
} from '../tasks/index.ts'
import { trackerNames } from '../tracking/index.ts'
import { flattened, type Settings } from './flat-settings.ts'
import { checkLimits } from './limits.ts'

export const LoraConfig = z
  .strictObject({
    rank: setting(z.int().positive(), 128, 'rank of the adapters'),
    alpha: optional(z.number().positive(), 'the adapters are scaled by alpha / rank; null: twice the rank'),
    targets: optional(
      z.string().min(1).max(1024),
      'adapted layers: attention, all-linear, or a regular expression for whole names of layers of language model and projector; null: attention for Qwen-VL, all-linear for Sa2VA',
    ),
    dropout: optional(
      z.number().min(0).lt(1),
      'dropout on the adapters in sft; 0.05 if null. Reinforcement learning uses none',
    ),
  })
  .transform((lora) => ({ ...lora, alpha: lora.alpha ?? 2 * lora.rank }))
/** Of sft, if the settings name none. */
export const defaultDropout = 0.05

export const SamplingConfig = z.strictObject({
  weights: oneOf(
    ['auto', 'merged', 'exact'],
    'adapters of policy and EMA copy while they sample and answer: merged into copies of their layers (less time; in bfloat16 the rounded weights are another policy, see rl.rolloutCorrection), or separate as in the loss; auto: merged in float32 on the CPU, and if our kernels decode (see kernels). With quantized matrices (frozenWeights) auto merges only if our kernels decode and the copies fit into the GPU (plan)',
  ),
})

/** Larger steps of these parts let masks drift, also with shuffled rewards: dev/results/experiments.md, "Signal against wandering". */
const smallerSteps: Readonly<Partial<Record<TrainGroup, number>>> = {
  text_hidden_fcs: 0.3,
  mask_decoder: 0.1,
  prompt_encoder: 0.1,
}

const scaleOf = (group: TrainGroup) =>
  setting(z.number().positive(), smallerSteps[group] ?? 1, `factor on optim.learningRate for ${group}`)

/** One factor for each trainable group. */
export const LrScaleConfig = z.strictObject(
  Object.fromEntries(trainGroupNames.map((group) => [group, scaleOf(group)])) as Record<
    TrainGroup,
    ReturnType<typeof scaleOf>
  >,
)

/** Rewards of the run: what every kind of task has, and what the kinds add. */
const RunRewards = z.strictObject({ ...taskRewardSettings, ...RewardsConfig.shape })

export const RunConfig = z.strictObject({
  task: setting(
    z.string(),
    'cycle',
    `what is trained: ${Object.keys(taskKinds).join(', ')}, or the path of a module that exports \`task\``,
  ),
  model: setting(z.string(), '', 'folder of the model: config.json, weights, tokenizer'),
  output: setting(z.string(), 'runs/train', 'run folder'),
  device: setting(
    z.string().regex(/^(auto|cpu|cuda(:\d+)?)$/, 'cpu, cuda, cuda:N or auto'),
    'auto',
    'cpu, cuda, cuda:N, or auto: cuda if there is one',
  ),
  dtype: oneOf(
    ['auto', 'float32', 'bfloat16'],
    'of the frozen weights and activations; auto: float32 on the CPU, bfloat16 on CUDA',
  ),
  frozenWeights: oneOf(
    frozenForms,
    "how the frozen matrices of the language model's layers are stored: in dtype, in 8 bit (a scale per row) or in 4 bit (NF4, a scale per 64 columns); int8 and nf4 need checkpointing true, and learning takes torch's ops in the place of our kernels",
  ),
  kernels: oneOf(
    ['auto', 'off'],
    'decoding and learning with our kernels; auto: in bfloat16 on GPUs of compute capability 8.0, 8.6, 8.9 and 9.0, if they cover the decoder and, for decoding, adapters are merged (sampling.weights); off: PyTorch ops',
  ),
  seed: setting(z.int().nonnegative(), 42, 'decides weights, order, sampling and noise'),
  fixedOrder: setting(
    z.boolean(),
    true,
    'train on CUDA: gradients are summed in a fixed order, the same seed gives the same bytes; false: faster, and a custom task may use any op',
  ),
  threads: setting(z.int().nonnegative().max(1024), 0, 'CPU threads; 0: all cores'),
  dataPath: setting(z.string(), '', 'folder or file of the records, or scenes:N for N generated ones'),
  evalPath: optional(z.string(), 'records of the evaluation; a part of dataPath (data.evalFraction) if null'),
  data: DataConfig.prefault({}).describe('records'),
  maxTiles: optional(
    z.int().positive(),
    "tiles per image at most (a picture for Qwen-VL counts 448 x 448 pixels as one); the model's own limit if null",
  ),
  region: optional(
    z.enum(['overlay', 'cells']),
    "how a region is shown to the model: its outline drawn on the picture, or its visual tokens copied; the family's own way if null",
  ),
  rounding: oneOf(
    ['once', 'bf16-ref'],
    'of the mask decoder in bfloat16: as close to float32 as it can be, or where the reference rounds',
  ),
  batchSize: setting(z.int().positive(), 6, 'records per micro-batch, over all processes'),
  epochs: setting(z.number().positive(), 1, 'passes over the data; maxSteps wins'),
  maxSteps: setting(z.int().min(-1), -1, 'optimizer steps; -1: as epochs say'),
  rl: GrpoConfig.prefault({}).describe('the GRPO loss and sampling'),
  sampling: SamplingConfig.prefault({}).describe('how samples and answers are computed'),
  optim: OptimConfig.prefault({}).describe('optimizer, schedule, EMA'),
  lrScale: LrScaleConfig.prefault({}).describe('learning rates of the groups against each other'),
  ...taskSettings,
  adaptiveLoops: setting(z.boolean(), false, "scale each loop's weight by the inverse of its running gradient norm"),
  rewards: RunRewards.prefault({}).describe('what is rewarded'),
  shuffleRewards: setting(
    z.boolean(),
    false,
    'test switch: permute rewards inside each group, so that they carry no signal',
  ),
  splitMoments: setting(
    z.boolean(),
    false,
    "several processes: each keeps the optimizer's moments, the EMA copy and the initial values of a part of what trains (ZeRO stage 1)",
  ),
  distributed: z
    .strictObject({
      backend: oneOf(
        backendNames,
        'several processes on CUDA: NCCL, or Gloo through host memory; auto: NCCL if each has its own GPU',
      ),
    })
    .prefault({})
    .describe('several processes'),
  distTimeout: setting(
    z.number().positive(),
    600,
    'several processes: seconds that one may be waited for before the run fails',
  ),
  lora: LoraConfig.prefault({}).describe('adapters on the language model'),
  train: setting(
    z.array(z.enum(trainGroupNames)).nonempty(),
    [...defaultTrainGroups],
    'groups of weights that learn; every other weight is frozen. Default: those of the five that the family has; embeddings and head train when named',
  ),
  checkpointing: setting(
    z.boolean(),
    false,
    'recompute in backward instead of keeping: less memory, more time. Whole decoder layers, a third more time; if our kernels learn (kernels), only their wide parts, a fifth',
  ),
  featureCache: optional(z.string(), 'folder that keeps the frozen image features across epochs and runs'),
  evalRecords: setting(z.int().nonnegative(), 64, 'held-out records of an evaluation; 0: none'),
  evalSteps: setting(z.int().nonnegative(), 0, 'optimizer steps between evaluations; 0: before and after only'),
  evalBatch: setting(z.int().positive(), 16, 'records per evaluation batch'),
  saveSteps: setting(z.int().nonnegative(), 500, 'optimizer steps between checkpoints; 0: at the end only'),
  saveTotalLimit: setting(z.int().positive(), 3, 'checkpoints kept'),
  saveTimeout: setting(
    z.number().nonnegative(),
    300,
    'seconds that a checkpoint waits for a disk that is full or fails before the run ends; 0: none',
  ),
  samplesMiB: setting(
    z.number().positive(),
    2048,
    'max MiB of samples.jsonl; beyond it the run continues without keeping samples and their images',
  ),
  logSteps: setting(
    z.int().positive(),
    1,
    'optimizer steps between updates of the status line; the run folder has every step',
  ),
  onNonFinite: oneOf(['stop', 'skip'], 'a NaN or infinity in loss or gradient ends the run, or skips the update'),
  checkGroups: setting(z.boolean(), true, 'end the run when a trainable group gets no gradient in the first steps'),
  tensorboard: setting(z.boolean(), true, 'also write TensorBoard event files'),
  reportTo: setting(
    z.array(z.enum([...trackerNames, 'none'])),
    [],
    'trackers that get the metrics too; none: not even TensorBoard files',
  ),
  reportTimeout: setting(
    z.number().nonnegative(),
    1800,
    'seconds that a tracker of reportTo may fail before the run saves and ends; 0: the run continues without it',
  ),
})
/** Every setting with its default filled in; docs/reference.md lists them. */
export type RunConfig = z.infer<typeof RunConfig>
/** Settings as a user writes them; docs/reference.md lists them. */
export type RunInput = z.input<typeof RunConfig>

/**
 * Types, presets and combinations checked; what cannot work is refused here with the reason. `written`: paths of the settings that the
 * user wrote; absent: those whose values are not the defaults.
 */
export function resolveRun(input: RunInput, written?: Iterable<string>): RunConfig {
  const task = input.task ?? RunConfig.shape.task.parse(undefined)
  rejectUnused(task, flattened(input), written)
  const whole = merged(builtInKind(task)?.defaults ?? {}, input as Nested)
  const parsed = RunConfig.safeParse(whole)
  if (!parsed.success) throw refusalOf(parsed.error, input, 'settings')
  checkLimits(parsed.data)
  const { settings, hasOwnKl } = resolveTask(parsed.data, whole)
  const rl = resolveGrpo((whole['rl'] ?? {}) as GrpoInput, { otherBeta: hasOwnKl })
  const config = { ...parsed.data, ...settings, rl }
  checkRun(config)
  return config
}

type Nested = Readonly<Record<string, unknown>>
const isGroup = (value: unknown): value is Nested =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** `over` on top of `under`, group by group. */
function merged(under: Nested, over: Nested): Nested {
  const both = Object.entries(over).map(([key, value]) => {
    const below = under[key]
    return [key, isGroup(value) && isGroup(below) ? merged(below, value) : (value ?? below ?? value)]
  })
  return { ...under, ...Object.fromEntries(both) }
}

/** A setting that the task of a run does not use is an error: without a message it would look as if it acted. */
function rejectUnused(task: string, values: Settings, written?: Iterable<string>): void {
  for (const path of written ?? changedSettings(values)) {
    const reason = whyUnused(task, path)
    if (reason === null) continue
    const expected = `nothing: task ${task} does not use it, ${reason}`
    throw new Mismatch({ where: 'settings', field: path, expected, got: values[path] ?? 'a value' })
  }
}

let defaults: Settings | undefined

function changedSettings(values: Settings): string[] {
  defaults ??= flattened(RunConfig.parse({}))
  const same = (path: string) => JSON.stringify(values[path]) === JSON.stringify(defaults![path])
  return Object.keys(values).filter((path) => values[path] !== undefined && !same(path))
}

/** Quantized matrices are dequantized for each product: keeping them all for backward would cost what they save. */
function checkFrozen({ frozenWeights, checkpointing }: RunConfig): void {
  if (frozenWeights === 'exact' || checkpointing) return
  const expected = `true with frozenWeights ${frozenWeights}`
  throw new Mismatch({ where: 'settings', field: 'checkpointing', expected, got: checkpointing })
}

/** What could have no effect in a run is refused. */
function checkRun(config: RunConfig): void {
  checkFrozen(config)
  const kind = builtInKind(config.task) as TaskKind<RunConfig> | null // a user's module is asked when it is loaded
  kind?.check(config)
}
