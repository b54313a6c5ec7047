import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights } from '../checkpoint/index.ts'
import { type CheckRow, Mismatch, messageOf } from '../core/index.ts'
import { AdamW, learningRateAt, OptimConfig, type SchedulerType } from '../optim/index.ts'
import { type DType, keep, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { Comparison, type JsonObject, type Precision, type Tolerance } from './compare.ts'
import { device } from './device.ts'
import { checkAccumulation, checkLoss } from './grpo-loss.ts'
import {
  checkAdamW,
  checkAdvantages,
  checkClip,
  checkCompletionMask,
  checkEma,
  checkKl,
  checkLogits,
  checkRepeatSampler,
  checkRolloutWeights,
  checkSampler,
  checkSchedule,
} from './grpo-parts.ts'

type Check = (input: JsonObject, expected: JsonObject, dtype: DType, c: Comparison) => void

const onTensors: Record<string, Check> = {
  loss: checkLoss,
  accumulation: checkAccumulation,
  kl: checkKl,
  rollout_is: checkRolloutWeights,
  logits: checkLogits,
  sampler: checkSampler,
  ema: checkEma,
  clip_grad_norm: checkClip,
  adamw: checkAdamW,
}
/** Plain numbers: there is no float32 path. */
const onNumbers: Record<string, Check> = {
  advantages: checkAdvantages,
  completion_mask: checkCompletionMask,
  lr_schedule: checkSchedule,
  repeat_sampler: checkRepeatSampler,
}
const tolerance: Record<Precision, Tolerance> = {
  float64: { abs: 1e-10, rel: 1e-10 },
  float32: { abs: 1e-6, rel: 2e-5 },
}

interface Case {
  id: string
  name: string
  kind: string
  input: JsonObject
  expected: JsonObject
}

/** Every case of a file in the layout of grpo.json, in float64 and, where tensors compute it, in float32. */
export function verifyGrpo(path: string): CheckRow[] {
  const file = JSON.parse(readFileSync(path, 'utf8')) as { format?: string; count?: number; cases?: Case[] }
  if (file.format !== 'grpo-golden' || !Array.isArray(file.cases))
    throw new Mismatch({ where: path, field: 'format', expected: 'grpo-golden with cases', got: file.format ?? 'none' })
  if (file.cases.length !== file.count)
    throw new Mismatch({ where: path, field: 'cases', expected: `${file.count}`, got: file.cases.length })
  return file.cases.flatMap(rowsOf)
}

function rowsOf(given: Case): CheckRow[] {
  const check = onTensors[given.kind] ?? onNumbers[given.kind]
  const name = `${given.id} ${given.name}`
  if (!check)
    return [{ name, abs: Number.NaN, rel: Number.NaN, limit: 'a known kind', pass: false, detail: given.kind }]
  const precisions: Precision[] = given.kind in onTensors ? ['float64', 'float32'] : ['float64']
  return precisions.map((precision) => rowOf(`${name} (${precision})`, given, precision, check))
}

function rowOf(name: string, given: Case, precision: Precision, check: Check): CheckRow {
  const comparison = new Comparison(name, tolerance[precision])
  try {
    tidy(() => check(given.input, given.expected, precision, comparison))
  } catch (error) {
    return { name, abs: Number.NaN, rel: Number.NaN, limit: 'no error', pass: false, detail: messageOf(error) }
  }
  return comparison.row()
}

/** The AdamW trajectory and the learning-rate schedules of a folder like golden misc. */
export function verifyMiscOptim(folder: string): CheckRow[] {
  const weights = openWeights(join(folder, 'golden.safetensors'))
  const schedules = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8')) as Record<string, readonly number[]>
  const read = (name: string): Tensor => {
    const bytes = weights.read(name)
    return tensor(new Float32Array(bytes.slice().buffer), weights.entry(name).shape, { device: device() })
  }
  const rows = Object.entries(schedules)
    .filter(([name]) => name.startsWith('lr_'))
    .map(([name, lr]) => scheduleRow(name, lr))
  return [tidy(() => trajectoryRow(read)), ...rows]
}

// How the reference computed them: p is decayed, b (a bias) is not.
const trajectory = { lr: 3e-3, weightDecay: 0.1, beta1: 0.9, beta2: 0.95, eps: 1e-8, steps: 10 }
const schedule = { learningRate: 1e-5, warmupSteps: 7, total: 50 }

function trajectoryRow(read: (name: string) => Tensor): CheckRow {
  const { lr, weightDecay, steps, ...options } = trajectory
  const c = new Comparison('AdamW trajectory of 10 steps (float32)', tolerance.float32)
  const [p, b] = ['p', 'b'].map((name) => keep(read(`adamw.${name}0`)).requiresGrad_()) as [Tensor, Tensor]
  const groups = [
    { params: new Map([['p', p]]), weightDecay },
    { params: new Map([['b', b]]), weightDecay: 0 },
  ]
  const optim = new AdamW(groups, options)
  for (let step = 1; step <= steps; step++) {
    for (const [name, param] of [
      ['p', p],
      ['b', b],
    ] as const)
      param.setGrad(read(`adamw.g${name}`).select(0, step - 1))
    optim.step(lr)
    c.numbers(`p${step}`, p.numbers(), read(`adamw.p${step}`).numbers())
    c.numbers(`b${step}`, b.numbers(), read(`adamw.b${step}`).numbers())
  }
  optim.dispose()
  p.dispose()
  b.dispose()
  return c.row()
}

function scheduleRow(name: string, expected: readonly number[]): CheckRow {
  const c = new Comparison(name, tolerance.float64)
  const lrSchedulerType = name.slice('lr_'.length) as SchedulerType
  const config = OptimConfig.parse({
    learningRate: schedule.learningRate,
    lrSchedulerType,
    warmupSteps: schedule.warmupSteps,
  })
  const got = expected.map((_, step) => learningRateAt(step, config, schedule.total))
  // in units of the largest rate, or the absolute limit would pass anything
  c.numbers(
    'lr',
    got.map((v) => v / schedule.learningRate),
    expected.map((v) => v / schedule.learningRate),
  )
  return c.row()
}
