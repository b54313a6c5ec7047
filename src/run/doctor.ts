// Checks that gradients reach every trained group and that the image reaches the answer: two learning steps in memory, with synthetic rewards so that
// every group has spread; nothing is written. K completions per record, T columns.
import { humanBytes, Mismatch, sha256 } from '../core/index.ts'
import type { Example } from '../data/index.ts'
import { native } from '../engine/index.ts'
import { tensorAt } from '../nn/index.ts'
import { type Group, newGroup, plainDensities, type Run, step } from '../rl/index.ts'
import { openKind, type TaskKind, type WorkItem } from '../tasks/index.ts'
import { cuda, gradEnabled, memory, type Tensor, threads, tidy, tidyNoGrad } from '../tensor/index.ts'
import type { RunConfig } from './config.ts'
import { deviceOf, openModel } from './device.ts'
import { Encoder } from './features.ts'
import type { Host } from './host.ts'
import { Learner } from './learner.ts'
import { disposeLearner } from './loop.ts'
import { firstExamples } from './records.ts'
import { runOf } from './run-parts.ts'
import { openRunSource } from './sources.ts'
import { maxRecords, sampleUntilSpread, verdictOf } from './verdict.ts'

export interface Finding {
  name: string
  /** Null: a fact, neither good nor bad. */
  pass: boolean | null
  detail: string
}

const finding = (name: string, pass: boolean | null, detail: string): Finding => ({ name, pass, detail })

/** The learning rate of the two steps: large enough to move float32 weights visibly, small enough to stay finite. */
const rate = 1e-4

/** The last finding is the verdict: whether this model can learn from these records. */
export async function doctor(config: RunConfig, host: Pick<Host, 'progress' | 'score'>): Promise<Finding[]> {
  const kind = (await openKind(config.task)) as TaskKind<RunConfig>
  host.progress({ kind: 'phase', text: `model ${config.model}` })
  const learner = new Learner(openModel(config), config)
  const encoder = new Encoder(learner.family, config)
  try {
    const run = runOf(config, kind.build(learner.family, config), learner, encoder, host)
    const source = await openRunSource(config.dataPath, config.data)
    const examples = await firstExamples(
      source,
      { ...config.data, split: 'all' },
      kind.recordRules?.(config) ?? {},
      maxRecords,
    )
    const [example] = examples
    const [item, other] = encoder.items([example!, inverted(example!)]) as [WorkItem, WorkItem]
    const together = [item, other]
    const { findings, groups } = encoder.inWork(together, () => look(run, config, item, other, host))
    host.progress({ kind: 'phase', text: 'samples with their rewards' })
    const sampled = await sampleUntilSpread(run, encoder, config.seed, async () => examples.shift() ?? null)
    host.progress({ kind: 'phase', text: 'two learning steps' })
    const learned = await learning(run, learner, { draw: { seed: config.seed, step: 0 }, pieces: [[item]], groups })
    encoder.release(together)
    const { canLearn, text } = verdictOf(sampled, normsOf(learned))
    return [
      ...[...findings, ...learned, ...prototypeChecks([...findings, ...learned]), ...memoryFacts(config)],
      finding('verdict', canLearn || null, text),
    ]
  } finally {
    kind.close?.(learner.family)
    disposeLearner(learner)
  }
}

/** The two tests of the prototype's test_grpo_gradient, by their names: what they were meant to show, of what was found above. */
function prototypeChecks(findings: readonly Finding[]): Finding[] {
  const check = (name: string, among: RegExp): Finding => {
    const parts = findings.filter((f) => among.test(f.name))
    const failed = parts.filter((f) => f.pass === false).map((f) => f.name)
    const detail = failed.length > 0 ? `failed: ${failed.join(', ')}` : parts.map((f) => f.name).join(', ')
    return finding(name, parts.length > 0 && failed.length === 0, `test_grpo_gradient: ${detail}`)
  }
  return [
    check('gradient flow', /^gradient |^LoRA |^frozen weights$/),
    check('vision-language input', / image matters$| on-policy ratio$/),
  ]
}

/** Everything but learning: the engine, what the model answers, and whether log-probs are those of the sampler and of the image. */
function look(run: Run, config: RunConfig, item: WorkItem, other: WorkItem, host: Pick<Host, 'progress'>) {
  for (const task of run.tasks) if (task.opens) task.open([item])
  host.progress({ kind: 'phase', text: 'samples, log-probs, image' })
  const groups = tidyNoGrad(() => run.tasks.map((task) => probeGroup(run, task, item)))
  const remarks = tidyNoGrad(() => run.tasks.flatMap((task) => task.examine?.(item) ?? []))
  return {
    groups,
    findings: [
      ...engineFacts(config),
      ...remarks.map((detail) => finding('answer', null, detail)),
      ...groups.flatMap((group) => scoring(config, group, other)),
    ],
  }
}

/** Samples that surely end and act, with advantages +1, -1, +1, ...: the group has spread, whatever the model says. */
function probeGroup(run: Run, task: Group['task'], item: WorkItem): Group {
  const samples = task.probe(item)
  const advantages = Float64Array.from(samples, (_, k) => (k % 2 === 0 ? 1 : -1))
  return { ...newGroup({ task, item, samples }, run.config.rl), advantages, hasSignal: true }
}

/** 1 or 0 for each group of weights: whether a gradient reached it. */
function normsOf(findings: readonly Finding[]): Record<string, number> {
  const gradients = findings.filter(({ name }) => name.startsWith('gradient '))
  return Object.fromEntries(gradients.map(({ name, pass }) => [name.slice('gradient '.length), Number(pass)]))
}

/** The same record with another image of the same size. */
function inverted(example: Example): Example {
  const data = example.image.data.map((v) => 255 - v)
  return { ...example, id: `${example.id} inverted`, image: { ...example.image, data } }
}

function engineFacts(config: RunConfig): Finding[] {
  const { version, blas, cuda: cudaVersion } = native().info()
  const { device, dtype } = deviceOf(config)
  const form = config.frozenWeights === 'exact' ? '' : `, frozen matrices in ${config.frozenWeights}`
  const card = device.startsWith('cuda') ? `${cuda.name()}, ${humanBytes(cuda.memory().total)}` : `${threads()} threads`
  return [
    finding('engine', null, `libtorch ${version}, ${blas}${cudaVersion ? `, CUDA ${cudaVersion}` : ''}`),
    finding('device', null, `${device} (${card}), ${dtype}${form}`),
  ]
}

function memoryFacts(config: RunConfig): Finding[] {
  const { bytes, peakBytes } = memory()
  const onCard = deviceOf(config).device.startsWith('cuda')
  const card = onCard
    ? `; on the device ${humanBytes(cuda.memory().allocated)}, peak ${humanBytes(cuda.memory().peak)}`
    : ''
  return [finding('memory', null, `${humanBytes(bytes)} in tensors, peak ${humanBytes(peakBytes)}${card}`)]
}

function scoring(config: RunConfig, group: Group, other: WorkItem): Finding[] {
  const name = group.task.name
  const old = plainDensities(group)
  const { mask } = group.columns
  const wide = deviceOf(config).dtype === 'float32'
  const [ratioLimit, samplerLimit] = wide ? [1e-5, 1e-3] : [0.05, 0.5]
  const again = withGradient(group)
  const ratio = worst(old, (i) => (mask[i] ? Math.abs(Math.exp(again[i]! - old[i]!) - 1) : 0))
  const elsewhere = plainDensities({ ...group, item: withImageOf(group.item as WorkItem, other) })
  const moved = worst(old, (i) => (mask[i] ? Math.abs(elsewhere[i]! - old[i]!) : 0))
  const findings: Finding[] = [
    finding(`${name} on-policy ratio`, ratio < ratioLimit, `max |ratio - 1| = ${short(ratio)}, limit ${ratioLimit}`),
    finding(`${name} image matters`, moved > 1e-6, `another image moves log-probs by up to ${short(moved)}`),
    ...(group.samples[0]!.ids.length > 0 ? [endCounts(group, old, mask)] : []),
  ]
  const drift = samplerDrift(group, old)
  if (drift === null) return findings
  const detail = `sampling and scoring log-probs differ by up to ${short(drift)}, limit ${samplerLimit}`
  return [...findings, finding(`${name} sampler agrees`, drift < samplerLimit, detail)]
}

/** The record's own words and masks with another image: its features, and its pixels for tasks that read them on their own. */
function withImageOf({ example }: WorkItem, { id, features, example: { image } }: WorkItem): WorkItem {
  return { id, example: { ...example, image }, features }
}

/** The pass of the loss itself: with a gradient recorded. */
function withGradient({ task, item, samples }: Group): Float32Array {
  return tidy(() => {
    const { logps } = task.densities([item], [samples])[0]!
    if (!gradEnabled()) throw new Mismatch({ where: 'doctor', expected: 'gradients on', got: 'off' })
    return logps.detach().to('float32').array()
  }) as Float32Array
}

/**
 * Row 0 ends with the end token: it must count in the loss and carry a log-prob, which a sure model has at 0; so another token in its
 * place must be scored otherwise.
 */
function endCounts(group: Group, logps: Float32Array, mask: Float32Array): Finding {
  const { ids } = group.samples[0]!
  const T = logps.length / group.samples.length
  const last = ids.length - 1
  const id = ids[last]!
  const swapped = ids.with(last, id === 0 ? 1 : 0)
  const samples = group.samples.map((r) => (r.ids === ids ? { ...r, ids: swapped } : r))
  const other = plainDensities({ ...group, samples })[last]!
  const own = logps[last]!
  const pass = last < T && mask[last] === 1 && Number.isFinite(own) && own <= 0 && own !== other
  const detail = `token ${id} at ${last}: log-prob ${short(own)}, in the loss; another token there: ${short(other)}`
  return finding(`${group.task.name} end token`, pass, detail)
}

/** Null when nothing was sampled token by token. */
function samplerDrift(group: Group, scored: Float32Array): number | null {
  const T = scored.length / group.samples.length
  const differences = group.samples.flatMap((r, k) =>
    Array.from(r.logps, (logp, t) => Math.abs(logp - scored[k * T + t]!)),
  )
  return differences.length === 0 ? null : Math.max(...differences)
}

/** One hash per tensor. */
function hashes(tensors: Iterable<[string, Tensor]>): Map<string, string> {
  const out = new Map<string, string>()
  for (const [name, t] of tensors) {
    const array = tidyNoGrad(() => t.detach().to('cpu').contiguous().array())
    out.set(name, sha256(new Uint8Array(array.buffer, array.byteOffset, array.byteLength)))
  }
  return out
}

async function learning(run: Run, learner: Learner, batch: Parameters<typeof step>[1]): Promise<Finding[]> {
  const trained = new Set(learner.slots.map((s) => s.name))
  const frozen = () =>
    hashes(
      learner.family.module
        .slots()
        .filter((s) => !trained.has(s.name))
        .map((s) => [s.name, tensorAt(s)]),
    )
  const frozenBefore = frozen()
  const states = [hashes(learner.params())]
  const emaBefore = hashes(learner.ema.weights)
  const norms: Record<string, number>[] = []
  const live: number[] = []
  for (let pass = 0; pass < 2; pass++) {
    const { groupNorms } = await step(run, batch, rate)
    norms.push(groupNorms)
    states.push(hashes(learner.params()))
    live.push(memory().tensors)
  }
  const changed = differing(frozenBefore, frozen())
  const followed = differing(emaBefore, hashes(learner.ema.weights)).length
  return [
    ...Object.keys(norms[0]!).map((group) => groupFinding(group, norms, learner, states)),
    ...loraFindings(states),
    changed.length === 0
      ? finding('frozen weights', true, `${frozenBefore.size} tensors bit-identical after two steps`)
      : finding('frozen weights', false, `changed: ${changed.slice(0, 3).join(', ')}`),
    finding('EMA copy', followed > 0, `${followed} of ${emaBefore.size} tensors followed`),
    finding('no leak', live[0] === live[1], `live tensors ${live[0]} after step 1, ${live[1]} after step 2`),
  ]
}

function groupFinding(
  group: string,
  norms: readonly Record<string, number>[],
  learner: Learner,
  states: readonly Map<string, string>[],
): Finding {
  const [first, second] = norms.map((n) => n[group] ?? 0)
  const names = learner.namesOf(group)
  const moved = differing(states[0]!, states[2]!).filter((name) => names.has(name)).length
  const detail = `norm ${short(first!)} in step 1, ${short(second!)} in step 2; ${moved} of ${names.size} tensors moved`
  return finding(`gradient ${group}`, first! > 0 && second! > 0 && moved > 0, detail)
}

/** A is multiplied by a zero B: its gradient is exactly 0 in the first step. */
function loraFindings([before, first, second]: readonly Map<string, string>[]): Finding[] {
  const of = (part: 'A' | 'B') => [...before!.keys()].filter((name) => name.includes(`.lora_${part}.`))
  const [a, b] = [of('A'), of('B')]
  if (a.length === 0) return []
  const moved = (names: readonly string[], from: Map<string, string>, to: Map<string, string>) =>
    names.filter((name) => from.get(name) !== to.get(name)).length
  const bFirst = moved(b, before!, first!)
  const aFirst = moved(a, before!, first!)
  const aSecond = moved(a, first!, second!)
  return [
    finding('LoRA B, step 1', bFirst === b.length, `${bFirst} of ${b.length} tensors moved`),
    finding('LoRA A, step 1', aFirst === 0, `${aFirst} of ${a.length} moved; none can while B is 0`),
    finding('LoRA A, step 2', aSecond === a.length, `${aSecond} of ${a.length} tensors moved`),
  ]
}

function differing(a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): string[] {
  return [...a.keys()].filter((name) => a.get(name) !== b.get(name))
}

function worst(values: Float32Array, of: (i: number) => number): number {
  let most = 0
  for (let i = 0; i < values.length; i++) {
    const v = of(i)
    if (Number.isNaN(v)) return Number.NaN
    most = Math.max(most, v)
  }
  return most
}

function short(value: number): string {
  return value === 0 ? '0' : value.toExponential(2)
}
