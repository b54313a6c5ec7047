// Adaptive weights of the tasks: the larger a task's gradient, the smaller its weight.

/** Share of a running norm that one step replaces. */
const share = 0.1
/** Weights stay in here. */
const [least, most] = [0.2, 5]

/** The running norm after a step; 0: none was measured before. */
export function followNorm(running: number, norm: number): number {
  return running === 0 ? norm : (1 - share) * running + share * norm
}

/** Weight of each task by its running norm; tasks without one keep the weight they have. */
export function balanceOf(norms: Readonly<Record<string, number>>): Record<string, number> {
  const all = Object.entries(norms)
  const mean = all.reduce((sum, [, norm]) => sum + norm, 0) / all.length
  return Object.fromEntries(
    all.flatMap(([name, norm]) => (norm > 0 ? [[name, Math.min(most, Math.max(least, mean / norm))]] : [])),
  )
}
