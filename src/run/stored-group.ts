// Groups as plain JSON, for checkpoints in the middle of a generation batch (several passes over it, or several steps from it).
import { Mismatch, messageOf } from '../core/index.ts'
import {
  type Group,
  type GrpoConfig,
  type Item,
  type Json,
  newGroup,
  type Sample,
  type Scored,
  type Task,
} from '../rl/index.ts'

const pack = (a: Float32Array | Float64Array) => Buffer.from(a.buffer, a.byteOffset, a.byteLength).toString('base64')
const bytes = (text: string) => new Uint8Array(Buffer.from(text, 'base64')).buffer

export interface StoredGroup {
  task: string
  record: string
  /** Index of its item in the generation batch; absent in older checkpoints. */
  item?: number
  rollouts: Json[]
  scores: Scored[]
  advantages: string
  hasSignal: boolean
  old: string | null
  reference: string | null
}

export function storeGroup(g: Group, item: number): StoredGroup {
  return {
    task: g.task.name,
    record: g.item.id,
    item,
    rollouts: g.samples.map((s) => g.task.store(s)),
    scores: [...g.scores],
    advantages: pack(g.advantages),
    hasSignal: g.hasSignal,
    old: g.old ? pack(g.old) : null,
    reference: g.reference ? pack(g.reference) : null,
  }
}

/** What a task cannot read was not stored by it. */
function restoreSample(task: Task, stored: Json, record: string): Sample {
  const refused = (got: unknown) =>
    new Mismatch({ where: `state.json, record ${record}`, field: 'rollouts', expected: `samples of ${task.name}`, got })
  let sample: Sample
  try {
    sample = task.restore(stored)
  } catch (error) {
    throw refused(messageOf(error))
  }
  if (!(sample.ids instanceof Int32Array)) throw refused(stored)
  return sample
}

export function restoreGroup(s: StoredGroup, tasks: readonly Task[], item: Item, rl: GrpoConfig): Group {
  const task = tasks.find((t) => t.name === s.task)!
  const samples = s.rollouts.map((r) => restoreSample(task, r, s.record))
  return {
    ...newGroup({ task, item, samples }, rl),
    scores: s.scores,
    advantages: new Float64Array(bytes(s.advantages)),
    hasSignal: s.hasSignal,
    old: s.old ? new Float32Array(bytes(s.old)) : null,
    reference: s.reference ? new Float32Array(bytes(s.reference)) : null,
  }
}
