// Names of the Python prototypes: those that mean a setting, those that mean a variable of the environment, those without an effect.
import { camel } from '../engine/index.ts'
import { specifiedRewards } from '../tasks/index.ts'
import { pathsOf } from './basic-settings.ts'

const rewardFlags = Object.fromEntries(
  Object.entries(specifiedRewards).map(([name, field]) => [`reward.${name}`, `points.reward.${field}`]),
)

/** Names that are those of the settings in snake case, by group. */
const sameNames = {
  '': 'batch_size max_steps save_steps save_total_limit log_steps report_to seed eval_steps',
  rl: 'num_generations max_completion_length gradient_accumulation_steps temperature entropy_coef num_iterations beta',
  optim: 'learning_rate ema_decay warmup_steps max_grad_norm weight_decay',
  points: `mode positive_prompt previous_mask multimask coords image_size thinking max_points allow_empty oob dup_radius
    format_score turns no_target keep_easy`,
}

/** Flags and keys of the Python prototypes; their defaults are the settings' own. */
export const prototypeFlags: Readonly<Record<string, string>> = {
  model_path: 'model',
  data_dir: 'dataPath',
  dataset_name: 'dataPath',
  local_data_dir: 'dataPath',
  output_dir: 'output',
  per_device_batch_size: 'batchSize',
  num_epochs: 'epochs',
  logging_steps: 'logSteps',
  kl_coef: 'rl.beta',
  clip_range: 'rl.epsilon',
  mask_to_caption_weight: 'loop1.weight',
  caption_to_mask_weight: 'loop2.weight',
  use_llm_judge: 'rewards.judgeLoop1',
  use_llm_judge_loop2: 'rewards.judgeLoop2',
  llm_judge_base_url: 'rewards.judge.baseUrl',
  llm_judge_model: 'rewards.judge.model',
  lora_r: 'lora.rank',
  lora_alpha: 'lora.alpha',
  lora_dropout: 'lora.dropout',
  // of the prototype that places points
  sam_checkpoint: 'points.sam',
  group_size: 'rl.numGenerations',
  max_new_tokens: 'rl.maxCompletionLength',
  eps_low: 'rl.epsilon',
  clip_lower: 'rl.epsilon',
  eps_high: 'rl.epsilonHigh',
  clip_upper: 'rl.epsilonHigh',
  loss_norm: 'rl.lossType',
  schedule: 'optim.lrSchedulerType',
  train_data: 'dataPath',
  'train_data.arrow_dir': 'dataPath',
  'train_data.mask_dir': 'data.maskDir',
  arrow_dir: 'dataPath',
  mask_dir: 'data.maskDir',
  val_data: 'evalPath',
  'val_data.arrow_dir': 'evalPath',
  alpha: 'points.reward.alpha',
  lambda_neg: 'points.reward.placement',
  lambda_format: 'points.reward.format',
  ...Object.fromEntries(pathsOf(sameNames).map(([name, path]) => [name, camel(path)])),
  ...rewardFlags,
}

/** Names that mean something else in a run of a task: `beta` is what a right point earns if points are placed. */
export const taskFlags: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  points: { beta: 'points.reward.beta' },
}

/** A name that gives way to the others of its setting: the prototype ignores it if there is a local folder. */
export const weakFlags: ReadonlySet<string> = new Set(['dataset_name'])

/** Flags that set a variable of the environment. */
export const environmentFlags: Readonly<Record<string, string>> = {
  cache_dir: 'HF_DATASETS_CACHE',
  wandb_project: 'WANDB_PROJECT',
  wandb_run_name: 'WANDB_NAME',
}

/** The folder of masks of `evalPath`, which must be that of the records to train on. */
export const evalMasks = 'val_data.mask_dir'

/** Names without an effect here, and why. */
export const unusedFlags: Readonly<Record<string, string>> = {
  sam_config: 'sizes are read from the weights',
  deepspeed: 'see --nproc and splitMoments',
  num_gpus: 'see --nproc',
  local_rank: 'the launcher sets it',
}

/** Values that the prototypes write in another way: a lower clip below zero, and what the sum over tokens is divided by. */
export const prototypeValues: Readonly<Record<string, (text: string) => string>> = {
  clip_lower: (text) => text.replace(/^-/, ''),
  loss_norm: (text) => ({ sequence: 'grpo', token: 'dapo', sum: 'dr_grpo' })[text] ?? text,
}

/** Counts of one process, as every trainer under torchrun has them; the settings count over all processes. */
export const perProcessFlags: ReadonlySet<string> = new Set(['batch_size', 'per_device_batch_size'])
