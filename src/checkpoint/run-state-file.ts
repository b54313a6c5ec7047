// state.json of a run's checkpoint: counters and positions from which a run resumes. The manifest's hash detects damage;
// these checks detect a file that was edited or copied from another step.
import { basename, join } from 'node:path'
import { z } from 'zod'
import { parseWith } from '../config/index.ts'
import { Mismatch, readJsonObject } from '../core/index.ts'

const count = z.int().nonnegative()
const finite = z.number()
/** One number for each task or loop. */
const perTask = z.record(z.string(), finite)

const loader = z.looseObject({
  version: z.literal(1),
  fingerprint: z.string(),
  seed: count,
  rank: count,
  world: z.int().positive(),
  epoch: count,
  position: count,
  seen: count,
  rejects: z.record(z.string(), count),
})

const rollout = z.looseObject({ ids: z.string(), text: z.string(), finished: z.boolean(), logps: z.string() })
const group = z.looseObject({
  task: z.string(),
  record: z.string(),
  rollouts: z.array(rollout).min(1),
  advantages: z.string(),
})
/** What a rollout looks like is decided by its task. */
const taskGroup = group.extend({ rollouts: z.array(z.unknown()).min(1) })

/** Of 0.1.0. */
const version1 = z.looseObject({
  version: z.literal(1),
  step: count,
  fingerprint: z.string(),
  loader,
  position: z.looseObject({ events: count, samples: count }),
  actionScale: finite.positive(),
  balance: perTask,
  norms: perTask,
  entropy: z.looseObject({ coef: finite, last: finite.nullable() }).optional(),
  buffer: z.looseObject({ groups: z.array(group), next: count }).nullable(),
  flat: count,
})

const generation = z.looseObject({
  groups: z.array(taskGroup),
  pieces: z.array(z.array(z.string())),
  taken: count,
  short: z.boolean(),
})

/** Tokens by record. */
const costs = z.array(z.tuple([z.string(), finite]))

const version2 = z.looseObject({
  version: z.literal(2),
  step: count,
  settings: z.record(z.string(), z.unknown()).nullable(),
  loader,
  position: z.looseObject({ events: count, samples: count }),
  tasks: z.record(z.string(), z.looseObject({ balance: finite, norm: finite, state: z.unknown() })),
  entropy: z.looseObject({ coef: finite, last: finite.nullable() }).nullish(),
  generation: generation.nullable(),
  flat: count,
  costs: z.looseObject({ known: costs, fresh: costs }).optional(),
})

const runState = z.discriminatedUnion('version', [version1, version2])
type StoredRunState = z.infer<typeof runState>

/** Reads and checks the state of a checkpoint folder; its step must be the folder's. */
export function readRunState(folder: string): StoredRunState {
  const where = join(folder, 'state.json')
  const value = readJsonObject(where)
  const { version } = value
  if (version !== 1 && version !== 2) {
    const hint = Number(version) > 2 ? 'a later release wrote it: resume with that release' : undefined
    throw new Mismatch({ where, field: 'version', expected: '1 or 2', got: version ?? 'nothing', hint })
  }
  const state = parseWith(runState, value, where)
  checkStep(state.step, folder, where)
  const buffer = state.version === 1 ? state.buffer : null
  if (buffer && buffer.next > buffer.groups.length) {
    const expected = `at most the ${buffer.groups.length} groups`
    throw new Mismatch({ where, field: 'buffer.next', expected, got: buffer.next })
  }
  return state
}

function checkStep(step: number, folder: string, where: string): void {
  const named = /^checkpoint_step_(\d+)(?:\.old)?$/.exec(basename(folder))
  if (!named || Number(named[1]) === step) return
  const hint = 'the file belongs to another checkpoint, or was edited'
  throw new Mismatch({ where, field: 'step', expected: `${Number(named[1])}, as the folder's name`, got: step, hint })
}
