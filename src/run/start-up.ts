// What a run prints while it starts: its environment, then nine numbered steps.
import { statfsSync } from 'node:fs'
import { counted, humanBytes } from '../core/index.ts'
import { buildRecord } from '../engine/index.ts'
import { kernelsOff, noKernels } from '../kernels/index.ts'
import { bitsOf, count, isQuantized } from '../nn/index.ts'
import { askedJudge, describeJudge } from '../rewards/index.ts'
import type { TaskKind } from '../tasks/index.ts'
import { describeEnvironment } from '../tracking/index.ts'
import type { RunConfig } from './config.ts'
import { deviceOf } from './device.ts'
import type { Host } from './host.ts'
import { weightHashes } from './identity.ts'
import type { GroupCount, Learner } from './learner.ts'
import type { Notice } from './notices.ts'
import { checkSources } from './records.ts'

export const startUpSteps = [
  'model',
  'adapters',
  'trainable',
  'records',
  'rewards',
  'trainer',
  'folder',
  'training',
  'saving',
] as const

type ProgressHost = Pick<Host, 'progress'>

export function reportStep(host: ProgressHost, name: (typeof startUpSteps)[number], text: string): void {
  host.progress({ kind: 'phase', text: `${startUpSteps.indexOf(name) + 1} ${name} ${text}` })
}

export function reportNote(host: ProgressHost, text: string): void {
  host.progress({ kind: 'note', text: `  ${text}` })
}

/** environment.json. */
export function environmentOf(config: RunConfig): Record<string, unknown> {
  const { device, dtype } = deviceOf(config)
  return describeEnvironment({
    torch: buildRecord()?.torchVersion ?? null,
    device,
    dtype,
    deterministic: device === 'cpu',
    workingFolder: process.cwd(),
  })
}

/** What every process of a run must have alike before they meet. */
export async function commonFacts(config: RunConfig): Promise<Record<string, string>> {
  const { product, commit, torch, device, dtype } = environmentOf(config)
  const place = String(device)
  return {
    torch: String(torch),
    product: `${product}${commit ? ` at commit ${commit}` : ''}`,
    device: place.split(':')[0]!,
    dtype: String(dtype),
    'distributed.backend': config.distributed.backend,
    kernels: kernelsOff() ?? noKernels(place) ?? 'on',
    ...Object.fromEntries(weightHashes(config.model)),
    ...(await checkSources(config)),
  }
}

export function reportEnvironment(config: RunConfig, host: ProgressHost): void {
  const { product, commit, torch, node, device, dtype, system, command } = environmentOf(config)
  const version = `roundtrip ${product}${commit ? ` at commit ${String(commit).slice(0, 12)}` : ''}`
  host.progress({ kind: 'note', text: `${version}, torch ${torch}, node ${node}, ${device} ${dtype}, ${system}` })
  const words = (command as readonly string[]).map((word) => (/[\s'"\\$]/.test(word) ? JSON.stringify(word) : word))
  if (words.length > 0) host.progress({ kind: 'note', text: `command: roundtrip ${words.join(' ')}` })
}

/** What the folder grows to: weights, EMA copy and two moments a checkpoint, as float32. */
export function reportDisk(
  learner: Learner,
  { output, saveTotalLimit, samplesMiB }: RunConfig,
  host: ProgressHost,
): void {
  const trained = learner.counts().reduce((n, c) => n + c.elements, 0)
  const checkpoint = humanBytes(16 * trained)
  const { bavail, bsize } = statfsSync(output)
  const kept = `at most ${counted(saveTotalLimit, 'checkpoint')} of about ${checkpoint} and ${samplesMiB} MiB of samples`
  reportNote(host, `on disk: ${kept}; ${humanBytes(bavail * bsize)} are free`)
}

const thousands = (n: number) => n.toLocaleString('en')
const percent = (part: number, all: number) => `${((100 * part) / all).toPrecision(3)} %`

/** Steps 2 and 3: what was added to the model, and what of all of it learns. */
export function reportTrainables(learner: Learner, { lora }: RunConfig, host: ProgressHost): void {
  const counts = learner.counts()
  const adapted = counts.find(({ group }) => group === 'lora')
  const adapters = learner.adapter
    ? `LoRA of rank ${lora.rank}, alpha ${lora.alpha}, on ${(adapted?.tensors ?? 0) / 2} layers`
    : 'none'
  reportStep(host, 'adapters', adapters)
  const all = count(learner.family.module.parameters().values()).elements
  const trained = counts.reduce((n, c) => n + c.elements, 0)
  reportStep(host, 'trainable', `${thousands(trained)} of ${thousands(all)} values (${percent(trained, all)})`)
  for (const group of counts) reportNote(host, `${groupText(group)} (${percent(group.elements, all)})`)
  reportNote(host, `frozen: ${thousands(all - trained)} values (${percent(all - trained, all)})`)
  const quantized = [...learner.family.module.parameters().values()].filter(isQuantized)
  if (quantized.length === 0) return
  const stored = `${thousands(count(quantized).elements)} of them in ${bitsOf(quantized[0]!)} bit`
  reportNote(host, `${stored}: learning uses PyTorch ops instead of the custom kernels`)
  const { weights, why } = learner.sampling
  if (why) reportNote(host, `sampling.weights auto: ${weights}, ${why}`)
}

export function groupText({ group, tensors, elements }: GroupCount): string {
  return `trains ${group}: ${tensors} tensors, ${thousands(elements)} values`
}

/** What each task is rewarded for, a line each, and the judge that is asked. */
export function rewardLines(kind: TaskKind<RunConfig>, config: RunConfig): string[] {
  const { tasks } = kind.rewards(config)
  const lines = Object.entries(tasks).map(([name, task]) => {
    const terms = task.rewards.terms.map((t) => {
      const type = t.type === 'task' ? t.reward.name : t.type
      return `${t.weight} ${t.type === 'module' ? t.path : `${type} of ${t.of}`}`
    })
    return `${name}: ${terms.join(' + ')}`
  })
  return [...lines, `judge: ${describeJudge(askedJudge(config.rewards.judge, tasks))}`]
}

/** Step 6: how it learns. */
export function reportTrainer(config: RunConfig, total: number, processes: number, host: ProgressHost): void {
  const { batchSize, optim, rl } = config
  const perStep = batchSize * rl.gradientAccumulationSteps
  reportStep(
    host,
    'trainer',
    `${counted(total, 'step')} of ${counted(perStep, 'record')}, by ${sharesText(batchSize, processes)}`,
  )
  const { learningRate, lrSchedulerType, emaDecay } = optim
  reportNote(host, `AdamW, learning rate ${learningRate} (${lrSchedulerType}), EMA decay ${emaDecay}`)
}

/** `8 processes: batchSize 12 over all, 1 or 2 per process`. */
export function sharesText(batchSize: number, processes: number): string {
  if (processes === 1) return '1 process'
  const [least, most] = [Math.floor(batchSize / processes), Math.ceil(batchSize / processes)]
  return `${processes} processes: batchSize ${batchSize} over all, ${least === most ? most : `${least} or ${most}`} per process`
}

/** Processes without a record in a step that deals `records`; with a warning if there are any. */
export function idleProcesses(processes: number, records: number): { idle: number; notices: Notice[] } {
  const idle = Math.max(0, processes - records)
  const text = `${processes} processes share ${records} records of a step: ${idle} of them are idle. Set --batchSize ${processes} or more (--per_device_batch_size 1), or start fewer processes`
  return { idle, notices: idle > 0 ? [{ kind: 'idle-processes', text }] : [] }
}

/** Records that the processes of a step share: micro-batches of a step are dealt together, of those that were sampled together. */
export function recordsTogether({ batchSize, rl }: RunConfig): number {
  const { gradientAccumulationSteps, stepsPerGeneration } = rl
  return batchSize * Math.min(gradientAccumulationSteps, stepsPerGeneration ?? gradientAccumulationSteps)
}

/** Optimizer steps of the run. */
export function totalSteps(config: RunConfig, epochLength: number, passes: number): number {
  if (config.maxSteps >= 0) return config.maxSteps
  const perStep = config.batchSize * config.rl.gradientAccumulationSteps
  return Math.max(1, Math.ceil((config.epochs * epochLength * passes) / perStep))
}
