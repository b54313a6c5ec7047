import { type SamplingSettings, sampleTokens, seenTokens, tokenEntropies, tokenLogps, warpScores } from '../nn/index.ts'
import { AdamW, clipCoefficient, Ema, learningRateAt, OptimConfig } from '../optim/index.ts'
import {
  completionMasks,
  groupAdvantages,
  klOf,
  needsOldLogps,
  type RolloutOptions,
  rolloutWeights,
  type Score,
} from '../rl/index.ts'
import { backward, type DType, keep, type Tensor } from '../tensor/index.ts'
import { type Comparison, type Json, type JsonObject, load } from './compare.ts'
import { camelKeys, checkAccumulation, checkLoss, checkMetrics } from './grpo-loss.ts'

type Rows = readonly (readonly number[])[]
export type Check = (input: JsonObject, expected: JsonObject, dtype: DType, c: Comparison) => void

/** The fields of a case as options of the function that is checked, under its names. */
const optionsOf = <T>(input: JsonObject, more: object = {}): T => ({ ...camelKeys(input), ...more }) as T

/** By kind of a case, what recomputes it. */
export const onTensors: Record<string, Check> = {
  loss: checkLoss,
  accumulation: checkAccumulation,
  kl(input, expected, dtype, c) {
    const reference = load(input.ref_logps!, dtype)
    const gradient = (f: (u: Tensor, logps: Tensor) => Tensor): { value: number[]; grad: number[] } => {
      const logps = load(input.logps!, dtype).requiresGrad_()
      const value = f(reference.sub(logps), logps)
      backward(value.sum())
      return { value: value.numbers(), grad: logps.grad()!.numbers() }
    }
    const { value, grad } = gradient((u) => klOf(u))
    c.numbers('k3', value, expected.k3!)
    c.numbers('grad_k3', grad, expected.grad_k3!)
    const corrected = gradient((u, logps) => klOf(u).mul(logps.sub(logps.detach()).exp()))
    c.numbers('grad_k3_bias_corrected', corrected.grad, expected.grad_k3_bias_corrected!)
  },
  rollout_is(input, expected, dtype, c) {
    const options = { mode: input.mode, min: input.clip_min, max: input.clip_max } as unknown as RolloutOptions
    const [old, sampled, mask] = [input.old_logps!, input.sampling_logps!, input.mask!].map((v) => load(v, dtype))
    const got = rolloutWeights(old!, sampled!, mask!, options)
    const between = 'sampling/sampling_logp_difference/'
    c.numbers('is_ratio', got.isRatio.numbers(), expected.is_ratio!)
    c.number('logp_difference_mean', got.metrics[`${between}mean`]!, expected.logp_difference_mean)
    c.number('logp_difference_max', got.metrics[`${between}max`]!, expected.logp_difference_max)
  },
  logits(input, expected, dtype, c) {
    const ids = load(input.ids!, 'int64')
    const temperature = input.temperature as number
    const parts = {
      logps: (logits: Tensor) => tokenLogps(logits, ids, temperature),
      entropies: (logits: Tensor) => tokenEntropies(logits, temperature),
    }
    for (const [name, f] of Object.entries(parts)) {
      const logits = load(input.logits!, dtype).requiresGrad_()
      const value = f(logits)
      backward(value.mul(load(input[`upstream_${name}`]!, dtype)).sum())
      c.numbers(name, value.numbers(), expected[name]!)
      c.numbers(`grad ${name}`, logits.grad()!.numbers(), expected[`grad_logits_from_${name}`]!)
    }
  },
  sampler(input, expected, dtype, c) {
    const logits = load([input.logits!], dtype) // [1, V]
    const u = Float64Array.from(input.u as readonly number[])
    const settings = optionsOf<SamplingSettings>(input)
    const seen = seenTokens([input.context_ids as readonly number[]], logits.size(1), logits.device)
    const scores = warpScores(logits, settings, seen)
    const many = (t: Tensor) => t.expand([u.length, t.size(1)]).contiguous()
    const ids = sampleTokens(many(scores), u)
    c.numbers('scores', scores.numbers(), [expected.scores!])
    c.numbers('probs', scores.softmax(-1).numbers(), [expected.probs!])
    c.equal('tokens_for_u', ids.numbers(), expected.tokens_for_u)
    const policy = tokenLogps(many(logits), ids, settings.temperature)
    c.numbers('policy_logps_for_tokens', policy.numbers(), expected.policy_logps_for_tokens!)
    c.numbers('sampler_logps_for_tokens', tokenLogps(many(scores), ids).numbers(), expected.sampler_logps_for_tokens!)
  },
  ema(input, expected, dtype, c) {
    const options = { decay: 1 - (input.alpha as number), every: input.every as number }
    const ema = new Ema(new Map([['x', load(input.start!, dtype)]]), options)
    const after = (input.policy_after_step as readonly Json[]).map((policy, i) => {
      ema.update(new Map([['x', load(policy, dtype)]]), i + 1)
      return ema.weights.get('x')!.numbers()
    })
    ema.dispose()
    c.numbers('reference_after_step', after.flat(), expected.reference_after_step!)
  },
  clip_grad_norm(input, expected, dtype, c) {
    const params = withGradients(input.grads as readonly Json[], dtype)
    const optim = new AdamW([{ params, weightDecay: 0 }])
    const norm = optim.clipGradNorm(input.max_norm as number)
    const clipped = [...params.values()].map((p) => p.grad()!.numbers())
    optim.dispose()
    c.number('grad_norm', norm, expected.grad_norm)
    c.number('clip_coef', clipCoefficient(norm, input.max_norm as number, params.get('0')!), expected.clip_coef)
    c.numbers('clipped', clipped.flat(), expected.clipped!)
  },
  adamw(input, expected, dtype, c) {
    const param = keep(load(input.param!, dtype)).requiresGrad_()
    const [beta1, beta2] = input.betas as readonly number[]
    const group = { params: new Map([['x', param]]), weightDecay: input.weight_decay as number }
    const optim = new AdamW([group], { beta1, beta2, eps: input.eps as number })
    const after = (input.grads as readonly Json[]).map((grad, i) => {
      param.setGrad(load(grad, dtype))
      optim.step((input.lrs as readonly number[])[i]!)
      return param.numbers()
    })
    const state = optim.state()
    c.numbers('param_after_step', after.flat(), expected.param_after_step!)
    c.numbers('exp_avg', state.get('x.exp_avg')!.numbers(), expected.exp_avg!)
    c.numbers('exp_avg_sq', state.get('x.exp_avg_sq')!.numbers(), expected.exp_avg_sq!)
    optim.dispose()
    param.dispose()
  },
}

/** Parameters with the given gradients, by index. */
function withGradients(grads: readonly Json[], dtype: DType): Map<string, Tensor> {
  return new Map(
    grads.map((g, i) => {
      const grad = load(g, dtype)
      const param = grad.clone().requiresGrad_()
      param.setGrad(grad)
      return [String(i), param]
    }),
  )
}

/** Plain numbers: there is no float32 path. */
export const onNumbers: Record<string, Check> = {
  advantages(input, expected, _, c) {
    const rewards = input.rewards_per_func as readonly (readonly Score[])[]
    const more = { advantageEps: input.eps, weights: input.reward_weights }
    const got = groupAdvantages(rewards, optionsOf<Parameters<typeof groupAdvantages>[1]>(input, more))
    const perFunction = (what: string) =>
      (expected.rewards_mean_per_func as readonly Json[]).map((_value, f) => got.metrics[`rewards/${f}/${what}`]!)
    c.numbers('advantages', got.advantages, expected.advantages!)
    c.numbers('rewards', got.rewards, expected.rewards!)
    if (expected.group_mean !== undefined) c.numbers('group_mean', got.groupMean, expected.group_mean)
    if (expected.group_std !== undefined) c.numbers('group_std', got.groupStd, expected.group_std)
    if (expected.batch_std !== undefined) c.number('batch_std', got.batchStd, expected.batch_std)
    if (expected.decoupled_reward !== undefined) c.numbers('decoupled', got.decoupled ?? [], expected.decoupled_reward)
    for (const name of ['frac_reward_zero_std', 'reward', 'reward_std'])
      c.number(name, got.metrics[name]!, expected[name])
    c.numbers('rewards mean', perFunction('mean'), expected.rewards_mean_per_func!)
    c.numbers('rewards std', perFunction('std'), expected.rewards_std_per_func!)
    c.equal('group_has_signal', got.hasSignal, expected.group_has_signal)
  },
  completion_mask(input, expected, _, c) {
    const got = completionMasks(input.completion_ids as Rows, {
      eos: new Set(input.eos_token_ids as readonly number[]),
      pad: input.pad_token_id as number,
      maskTruncated: input.mask_truncated_completions as boolean,
    })
    c.numbers('completion_mask', got.completionMask, expected.completion_mask!)
    c.numbers('loss_mask', got.lossMask, expected.loss_mask!)
    c.equal('is_truncated', got.truncated, expected.is_truncated)
    c.equal('lengths', got.lengths, expected.lengths)
    c.equal('num_items_in_batch', got.numItems, expected.num_items_in_batch)
    checkMetrics(got.metrics, expected.metrics as JsonObject, c)
  },
  lr_schedule(input, expected, _, c) {
    const config = OptimConfig.parse({
      learningRate: input.learning_rate,
      lrSchedulerType: input.type,
      warmupSteps: input.num_warmup_steps,
      ...camelKeys(input.kwargs as JsonObject),
    })
    const [steps, want] = [0, 1].map((i) => (expected.lr as Rows).map((pair) => pair[i]!)) as [number[], number[]]
    c.equal('steps', input.at, steps)
    compareRates(c, input.at as number[], want, config, input.num_training_steps as number)
  },
  /** Which samples a step takes, and when it generates, is checked on the code of a run: run/batches.test.ts. */
  repeat_sampler(input, expected, _, c) {
    const sizes = optionsOf<Parameters<typeof needsOldLogps>[0]>(input)
    c.equal('needs_old_logps', needsOldLogps(sizes), expected.needs_old_logps)
  },
}

/** Learning rates at these steps in units of the largest rate, or the absolute limit would pass anything. */
export function compareRates(
  c: Comparison,
  steps: readonly number[],
  want: readonly number[],
  config: OptimConfig,
  total: number,
): void {
  const share = (rate: number) => rate / config.learningRate
  const got = steps.map((step) => share(learningRateAt(step, config, total)))
  c.numbers('lr', got, want.map(share))
}
