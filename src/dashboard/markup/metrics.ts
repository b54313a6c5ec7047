// Which curves come first and how their names are split; the live page's script uses it too, so nothing is imported here.

/** What a reader looks at first, in this order, each in a few words; everything else is folded away below. */
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
  live_tensors: 'tensors that the run holds after a step',
  live_bytes: 'tensors that the run holds after a step',
  host_bytes: 'memory of the whole process',
  gpu_bytes: 'memory of the card in use after a step',
  gpu_peak_bytes: 'most memory of the card in use so far',
}

/** What a figure says, with its unit; empty where its name has to do. */
export const meaningOf = (name: string): string => (Object.hasOwn(meanings, name) ? meanings[name]! : '')

/** Given by a schedule or counted: smoothing would only bend them. */
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

/** Place of a figure in the order of reading; figures of no name of their own come last. */
export function rank(name: string): number {
  const at = firstMetrics.indexOf(name)
  return at < 0 ? firstMetrics.length : at
}

/** `1 notice`, `2 notices`. */
export const counted = (count: number, word: string) => `${count} ${word}${count === 1 ? '' : 's'}`

const odd: Record<string, number> = { NaN: Number.NaN, Infinity: Number.POSITIVE_INFINITY, '-Infinity': -Infinity }

/** Numbers that JSON has no word for come as strings. */
export const numberOf = (value: unknown): number =>
  typeof value === 'number' ? value : (odd[String(value)] ?? Number.NaN)

/** A number in a few characters. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return String(value)
  const size = Math.abs(value)
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2)
  return String(Number(value.toPrecision(4)))
}
