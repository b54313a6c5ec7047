// Names, order and meaning of metrics, and numbers as text. Also part of the live page's script.

/** The metrics shown first, in this order, with their meaning. */
const first: Readonly<Record<string, string>> = {
  reward_mean: 'mean reward of the samples',
  'rewards/iou/mean': 'mean IoU, before its weight',
  'rewards/meteor/mean': 'mean METEOR, before its weight',
  'rewards/judge/mean': "mean of the judge's scores, before their weight",
  total_loss: 'losses of all tasks with their weights',
  loss: 'loss of the task with its KL term',
  policy_loss: 'loss of the task without its KL term',
  kl_div: 'distance from the starting weights, nats per token, without beta',
  entropy: 'how open the choice of a token is, nats',
  frac_reward_zero_std: 'share of groups with equal rewards: they teach nothing',
  reward_std: 'spread of the rewards over the batch',
  reward_group_std: 'spread of the rewards inside a group, mean',
  'completions/mean_length': 'length of an answer, tokens',
  'completions/clipped_ratio': 'share of answers cut at the longest length',
  grad_norm: 'norm of the gradient before it is clipped',
  learning_rate: 'by its schedule',
  step_time: 'time of a step, seconds',
}
export const firstMetrics = Object.keys(first)

const meanings: Readonly<Record<string, string>> = {
  ...first,
  live_tensors: 'tensors alive after a step',
  live_bytes: 'tensors alive after a step',
  host_bytes: 'memory of the whole process',
  gpu_bytes: 'GPU memory in use after a step',
  gpu_peak_bytes: 'peak of the GPU memory in use',
}

/** What a metric means, with its unit; empty if only its name is known. */
export const meaningOf = (name: string): string => (Object.hasOwn(meanings, name) ? meanings[name]! : '')

/** Follow a schedule or count something: they are not smoothed. */
export const exactMetrics = ['learning_rate', 'epoch', 'num_tokens']

/** 'points/kl' -> the task 'points' and 'kl'; a name without a task's prefix belongs to the whole run. */
export function splitKey(
  key: string,
  tasks: readonly { name: string; title: string }[],
): { task?: { name: string; title: string }; at: number; name: string } {
  const at = tasks.findIndex(({ name }) => key.startsWith(`${name}/`))
  const task = tasks[at]
  return task ? { task, at, name: key.slice(task.name.length + 1) } : { at, name: key }
}

/** Position of a metric in the order of reading; unknown names come last. */
export function rank(name: string): number {
  const at = firstMetrics.indexOf(name)
  return at < 0 ? firstMetrics.length : at
}

/** `1 step`, `2 steps`. The browser's copy: core imports Node's modules. */
export const counted = (count: number, word: string) => `${count} ${word}${count === 1 ? '' : 's'}`

const odd: Record<string, number> = { NaN: Number.NaN, Infinity: Number.POSITIVE_INFINITY, '-Infinity': -Infinity }

/** Numbers that JSON has no word for come as strings. */
export const numberOf = (value: unknown): number =>
  typeof value === 'number' ? value : (odd[String(value)] ?? Number.NaN)

export function bytes(value: number): string {
  if (!Number.isFinite(value)) return String(value)
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let [size, unit] = [value, 0]
  for (; Math.abs(size) >= 1024 && unit < units.length - 1; unit++) size /= 1024
  return `${Number.isInteger(size) ? size : size.toFixed(1)} ${units[unit]}`
}

/** A number in a few characters. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return String(value)
  const size = Math.abs(value)
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2)
  return String(Number(value.toPrecision(4)))
}
