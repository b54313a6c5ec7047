// Names of the Python prototypes: those that mean a setting, those that mean a variable of the environment, those without an effect.
import { specifiedRewards } from '../tasks/index.ts'

const rewardFlags = Object.fromEntries(
  Object.entries(specifiedRewards).map(([name, field]) => [`reward.${name}`, `points.reward.${field}`]),
)

/** Flags and keys of the Python prototypes; their defaults are the settings' own. */
export const prototypeFlags: Readonly<Record<string, string>> = {
  model_path: 'model',
  data_dir: 'dataPath',
  dataset_name: 'dataPath',
  local_data_dir: 'dataPath',
  output_dir: 'output',
  batch_size: 'batchSize',
  per_device_batch_size: 'batchSize',
  num_generations: 'rl.numGenerations',
  learning_rate: 'optim.learningRate',
  num_epochs: 'epochs',
  max_steps: 'maxSteps',
  save_steps: 'saveSteps',
  save_total_limit: 'saveTotalLimit',
  log_steps: 'logSteps',
  logging_steps: 'logSteps',
  report_to: 'reportTo',
  max_completion_length: 'rl.maxCompletionLength',
  gradient_accumulation_steps: 'rl.gradientAccumulationSteps',
  kl_coef: 'rl.beta',
  beta: 'rl.beta',
  clip_range: 'rl.epsilon',
  mask_to_caption_weight: 'loop1.weight',
  caption_to_mask_weight: 'loop2.weight',
  ema_decay: 'optim.emaDecay',
  temperature: 'rl.temperature',
  entropy_coef: 'rl.entropyCoef',
  warmup_steps: 'optim.warmupSteps',
  max_grad_norm: 'optim.maxGradNorm',
  use_llm_judge: 'rewards.judgeLoop1',
  use_llm_judge_loop2: 'rewards.judgeLoop2',
  llm_judge_base_url: 'rewards.judge.baseUrl',
  llm_judge_model: 'rewards.judge.model',
  lora_r: 'lora.rank',
  lora_alpha: 'lora.alpha',
  lora_dropout: 'lora.dropout',
  seed: 'seed',
  // of the prototype that places points
  sam_checkpoint: 'points.sam',
  group_size: 'rl.numGenerations',
  max_new_tokens: 'rl.maxCompletionLength',
  eps_low: 'rl.epsilon',
  clip_lower: 'rl.epsilon',
  eps_high: 'rl.epsilonHigh',
  clip_upper: 'rl.epsilonHigh',
  loss_norm: 'rl.lossType',
  num_iterations: 'rl.numIterations',
  weight_decay: 'optim.weightDecay',
  schedule: 'optim.lrSchedulerType',
  eval_steps: 'evalSteps',
  train_data: 'dataPath',
  'train_data.arrow_dir': 'dataPath',
  'train_data.mask_dir': 'data.maskDir',
  arrow_dir: 'dataPath',
  mask_dir: 'data.maskDir',
  val_data: 'evalPath',
  'val_data.arrow_dir': 'evalPath',
  mode: 'points.mode',
  positive_prompt: 'points.positivePrompt',
  previous_mask: 'points.previousMask',
  multimask: 'points.multimask',
  coords: 'points.coords',
  image_size: 'points.imageSize',
  thinking: 'points.thinking',
  max_points: 'points.maxPoints',
  allow_empty: 'points.allowEmpty',
  oob: 'points.oob',
  dup_radius: 'points.dupRadius',
  format_score: 'points.formatScore',
  turns: 'points.turns',
  no_target: 'points.noTarget',
  keep_easy: 'points.keepEasy',
  alpha: 'points.reward.alpha',
  lambda_neg: 'points.reward.placement',
  lambda_format: 'points.reward.format',
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
