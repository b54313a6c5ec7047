// One stage of training: AdamW steps on a loss, with a line of metrics every 50 steps.
import { log } from '../../src/core/index.ts'
import { adamwOf, learningRateAt, OptimConfig } from '../../src/optim/index.ts'
import { backward, clearTape, type Tensor, tidy } from '../../src/tensor/index.ts'

/** Where the stages compute: ROUNDTRIP_TOOL_DEVICE, by default the CPU. */
export const on = { device: process.env.ROUNDTRIP_TOOL_DEVICE ?? 'cpu' }

/** Options of every stage. */
export interface StageOptions {
  steps: number
  /** Images of a step. */
  images: number
  learningRate: number
}

export interface Stage {
  name: string
  params: ReadonlyMap<string, Tensor>
  steps: number
  learningRate: number
  /** Loss of a step, and scalars to log. */
  loss(step: number): { loss: Tensor; metrics: Record<string, Tensor> }
}

export function runStage({ name, params, steps, learningRate, loss }: Stage): void {
  const settings = OptimConfig.parse({
    learningRate,
    lrSchedulerType: 'cosine_with_min_lr',
    minLrRate: 0.05,
    warmupSteps: 30,
    weightDecay: 0.01,
    adamBeta2: 0.99,
  })
  for (const t of params.values()) t.requiresGrad_()
  const optim = adamwOf(params, settings)
  const sums = new Map<string, number>()
  const every = 50
  const startedAt = performance.now()
  for (let step = 0; step < steps; step++) {
    tidy(() => {
      const result = loss(step)
      backward(result.loss)
      optim.clipGradNorm(settings.maxGradNorm)
      optim.step(learningRateAt(step, settings, steps))
      for (const [key, value] of Object.entries(result.metrics)) sums.set(key, (sums.get(key) ?? 0) + value.item())
    })
    clearTape()
    optim.zeroGrad()
    if ((step + 1) % every !== 0) continue
    const metrics = [...sums].map(([key, sum]) => `${key} ${(sum / every).toFixed(3)}`).join('  ')
    const pace = (performance.now() - startedAt) / 1000 / (step + 1)
    log.info(`${name} ${step + 1}/${steps}  ${metrics}  ${pace.toFixed(2)} s/step`)
    sums.clear()
  }
  optim.dispose()
  for (const t of params.values()) t.requiresGrad_(false)
}

export function share(correct: Tensor): Tensor {
  return correct.to('float32').mean()
}

/** Mean of -log p of the wanted classes: scores [R, n], int64 [R]. */
export function crossEntropy(scores: Tensor, want: Tensor): Tensor {
  return scores.logSoftmax(-1).gather(1, want.unsqueeze(1)).mean().neg()
}
