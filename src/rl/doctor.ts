// Does a gradient reach what should learn, does the image reach the answer? Two learning steps in memory, with made-up rewards so that
// every group has spread; nothing is written. K completions per record, T columns.
import { humanBytes, Mismatch, sha256, stream, streamId } from '../core/index.ts'
import { type Example, openSource } from '../data/index.ts'
import { native } from '../engine/index.ts'
import { teacherForce } from '../models/index.ts'
import { tensorAt } from '../nn/index.ts'
import { cuda, gradEnabled, memory, noGrad, type Tensor, threads, tidy } from '../tensor/index.ts'
import { segmentAnswers } from '../text/index.ts'
import { measureActionScale } from './action-scale.ts'
import { Learner } from './learner.ts'
import { release, workItems } from './records.ts'
import type { RunConfig } from './run-config.ts'
import { deviceOf } from './run-folder.ts'
import { completion } from './sft.ts'
import { contextOf, type Group, learn, plainDensities, type Run } from './step.ts'
import { StepReport } from './step-report.ts'
import { sampleEmbedding, sampleField } from './tasks/action.ts'
import {
  captionToMask,
  type MaskAction,
  maskToCaption,
  type Rollout,
  segmentAll,
  type WorkItem,
} from './tasks/index.ts'
import { type Host, openModel, runOf } from './trainer.ts'

export interface Finding {
  name: string
  /** Null: a fact, neither good nor bad. */
  pass: boolean | null
  detail: string
}

/** The learning rate of the two steps: large enough to move float32 weights visibly, small enough to stay finite. */
const rate = 1e-4

export async function doctor(config: RunConfig, host: Pick<Host, 'progress'>): Promise<Finding[]> {
  host.progress({ kind: 'phase', text: `model ${config.model}` })
  const learner = new Learner(openModel(config), config)
  const noScores = () => Promise.reject(new Mismatch({ where: 'doctor', expected: 'no scoring', got: 'a request' }))
  const run = runOf(config, learner, { score: noScores })
  const examples = await readExamples(config)
  const items = workItems(learner, config, [examples[0]!, inverted(examples[0]!)], null)
  try {
    run.actionScale =
      run.tasks.includes(captionToMask) && config.loop2.action !== 'text'
        ? measureActionScale(run, items.slice(0, 1))
        : 1
    host.progress({ kind: 'phase', text: 'samples, log-probs, image' })
    const groups = noGrad(() => tidy(() => run.tasks.map((task) => makeGroup(run, task.name, items[0]!))))
    const findings = [
      ...engineFacts(config),
      ...answers(run, items[0]!),
      ...groups.flatMap((group) => scoring(run, group, items[1]!)),
    ]
    host.progress({ kind: 'phase', text: 'two learning steps' })
    return [...findings, ...learning(run, groups), ...memoryFacts(config)]
  } finally {
    release(items)
    learner.dispose()
  }
}

async function readExamples(config: RunConfig): Promise<Example[]> {
  const source = await openSource(config.dataPath, config.data)
  try {
    return [await source.get(0)]
  } finally {
    await source.close()
  }
}

/** The same record with another image of the same size. */
function inverted(example: Example): Example {
  const data = example.image.data.map((v) => 255 - v)
  return { ...example, id: `${example.id} inverted`, image: { ...example.image, data } }
}

function engineFacts(config: RunConfig): Finding[] {
  const { version, blas, cuda: cudaVersion } = native().info()
  const { device, dtype } = deviceOf(config)
  const fact = (name: string, detail: string): Finding => ({ name, pass: null, detail })
  const card = device.startsWith('cuda') ? `${cuda.name()}, ${humanBytes(cuda.memory().total)}` : `${threads()} threads`
  return [
    fact('engine', `libtorch ${version}, ${blas}${cudaVersion ? `, CUDA ${cudaVersion}` : ''}`),
    fact('device', `${device} (${card}), ${dtype}`),
  ]
}

function memoryFacts(config: RunConfig): Finding[] {
  const { bytes, peakBytes } = memory()
  const onCard = deviceOf(config).device.startsWith('cuda')
  const card = onCard
    ? `; on the device ${humanBytes(cuda.memory().allocated)}, peak ${humanBytes(cuda.memory().peak)}`
    : ''
  return [
    { name: 'memory', pass: null, detail: `${humanBytes(bytes)} in tensors, peak ${humanBytes(peakBytes)}${card}` },
  ]
}

/** A model that never says [SEG] draws no mask: loop 2 has nothing to learn from. */
function answers(run: Run, item: WorkItem): Finding[] {
  if (!run.tasks.includes(captionToMask)) return []
  const [found] = segmentAll(contextOf(run), [{ features: item.features, caption: item.example.caption }])
  const detail =
    found!.segs > 0 ? 'answers the first record with [SEG]' : `no [SEG] in "${found!.text}"; fine-tune it first`
  return [{ name: 'answer', pass: null, detail }]
}

function makeGroup(run: Run, loop: 'loop1' | 'loop2', item: WorkItem): Group {
  const K = run.config.rl.numGenerations
  const task = loop === 'loop1' ? maskToCaption : captionToMask
  const rollouts = loop === 'loop1' ? describing(run, item) : drawing(run, item)
  // +1, -1, +1, ...: every group has spread, whatever the model says
  const advantages = Float64Array.from({ length: K }, (_, k) => (k % 2 === 0 ? 1 : -1))
  return { task, item, rollouts, answered: [], scores: [], advantages, hasSignal: true, old: null, reference: null }
}

/** Sampled captions; the first is the record's own with its end token: the end is there to be checked, whatever the model has learned. */
function describing(run: Run, item: WorkItem): Rollout[] {
  const random = (_: WorkItem, k: number) => stream(run.config.seed, streamId.sampling, 0, item.example.id, k)
  const [sampled] = maskToCaption.sample(contextOf(run), [item], random)
  const ids = completion(run.learner.loaded, item.example.caption)
  return sampled!.map((r, k) => (k === 0 ? { ...r, ids, finished: true, logps: new Float32Array(0) } : r))
}

/** The usual answer with sampled mask actions. */
function drawing(run: Run, item: WorkItem): Rollout[] {
  const { model, prompter } = run.learner.loaded
  const ids = completion(run.learner.loaded, segmentAnswers[0]!)
  const pass = teacherForce(model, prompter.segment(item.features, item.example.caption), [ids])
  const mean = model.segPrompts(pass.stateAt(0, ids.indexOf(prompter.segId)))
  const randoms = Array.from({ length: run.config.rl.numGenerations }, (_, k) =>
    stream(run.config.seed, streamId.maskAction, 0, item.example.id, k),
  )
  const { action, grid } = run.config.loop2
  const drawn: (MaskAction | null)[] =
    action === 'embedding'
      ? sampleEmbedding(model, item.features, mean, run.actionScale, randoms).map((d) => d.action)
      : action === 'field'
        ? sampleField(model, item.features, mean, run.actionScale, grid, randoms).map((d) => d.action)
        : randoms.map(() => null)
  const text = segmentAnswers[0]!
  return drawn.map((a) => ({
    ids,
    text,
    finished: true,
    logps: new Float32Array(0),
    action: a,
    caption: null,
    mask: null,
  }))
}

function scoring(run: Run, group: Group, other: WorkItem): Finding[] {
  const name = group.task.name
  const old = plainDensities(run, group)
  const mask = group.task.mask(contextOf(run), group.rollouts)
  const wide = deviceOf(run.config).dtype === 'float32'
  const [ratioLimit, samplerLimit] = wide ? [1e-5, 1e-3] : [0.05, 0.5]
  const again = withGradient(run, group)
  const ratio = worst(old, (i) => (mask[i] ? Math.abs(Math.exp(again[i]! - old[i]!) - 1) : 0))
  const elsewhere = plainDensities(run, { ...group, item: { ...other, example: group.item.example } })
  const moved = worst(old, (i) => (mask[i] ? Math.abs(elsewhere[i]! - old[i]!) : 0))
  const findings: Finding[] = [
    {
      name: `${name} on-policy ratio`,
      pass: ratio < ratioLimit,
      detail: `max |ratio - 1| = ${short(ratio)}, limit ${ratioLimit}`,
    },
    {
      name: `${name} image matters`,
      pass: moved > 1e-6,
      detail: `another image moves log-probs by up to ${short(moved)}`,
    },
    endCounts(run, group, old, mask),
  ]
  const drift = samplerDrift(group, old)
  if (drift !== null)
    findings.push({
      name: `${name} sampler agrees`,
      pass: drift < samplerLimit,
      detail: `sampling and scoring log-probs differ by up to ${short(drift)}, limit ${samplerLimit}`,
    })
  return findings
}

/** The pass of the loss itself: with a gradient recorded. */
function withGradient(run: Run, group: Group): Float32Array {
  return tidy(() => {
    const { logps } = group.task.densities(contextOf(run), group.item, group.rollouts)
    if (!gradEnabled()) throw new Mismatch({ where: 'doctor', expected: 'gradients on', got: 'off' })
    return logps.detach().to('float32').array()
  }) as Float32Array
}

/**
 * Row 0 ends with the end token: it must count in the loss and carry a log-prob, which a sure model has at 0; so another token in its
 * place must be scored otherwise.
 */
function endCounts(run: Run, group: Group, logps: Float32Array, mask: Float32Array): Finding {
  const { ids } = group.rollouts[0]!
  const T = logps.length / group.rollouts.length
  const last = ids.length - 1
  const id = ids[last]!
  const swapped = ids.with(last, id === 0 ? 1 : 0)
  const rollouts = group.rollouts.map((r) => (r.ids === ids ? { ...r, ids: swapped } : r))
  const other = plainDensities(run, { ...group, rollouts })[last]!
  const own = logps[last]!
  return {
    name: `${group.task.name} end token`,
    pass: last < T && mask[last] === 1 && Number.isFinite(own) && own <= 0 && own !== other,
    detail: `token ${id} at ${last}: log-prob ${short(own)}, in the loss; another token there: ${short(other)}`,
  }
}

/** Null when nothing was sampled token by token. */
function samplerDrift(group: Group, scored: Float32Array): number | null {
  const T = scored.length / group.rollouts.length
  const differences = group.rollouts.flatMap((r, k) =>
    Array.from(r.logps, (logp, t) => Math.abs(logp - scored[k * T + t]!)),
  )
  return differences.length === 0 ? null : Math.max(...differences)
}

/** One hash per tensor. */
function hashes(tensors: Iterable<[string, Tensor]>): Map<string, string> {
  const out = new Map<string, string>()
  for (const [name, t] of tensors) {
    const array = noGrad(() => tidy(() => t.detach().to('cpu').contiguous().array()))
    out.set(name, sha256(new Uint8Array(array.buffer, array.byteOffset, array.byteLength)))
  }
  return out
}

function learning(run: Run, groups: readonly Group[]): Finding[] {
  const { learner } = run
  const trained = new Set(learner.slots.map((s) => s.name))
  const frozen = () =>
    hashes(
      learner.loaded.model
        .slots()
        .filter((s) => !trained.has(s.name))
        .map((s) => [s.name, tensorAt(s)]),
    )
  const frozenBefore = frozen()
  const states = [hashes(learner.params())]
  const emaBefore = hashes(learner.ema.state())
  const norms: StepReport['groupNorms'][] = []
  const live: number[] = []
  for (let step = 0; step < 2; step++) {
    const report = new StepReport()
    learn(run, groups, rate, report)
    norms.push(report.groupNorms)
    states.push(hashes(learner.params()))
    live.push(memory().tensors)
  }
  const changed = differing(frozenBefore, frozen())
  const followed = differing(emaBefore, hashes(learner.ema.state())).length
  return [
    ...Object.keys(norms[0]!).map((group) => groupFinding(group, norms, learner, states)),
    ...loraFindings(states),
    {
      name: 'frozen weights',
      pass: changed.length === 0,
      detail:
        changed.length === 0
          ? `${frozenBefore.size} tensors bit-identical after two steps`
          : `changed: ${changed.slice(0, 3).join(', ')}`,
    },
    { name: 'EMA copy', pass: followed > 0, detail: `${followed} of ${emaBefore.size} tensors followed` },
    {
      name: 'no leak',
      pass: live[0] === live[1],
      detail: `live tensors ${live[0]} after step 1, ${live[1]} after step 2`,
    },
  ]
}

function groupFinding(
  group: string,
  norms: readonly StepReport['groupNorms'][],
  learner: Learner,
  states: readonly Map<string, string>[],
): Finding {
  const [first, second] = norms.map((n) => n[group as keyof typeof n] ?? 0)
  const names = learner.namesOf(group)
  const moved = differing(states[0]!, states[2]!).filter((name) => names.has(name)).length
  return {
    name: `gradient ${group}`,
    pass: first! > 0 && second! > 0 && moved > 0,
    detail: `norm ${short(first!)} in step 1, ${short(second!)} in step 2; ${moved} of ${names.size} tensors moved`,
  }
}

/** A starts behind a zero B: its gradient is exactly 0 in the first step. */
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
    { name: 'LoRA B, step 1', pass: bFirst === b.length, detail: `${bFirst} of ${b.length} tensors moved` },
    { name: 'LoRA A, step 1', pass: aFirst === 0, detail: `${aFirst} of ${a.length} moved; none can while B is 0` },
    { name: 'LoRA A, step 2', pass: aSecond === a.length, detail: `${aSecond} of ${a.length} tensors moved` },
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
