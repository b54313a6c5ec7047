// What a checkpoint holds: adapters in PEFT's layout, the other trainables, the EMA copy, a reference that moves, the optimizer, and
// one JSON of counters and positions. Everything is float32 or plain numbers, so that a resumed run continues bit for bit.
import { join } from 'node:path'
import {
  adapterConfigText,
  fitAdapter,
  fromFileName,
  openWeights,
  readRunState,
  readTensors,
  tensorSource,
  toFileName,
  writeCheckpoint,
  writeSafetensors,
} from '../checkpoint/index.ts'
import { diskTrouble, lackOfRoom, Mismatch } from '../core/index.ts'
import type { LoaderState } from '../data/index.ts'
import { exitCodes } from '../distributed/index.ts'
import type { AdapterSite, Family } from '../models/index.ts'
import { linears, tensorAt } from '../nn/index.ts'
import type { EntropyState, Json, StoredCosts } from '../rl/index.ts'
import { stack, type Tensor, tidy, tidyNoGrad } from '../tensor/index.ts'
import type { RunPosition } from '../tracking/index.ts'
import type { StoredGeneration } from './batches.ts'
import type { RunConfig } from './config.ts'
import type { Settings } from './flat-settings.ts'
import type { Learner } from './learner.ts'
import type { StoredGroup } from './stored-group.ts'

/** What a task keeps besides weights: its adaptive weight, the running norm it depends on, and what it measured at the start. */
export interface TaskState {
  balance: number
  norm: number
  state: Json
}

export interface RunState {
  version: 2
  step: number
  /** Everything that decides the numbers; a run is not resumed under others. Null in checkpoints of 0.1.0: its config.json has it. */
  settings: Settings | null
  loader: LoaderState
  position: RunPosition
  /** By task name; empty in supervised runs. */
  tasks: Record<string, TaskState>
  entropy: EntropyState | null
  /** The generation batch that later steps still use. */
  generation: StoredGeneration | null
  /** Steps in a row in which a task had no spread. */
  flat: number
  /** Steps in a row in which no task had spread; absent in older checkpoints and supervised runs. */
  noneLearns?: number
  /** What records cost, for several processes. */
  costs?: StoredCosts
}

/** state.json of 0.1.0: two tasks by name, and groups without their pieces. */
interface RunStateV1 extends Pick<RunState, 'step' | 'loader' | 'position' | 'flat'> {
  version: 1
  actionScale: number
  balance: Record<string, number>
  norms: Record<string, number>
  entropy?: EntropyState
  buffer: { groups: StoredGroup[]; next: number } | null
}

const isLora = (name: string) => /\.lora_[AB]\./.test(name)

function writer(entries: Iterable<[string, Tensor]>, rename: (name: string) => string = (n) => n) {
  return (path: string) => {
    writeSafetensors(
      path,
      Array.from(entries, ([name, t]) => tensorSource(rename(name), t)),
    )
  }
}

/** A checkpoint of NaN or infinity would be called good and take the place of one that is. */
function requireFinite(dir: string, step: number, tensors: readonly [string, Tensor][]): void {
  const flags = tidyNoGrad(() =>
    stack(tensors.map(([, t]) => t.detach().isfinite().all()))
      .to('cpu')
      .numbers(),
  )
  const bad = tensors.filter((_, i) => !flags[i]).map(([name]) => name)
  if (bad.length === 0) return
  throw new Mismatch({
    where: dir,
    field: `checkpoint of step ${step}`,
    expected: 'finite weights',
    got: `NaN or infinity in ${bad.length} of ${tensors.length} tensors, the first ${bad[0]}`,
    hint: 'not written, earlier checkpoints are intact; resume from them with a smaller optim.learningRate in another folder',
  })
}

/** `optimizer`: its whole state, where this process has a part of it only. */
export function saveRun(
  dir: string,
  learner: Learner,
  state: RunState,
  optimizer: () => ReadonlyMap<string, Tensor> = () => learner.optim.state(),
): string {
  const params = [...learner.params()]
  const ema = learner.copyOf('ema')
  requireFinite(dir, state.step, [...params, ...ema])
  const lora = params.filter(([name]) => isLora(name))
  const files: Record<string, string | ((path: string) => void)> = {
    'trainables.safetensors': writer(params.filter(([name]) => !isLora(name))),
    'ema.safetensors': writer(ema),
    'optimizer.safetensors': (path) => writer(optimizer())(path), // its counters are new tensors of the scope
    'state.json': `${JSON.stringify(state)}\n`,
  }
  if (learner.reference) files['reference.safetensors'] = writer(learner.copyOf('reference'))
  const { adapter, adapterSite } = learner
  if (adapter && adapterSite && lora.length > 0) {
    const { rank, alpha, dropout } = adapter
    files['adapter_model.safetensors'] = writer(lora, (name) => toFileName(name, adapterSite.names))
    files['adapter_config.json'] = adapterConfigText({
      r: rank,
      lora_alpha: alpha,
      lora_dropout: dropout,
      target_modules: targetModules(learner.family, adapterSite),
    })
  }
  try {
    return tidy(() => writeCheckpoint(dir, state.step, files))
  } catch (error) {
    const got = diskTrouble(error)
    if (!got) throw error
    const full = new Mismatch(
      {
        where: dir,
        field: `checkpoint of step ${state.step}`,
        expected: lackOfRoom(error) ? 'room on the disk' : 'a disk that can be written',
        got,
        hint: 'earlier checkpoints are intact; make room or lower saveTotalLimit, then start the same command again',
      },
      { cause: error },
    )
    throw Object.assign(full, { exitCode: exitCodes.disk })
  }
}

const wrapped = 'base_model.model.'

/**
 * Ends of the adapted layers' names if they select no other layer of what PEFT wraps, else whole paths: the vision tower of
 * Qwen2.5-VL has layers of the same names.
 */
function targetModules(family: Family, { names }: AdapterSite): string[] {
  const wrapsAll = names.file !== wrapped
  const all = linears(family.module).filter(([path]) => wrapsAll || path.startsWith(names.ours))
  const adapted = all.filter(([, linear]) => linear.lora_A).map(([path]) => path)
  const end = (path: string) => path.split('.').at(-1)!
  const ends = new Set(adapted.map(end))
  const exact = all.every(([path, linear]) => ends.has(end(path)) === (linear.lora_A !== undefined))
  return exact ? [...ends].sort() : adapted.map((path) => toFileName(path, names).slice(wrapped.length))
}

export function readState(path: string, config: RunConfig): RunState {
  const state = readRunState(path) as unknown as RunState | RunStateV1
  return state.version === 1 ? fromVersion1(state, config) : state
}

function fromVersion1(old: RunStateV1, { batchSize, rl }: RunConfig): RunState {
  const { step, loader, position, balance, norms, entropy, buffer, flat, actionScale } = old
  const tasks = Object.keys(balance).map((name): [string, TaskState] => {
    return [name, { balance: balance[name]!, norm: norms[name]!, state: { scale: actionScale } }]
  })
  const records = [...new Set(buffer?.groups.map((g) => g.record))]
  const pieces = Array.from({ length: Math.ceil(records.length / batchSize) }, (_, i) =>
    records.slice(i * batchSize, (i + 1) * batchSize),
  )
  const taken = (buffer?.next ?? 0) * Math.min(rl.gradientAccumulationSteps, pieces.length)
  const generation = buffer ? { groups: buffer.groups, pieces, taken, short: false } : null
  const common = { step, loader, position, flat, entropy: entropy ?? null }
  return { version: 2, settings: null, tasks: Object.fromEntries(tasks), generation, ...common }
}

/** Puts weights, EMA, moving reference and optimizer of a checkpoint in place. */
export function loadRun(path: string, learner: Learner): void {
  tidyNoGrad(() => {
    const { device } = learner.family.placement
    const read = (file: string) => readTensors(openWeights(join(path, file)), device)
    const stored = read('trainables.safetensors')
    if (learner.adapter) {
      const file = openWeights(join(path, 'adapter_model.safetensors'))
      const { weights, names } = fitAdapter(file, new Set(learner.slots.map((slot) => slot.name)))
      for (const [name, t] of readTensors(weights, device)) stored.set(fromFileName(name, names), t)
    }
    for (const slot of learner.slots) {
      const t = stored.get(slot.name)
      if (!t) throw new Mismatch({ where: path, field: slot.name, expected: 'a stored tensor', got: 'none' })
      tensorAt(slot).copy_(t)
    }
    learner.ema.load(learner.ownedOf(read('ema.safetensors')))
    learner.reference?.load(learner.ownedOf(read('reference.safetensors')))
    learner.optim.load(read('optimizer.safetensors'))
  })
}
