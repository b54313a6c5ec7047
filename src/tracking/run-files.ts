/** What a run folder holds, by name. */
export const runFiles = {
  config: 'config.json',
  environment: 'environment.json',
  events: 'events.jsonl',
  samples: 'samples.jsonl',
  timing: 'timing.jsonl',
  images: 'images',
  tensorboard: 'tensorboard',
  wandb: 'wandb',
  mlflow: 'mlflow.json',
} as const
