// The method: sample, score, learn, follow. B records, K samples each, T columns. docs/method.md explains it.
import { adaptEntropy } from './entropy.ts'
import { learnFrom, requireFiniteGradients, sumGradients } from './learn.ts'
import type { Batch, Run } from './run.ts'
import { sampleGroups } from './sample.ts'
import { StepReport } from './step-report.ts'

/** One optimizer step. */
export async function step(
  run: Run,
  batch: Batch,
  learningRate: number,
  report = new StepReport(),
): Promise<StepReport> {
  // sample, score: K answers of P, what E answers back, rewards, advantages; no gradient is recorded
  const { groups, ready } = batch.groups ? { groups: batch.groups, ready: batch.ready } : await sampleGroups(run, batch)
  const { optim } = run.roles
  report.ddof = run.config.rl.ddof
  try {
    // learn: the same samples again, now with gradient
    await learnFrom(run, groups, { ...batch, ready }, report)
    if (!run.config.adaptiveLoops) await sumGradients(run, report)
    const norms = optim.gradientNorms()
    requireFiniteGradients(run, norms)
    report.groupNorms = run.roles.gradNorms(norms)
    report.gradNorm = optim.clipGradNorm(run.config.maxGradNorm || Number.POSITIVE_INFINITY, norms)
    // follow: one update of P, then the EMA copy E, and a reference that moves, take their small step
    optim.step(learningRate)
    await run.roles.share(run.world)
    run.roles.follow()
    run.entropy = adaptEntropy(run.entropy, report.entropy, run.config.rl)
    return report
  } finally {
    optim.zeroGrad()
  }
}
