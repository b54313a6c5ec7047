// Which curves come first and how their names are split; the live page's script uses it too, so nothing is imported here.

/** What a reader looks at first, in this order; everything else is folded away below. */
export const firstFigures =
  'reward_mean reward rewards/iou/mean rewards/meteor/mean rewards/judge/mean total_loss loss policy_loss kl_div kl entropy frac_reward_zero_std reward_std reward_group_std completions/mean_length completions/clipped_ratio grad_norm learning_rate step_time'.split(
    ' ',
  )
/** Given by a schedule or counted: smoothing would only bend them. */
export const exactFigures = ['learning_rate', 'epoch', 'num_tokens']

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
  const at = firstFigures.indexOf(name)
  return at < 0 ? firstFigures.length : at
}
