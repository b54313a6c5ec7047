// Groups as plain JSON, for checkpoints in the middle of a generation batch (several passes over it, or several steps from it).
import { decodeRle, encodeRle, type Mask } from '../mask/index.ts'
import type { ScoredRow } from '../rewards/index.ts'
import type { Group } from './step.ts'
import type { Rollout, Task, WorkItem } from './tasks/index.ts'

const pack = (a: Float32Array | Float64Array | Int32Array) =>
  Buffer.from(a.buffer, a.byteOffset, a.byteLength).toString('base64')
const bytes = (text: string) => new Uint8Array(Buffer.from(text, 'base64')).buffer

export interface StoredGroup {
  task: Task['name']
  record: string
  rollouts: {
    ids: string
    text: string
    finished: boolean
    logps: string
    action: { value: string; choice: number } | null
    caption: string | null
    mask: ReturnType<typeof encodeRle> | null
  }[]
  scores: ScoredRow[]
  advantages: string
  hasSignal: boolean
  old: string | null
  reference: string | null
}

const rle = (mask: Mask | null) => (mask ? encodeRle(mask) : null)

export function storeGroup(g: Group): StoredGroup {
  return {
    task: g.task.name,
    record: g.item.example.id,
    rollouts: g.rollouts.map((r) => ({
      ids: pack(r.ids),
      text: r.text,
      finished: r.finished,
      logps: pack(r.logps),
      action: r.action ? { value: pack(r.action.value), choice: r.action.choice } : null,
      caption: r.caption,
      mask: rle(r.mask),
    })),
    scores: [...g.scores],
    advantages: pack(g.advantages),
    hasSignal: g.hasSignal,
    old: g.old ? pack(g.old) : null,
    reference: g.reference ? pack(g.reference) : null,
  }
}

export function restoreGroup(s: StoredGroup, tasks: readonly Task[], items: ReadonlyMap<string, WorkItem>): Group {
  const rollouts: Rollout[] = s.rollouts.map((r) => ({
    ids: new Int32Array(bytes(r.ids)),
    text: r.text,
    finished: r.finished,
    logps: new Float32Array(bytes(r.logps)),
    action: r.action ? { value: new Float32Array(bytes(r.action.value)), choice: r.action.choice } : null,
    caption: r.caption,
    mask: r.mask ? decodeRle(r.mask) : null,
  }))
  return {
    task: tasks.find((t) => t.name === s.task)!,
    item: items.get(s.record)!,
    rollouts,
    answered: [],
    scores: s.scores,
    advantages: new Float64Array(bytes(s.advantages)),
    hasSignal: s.hasSignal,
    old: s.old ? new Float32Array(bytes(s.old)) : null,
    reference: s.reference ? new Float32Array(bytes(s.reference)) : null,
  }
}
