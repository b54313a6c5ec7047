// Log-densities of executed mask actions under the weights in place, for all records of a pass at once. A answers with [SEG], M actions,
// n columns of an action, d prompt width.
import type { TeacherPass } from '../../llm/index.ts'
import { wide } from '../../nn/index.ts'
import { cat, type Tensor, tensor, zeros } from '../../tensor/index.ts'
import type { WorkItem } from '../kind.ts'
import { actionDensity, gridOf, type MaskAction, pooled, rowsTensor } from './action.ts'
import type { Cycle } from './config.ts'
import type { CycleSample } from './sample.ts'

/** Groups that are scored, and the distinct answers of each: one for all of its rows, or one for each. */
export interface ScoredGroups {
  items: readonly WorkItem[]
  groups: readonly (readonly CycleSample[])[]
  answers: readonly (readonly Int32Array[])[]
}

/** An answer that acts: completion k of the pass, its [SEG] at token j, and the mask output its action chose. */
interface Spoken {
  k: number
  j: number
  item: WorkItem
  choice: number
}

/** The action of a sample: the answer it belongs to, and its row among all samples. */
interface Act {
  answer: number
  action: MaskAction
  row: number
}

/** Columns that an action has in the loss. */
export function actionColumns({ config }: Cycle): number {
  return config.loop2.action === 'both' ? 2 : 1
}

/** Where the first [SEG] of an answer is; -1 without one that was read back. */
export function segAt({ family }: Cycle, ids: Int32Array): number {
  const at = ids.indexOf(family.segId)
  return at >= 0 && at < ids.length - 1 ? at : -1
}

/** The pooled logits of the masks drawn from prompts [M, d], each of its record's image: float32 [M, g * g]. */
export function fieldOf(
  { family, config }: Cycle,
  items: readonly WorkItem[],
  prompts: Tensor,
  choice?: readonly number[],
): Tensor {
  const { logits } = family.drawMasks(
    items.map((item) => item.features),
    prompts,
    choice,
  )
  return pooled(wide(logits), gridOf(config.loop2.grid, logits.size(1))).flatten({ startDim: 1 })
}

/** [K, n] for each group, 0 in rows without an action. The rows of one greedy answer share its prompt. */
export function scoreActions(
  cycle: Cycle,
  scale: { prompt: number; field: number },
  scored: ScoredGroups,
  pass: TeacherPass,
): Tensor[] {
  const rows = scored.groups.reduce((n, group) => n + group.length, 0)
  let all = zeros([rows, actionColumns(cycle)], { device: pass.hidden.device })
  const { spoken, acts } = actsOf(cycle, scored)
  if (acts.length > 0) {
    const prompts = cycle.family.segPrompts(pass.statesAt(spoken)) // [A, d]
    const own = (t: Tensor) => t.indexSelect(0, indexOf(acts, 'answer', pass)) // [A, ..] -> [M, ..]
    const densities = densityOf(cycle, scale, { spoken, acts, prompts, own })
    all = all.to(densities.dtype).indexCopy(0, indexOf(acts, 'row', pass), densities)
  }
  let next = 0
  return scored.groups.map((group) => {
    next += group.length
    return all.narrow(0, next - group.length, group.length)
  })
}

function indexOf(acts: readonly Act[], key: 'row' | 'answer', { hidden }: TeacherPass): Tensor {
  return tensor(
    BigInt64Array.from(acts, (act) => BigInt(act[key])),
    { device: hidden.device },
  )
}

function actsOf(cycle: Cycle, { items, groups, answers }: ScoredGroups): { spoken: Spoken[]; acts: Act[] } {
  const spoken: Spoken[] = []
  const acts: Act[] = []
  let [first, row] = [0, 0] // of the group's completions, of its samples
  groups.forEach((group, b) => {
    group.forEach(({ ids, action }, k) => {
      const j = segAt(cycle, ids)
      if (j < 0 || !action) return
      const completion = answers[b]!.length === 1 ? first : first + k
      if (spoken.at(-1)?.k !== completion) spoken.push({ k: completion, j, item: items[b]!, choice: action.choice })
      acts.push({ answer: spoken.length - 1, action, row: row + k })
    })
    first += answers[b]!.length
    row += group.length
  })
  return { spoken, acts }
}

/** What acts, the prompts [A, d] that the answers give, and how they are spread over the acts. */
interface Acted {
  spoken: readonly Spoken[]
  acts: readonly Act[]
  prompts: Tensor
  own: (t: Tensor) => Tensor
}

/** [M, n] */
function densityOf(cycle: Cycle, scale: { prompt: number; field: number }, acted: Acted): Tensor {
  const { spoken, acts, prompts, own } = acted
  const { action, maskLoss } = cycle.config.loop2
  const values = acts.map((a) => a.action.value)
  if (action === 'embedding') return actionDensity(values, own(prompts), scale.prompt)
  if (action === 'field') {
    // through the decoder the words get ten times less signal than noise: only a mask loss teaches them here
    const means = fieldOf(
      cycle,
      spoken.map((s) => s.item),
      maskLoss > 0 ? prompts : prompts.detach(),
      spoken.map((s) => s.choice),
    )
    return actionDensity(values, own(means), scale.field)
  }
  const drawn = acts.map((a) => a.action.prompt!)
  const held = rowsTensor(drawn, prompts.device).to(prompts.dtype) // [M, d]
  const fields = fieldOf(
    cycle,
    acts.map((a) => spoken[a.answer]!.item),
    held,
    acts.map((a) => a.action.choice),
  )
  return cat([actionDensity(drawn, own(prompts), scale.prompt), actionDensity(values, fields, scale.field)], { dim: 1 })
}
