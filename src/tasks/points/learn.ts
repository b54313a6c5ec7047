// The task on its own: sample, draw, score, learn, without a run folder. It proves that the parts learn together; `train` has the
// same steps with everything a long run needs. K answers of a record, T tokens of the longest.
import { stream, streamId } from '../../core/index.ts'
import { teacherForce } from '../../models/index.ts'
import { addLora, tensorAt } from '../../nn/index.ts'
import { AdamW, learningRateAt, OptimConfig } from '../../optim/index.ts'
import { type PointParts, settledRewards } from '../../rewards/index.ts'
import { type GrpoConfig, groupAdvantages, grpoLoss, resolveGrpo } from '../../rl/index.ts'
import { backward, clearTape, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { openItem, type PointItem, type PointSetup, releaseItem } from './item.ts'
import type { PointRecord } from './record.ts'
import { askPoints, type PointReply, type PointText, replyTo, scoreReplies } from './reply.ts'

export interface LearnOptions {
  steps: number
  /** Records of a step. */
  records: number
  /** Answers for each record. */
  samples: number
  learningRate: number
  seed: number
  temperature?: number
  /** Weight of the KL to the weights without adapters. */
  beta?: number
  lora?: { rank: number; alpha: number }
  /** A control: rewards of a group change places, so that nothing can be learned. */
  shuffleRewards?: boolean
}

interface Group {
  item: PointItem
  texts: PointText[]
  replies: PointReply[]
  parts: PointParts[]
  advantages: Float64Array
}

/** Gives the policy adapters on q, k, v, o of its language model and returns the tensors that learn. */
export function adaptPolicy({ policy }: PointSetup, options: LearnOptions): Map<string, Tensor> {
  const { on, targets } = policy.adapter
  addLora(on, targets, { ...(options.lora ?? { rank: 64, alpha: 128 }), seed: options.seed })
  const adapters = policy.module.slots().filter((slot) => /\.lora_[AB]\.weight$/.test(slot.name))
  const params = new Map(adapters.map((slot) => [slot.name, tensorAt(slot)]))
  for (const t of params.values()) t.requiresGrad_(true)
  return params
}

/** `recordAt`: an endless supply. */
export function learnPoints(
  setup: PointSetup,
  params: ReadonlyMap<string, Tensor>,
  recordAt: (index: number) => PointRecord,
  options: LearnOptions,
): void {
  const settings = OptimConfig.parse({ learningRate: options.learningRate, lrSchedulerType: 'constant_with_warmup' })
  const grpo = resolveGrpo({
    numGenerations: options.samples,
    temperature: options.temperature ?? 1,
    maxCompletionLength: setup.maxNewTokens,
    epsilonHigh: 0.28,
    beta: 0,
  })
  const optim = new AdamW([{ params, weightDecay: 0 }])
  for (let step = 0; step < options.steps; step++) {
    const items = Array.from({ length: options.records }, (_, i) =>
      openItem(setup, recordAt(step * options.records + i)),
    )
    try {
      const groups = sampleGroups(setup, items, step, options, grpo)
      for (const group of groups) learnGroup(setup, group, groups.length, grpo)
      optim.clipGradNorm(settings.maxGradNorm)
      optim.step(learningRateAt(step, settings, options.steps))
      optim.zeroGrad()
    } finally {
      for (const item of items) releaseItem(setup, item)
    }
  }
  optim.dispose()
}

/** Nothing here records a gradient; only plain data leaves. */
function sampleGroups(
  setup: PointSetup,
  items: readonly PointItem[],
  step: number,
  options: LearnOptions,
  grpo: GrpoConfig,
): Group[] {
  const random = (i: number, k: number) => stream(streamId.sampling, options.seed, step, items[i]!.record.id, k)
  const texts = askPoints(setup, items, { samples: options.samples, temperature: grpo.temperature, random })
  return items.map((item, i) => {
    const replies = replyTo(setup, item, texts[i]!)
    const parts = scoreReplies(setup, item, replies)
    const rewards = settledRewards(parts.map((p) => p.reward))
    const told = options.shuffleRewards
      ? shuffledBy(rewards, stream(options.seed, 'shuffle', step, item.record.id))
      : rewards
    const { advantages } = groupAdvantages(told, grpo)
    return { item, texts: texts[i]!, replies, parts, advantages }
  })
}

function shuffledBy(values: readonly number[], random: { uniform(): number }): number[] {
  const order = values.map((value) => ({ value, at: random.uniform() })).sort((a, b) => a.at - b.at)
  return order.map((o) => o.value)
}

/** The only lines where a gradient is recorded. A group without spread teaches nothing and costs nothing. */
function learnGroup(setup: PointSetup, group: Group, groups: number, grpo: GrpoConfig): void {
  if (group.advantages.every((a) => a === 0)) return
  tidy(() => {
    const completions = group.texts.map((t) => t.ids)
    const pass = teacherForce(setup.policy.model, group.item.prompt, completions)
    const { logps } = pass.logProbs(grpo.temperature) // [K, T]
    const { device } = logps
    const mask = tensor(maskOf(completions, logps.size(1)), [logps.size(0), logps.size(1)], { device })
    const advantages = tensor(Float32Array.from(group.advantages), { device })
    backward(grpoLoss({ logps, mask, advantages }, grpo).loss.div(groups))
  })
  clearTape()
}

/** 1 up to and including the stop. */
function maskOf(completions: readonly Int32Array[], width: number): Float32Array {
  const out = new Float32Array(completions.length * width)
  completions.forEach((ids, k) => {
    out.fill(1, k * width, k * width + ids.length)
  })
  return out
}

/** The tensors that learned, as plain data: what two runs are compared by. */
export function snapshot(params: ReadonlyMap<string, Tensor>): Map<string, Float32Array> {
  return new Map([...params].map(([name, t]) => [name, noGrad(() => t.detach().to('float32').array() as Float32Array)]))
}
