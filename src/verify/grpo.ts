import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type CheckRow, Mismatch, messageOf } from '../core/index.ts'
import { AdamW, OptimConfig, type SchedulerType } from '../optim/index.ts'
import { keep, tidy } from '../tensor/index.ts'
import { Comparison, failedRow, type GoldenCase, type Precision, type Tolerance } from './compare.ts'
import { GoldenTensors, readGolden } from './golden-tensors.ts'
import { type Check, compareRates, onNumbers, onTensors } from './grpo-parts.ts'

const tolerance: Record<Precision, Tolerance> = {
  float64: { abs: 1e-10, rel: 1e-10 },
  float32: { abs: 1e-6, rel: 2e-5 },
}

/** Every case of a file in the layout of grpo.json, in float64 and, where tensors compute it, in float32. */
export function verifyGrpo(path: string): CheckRow[] {
  const file = JSON.parse(readFileSync(path, 'utf8')) as { format?: string; count?: number; cases?: GoldenCase[] }
  if (file.format !== 'grpo-golden' || !Array.isArray(file.cases))
    throw new Mismatch({ where: path, field: 'format', expected: 'grpo-golden with cases', got: file.format ?? 'none' })
  if (file.cases.length !== file.count)
    throw new Mismatch({ where: path, field: 'cases', expected: `${file.count}`, got: file.cases.length })
  return file.cases.flatMap(rowsOf)
}

function rowsOf(given: GoldenCase): CheckRow[] {
  const check = onTensors[given.kind] ?? onNumbers[given.kind]
  const name = `${given.id} ${given.name}`
  if (!check) return [failedRow(name, 'a known kind', given.kind)]
  const precisions: Precision[] = given.kind in onTensors ? ['float64', 'float32'] : ['float64']
  return precisions.map((precision) => rowOf(`${name} (${precision})`, given, precision, check))
}

function rowOf(name: string, given: GoldenCase, precision: Precision, check: Check): CheckRow {
  const comparison = new Comparison(name, tolerance[precision])
  try {
    tidy(() => check(given.input, given.expected, precision, comparison))
  } catch (error) {
    return failedRow(name, 'no error', messageOf(error))
  }
  return comparison.row()
}

/** The AdamW trajectory and the learning-rate schedules of a folder like golden misc. */
export function verifyMiscOptim(folder: string): CheckRow[] {
  const schedules = Object.entries(readGolden<Record<string, readonly number[]>>(folder))
  const rows = schedules.filter(([name]) => name.startsWith('lr_')).map(([name, lr]) => scheduleRow(name, lr))
  const want = new GoldenTensors(join(folder, 'golden.safetensors'))
  try {
    return [tidy(() => trajectoryRow(want)), ...rows]
  } finally {
    want.dispose()
  }
}

// How the reference computed them: p is decayed, b (a bias) is not.
const trajectory = { lr: 3e-3, weightDecay: 0.1, beta1: 0.9, beta2: 0.95, eps: 1e-8, steps: 10 }
const schedule = { learningRate: 1e-5, warmupSteps: 7, total: 50 }

function trajectoryRow(want: GoldenTensors): CheckRow {
  const { lr, weightDecay, steps, ...options } = trajectory
  const c = new Comparison('AdamW trajectory of 10 steps (float32)', tolerance.float32)
  const start = (name: string) => keep(want.get(`adamw.${name}0`).clone()).requiresGrad_()
  const params = { p: start('p'), b: start('b') }
  const groups = [
    { params: new Map([['p', params.p]]), weightDecay },
    { params: new Map([['b', params.b]]), weightDecay: 0 },
  ]
  const optim = new AdamW(groups, options)
  for (let step = 1; step <= steps; step++) {
    for (const [name, param] of Object.entries(params)) param.setGrad(want.get(`adamw.g${name}`).select(0, step - 1))
    optim.step(lr)
    for (const [name, param] of Object.entries(params))
      c.numbers(`${name}${step}`, param.numbers(), want.numbers(`adamw.${name}${step}`))
  }
  optim.dispose()
  for (const param of Object.values(params)) param.dispose()
  return c.row()
}

function scheduleRow(name: string, expected: readonly number[]): CheckRow {
  const c = new Comparison(name, tolerance.float64)
  const { learningRate, warmupSteps, total } = schedule
  const lrSchedulerType = name.slice('lr_'.length) as SchedulerType
  const config = OptimConfig.parse({ learningRate, lrSchedulerType, warmupSteps })
  compareRates(c, [...expected.keys()], expected, config, total)
  return c.row()
}
