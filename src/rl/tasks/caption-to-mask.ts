// Loop 2: the policy draws a mask from a caption, the EMA copy describes what was drawn. The mask itself is the sampled action: with
// text alone all K masks would be equal and nothing would reach the mask decoder.
import type { RandomStream } from '../../core/index.ts'
import { maskArea } from '../../mask/index.ts'
import { type TeacherPass, teacherForce } from '../../models/index.ts'
import { cat, type Tensor, tidy, zeros } from '../../tensor/index.ts'
import { maskLoss } from '../mask-loss.ts'
import { actionDensity, type Drawn, gridOf, pooled, sampleEmbedding, sampleField } from './action.ts'
import { ask, describeAll } from './reading.ts'
import type { MaskAction, Rollout, Streams, Task, TaskContext, WorkItem } from './task.ts'

function prompt({ learner }: TaskContext, item: WorkItem) {
  return learner.loaded.prompter.segment(item.features, item.example.caption)
}

interface Spoken {
  ids: Int32Array
  text: string
  finished: boolean
  logps: Float32Array
  segState: Tensor | null // [1, S]
}

/** The answers that carry the masks: one greedy answer for all K, or K sampled ones. */
function speak(context: TaskContext, items: readonly WorkItem[], random: Streams): Spoken[][] {
  const K = context.config.rl.numGenerations
  const sampled = context.config.loop2.sampleText
    ? { samples: K, random: (row: number, k: number) => random(items[row]!, k, 'text') }
    : undefined
  const rows = ask(
    context,
    items.map((item) => prompt(context, item)),
    sampled,
  ).map((row) => ({
    ids: row.ids,
    text: row.text,
    finished: row.finished,
    logps: row.logps,
    segState: row.segStates ? row.segStates.narrow(0, 0, 1) : null,
  }))
  return items.map((_, b) => (sampled ? rows.slice(b * K, (b + 1) * K) : [rows[b]!]))
}

function act(context: TaskContext, item: WorkItem, state: Tensor, randoms: readonly RandomStream[]): Drawn[] {
  const { model } = context.learner.loaded
  const { action, grid } = context.config.loop2
  const mean = model.segPrompts(state) // [1, d]
  if (action === 'embedding') return sampleEmbedding(model, item.features, mean, context.actionScale, randoms)
  if (action === 'field') return sampleField(model, item.features, mean, context.actionScale, grid, randoms)
  const drawn = model.drawMasks(item.features, mean)
  return randoms.map(() => ({ action: { value: new Float32Array(0), choice: drawn.choice[0]! }, logits: drawn.logits }))
}

function rolloutsOf(context: TaskContext, item: WorkItem, spoken: readonly Spoken[], random: Streams): Rollout[] {
  const { model } = context.learner.loaded
  const K = context.config.rl.numGenerations
  const shared = spoken.length === 1
  const drawn: (Drawn | null)[] = shared
    ? spoken[0]!.segState
      ? act(
          context,
          item,
          spoken[0]!.segState,
          Array.from({ length: K }, (_, k) => random(item, k, 'action')),
        )
      : Array.from({ length: K }, () => null)
    : spoken.map((s, k) => (s.segState ? act(context, item, s.segState, [random(item, k, 'action')])[0]! : null))
  return drawn.map((d, k) => {
    const { ids, text, finished, logps } = spoken[shared ? 0 : k]!
    const mask = d ? model.finishMasks(item.features, d.logits)[0]! : null
    return { ids, text, finished, logps, action: d?.action ?? null, caption: null, mask }
  })
}

/** Where the first [SEG] of an answer stands; -1 without one that was read back. */
function segAt(context: TaskContext, ids: Int32Array): number {
  const at = ids.indexOf(context.learner.loaded.prompter.segId)
  return at >= 0 && at < ids.length - 1 ? at : -1
}

/** The mean of the action under the weights in place: [1, n]. */
function actionMean(context: TaskContext, item: WorkItem, state: Tensor, choice: number): Tensor {
  const { model } = context.learner.loaded
  const mean = model.segPrompts(state)
  if (context.config.loop2.action === 'embedding') return mean
  const { logits } = model.drawMasks(item.features, mean, [choice])
  return pooled(logits.to('float32'), gridOf(context.config.loop2.grid, logits.size(1)))
    .flatten()
    .unsqueeze(0)
}

const hasAction = (context: TaskContext) => context.config.loop2.action !== 'text'

/** Log-densities of the actions; the K rows of one greedy answer share its mean. */
function actionColumn(
  context: TaskContext,
  item: WorkItem,
  group: readonly Rollout[],
  pass: TeacherPass,
  separate: boolean,
): Tensor {
  const density = (rows: readonly Rollout[], k: number) => {
    const at = segAt(context, rows[0]!.ids)
    const actions = rows.map((r) => r.action)
    if (at < 0 || !actions[0]) return zeros([rows.length, 1], { device: pass.hidden.device })
    return actionDensity(
      actions as MaskAction[],
      actionMean(context, item, pass.stateAt(k, at), actions[0].choice),
      context.actionScale,
    )
  }
  return separate ? cat(group.map((r, k) => density([r], k))) : density(group, 0)
}

export const captionToMask: Task = {
  name: 'loop2',

  sample(context, items, random) {
    const spoken = speak(context, items, random)
    return items.map((item, b) => tidy(() => rolloutsOf(context, item, spoken[b]!, random)))
  },

  answer(context, items, groups) {
    const regions = items.flatMap((item, b) =>
      groups[b]!.filter((r) => r.mask).map((r) => ({ features: item.features, mask: r.mask! })),
    )
    const captions = describeAll(context, regions)
    let next = 0
    return items.map((item, b) =>
      groups[b]!.map((r, k) => {
        const captionPrime = r.mask ? captions[next++]! : null
        const { id, caption: reference, mask: given } = item.example
        const made = r.mask && maskArea(r.mask) > 0 ? r.mask : null
        return {
          answer: { id: `${id}#${k}`, reference, given, mask: made, captionPrime, text: r.text },
          madeMask: r.mask,
          answerText: captionPrime,
        }
      }),
    )
  },

  densities(context, item, group) {
    const { model } = context.learner.loaded
    const answers = distinctAnswers(group)
    const pass = teacherForce(model, prompt(context, item), answers, { checkpointing: context.config.checkpointing })
    const tokens = pass.logProbs(context.config.rl.temperature) // [A, T]
    const K = group.length
    const spread = (t: Tensor) => (answers.length === K ? t : t.expand([K, -1]))
    if (!hasAction(context)) return { logps: spread(tokens.logps), entropies: spread(tokens.entropies) }
    const column = actionColumn(context, item, group, pass, answers.length === K) // [K, 1]
    const none = zeros([K, 1], { device: pass.hidden.device })
    return {
      logps: cat([spread(tokens.logps), column], { dim: 1 }),
      entropies: cat([spread(tokens.entropies), none], { dim: 1 }),
    }
  },

  mask(context, group) {
    const extra = hasAction(context) ? 1 : 0
    const T = Math.max(1, ...group.map((r) => r.ids.length))
    const out = new Float32Array(group.length * (T + extra))
    group.forEach((r, k) => {
      out.fill(1, k * (T + extra), k * (T + extra) + r.ids.length)
      if (extra && r.action) out[k * (T + extra) + T] = 1
    })
    return out
  },

  extraLoss(context, item, group) {
    if (context.config.loop2.maskLoss === 0) return null
    const { ids } = group[0]!
    const at = segAt(context, ids)
    if (at < 0) return null
    const { model } = context.learner.loaded
    const pass = teacherForce(model, prompt(context, item), [ids], { checkpointing: context.config.checkpointing })
    const { logits } = model.drawMasks(item.features, model.segPrompts(pass.stateAt(0, at)))
    return maskLoss(logits, [item.example.mask], { bce: 1, dice: 1 }).loss.mul(context.config.loop2.maskLoss)
  },
}

/** The K rows of a greedy answer are one completion. */
function distinctAnswers(group: readonly Rollout[]): Int32Array[] {
  const first = group[0]!.ids
  const same = group.every(
    (r) => r.ids === first || (r.ids.length === first.length && r.ids.every((id, i) => id === first[i])),
  )
  return same ? [first] : group.map((r) => r.ids)
}
