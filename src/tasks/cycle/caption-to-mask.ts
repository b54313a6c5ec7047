// caption -> mask -> caption': the policy draws a mask from a caption, the EMA copy describes what was drawn. The mask itself is the
// sampled action: with text alone all K masks would be equal and nothing would reach the mask decoder.
import { type RandomStream, stream, streamId } from '../../core/index.ts'
import { maskArea } from '../../mask/index.ts'
import { type TeacherPass, teacherForce } from '../../models/index.ts'
import { type ActionColumns, type Densities, type Draw, type Json, sampleStream, type Task } from '../../rl/index.ts'
import { cat, noGrad, stack, type Tensor, tidy, zeros } from '../../tensor/index.ts'
import { segmentAnswers } from '../../text/index.ts'
import type { WorkItem } from '../kind.ts'
import { actionDensity, type Drawn, gridOf, type MaskAction, pooled, sampleEmbedding, sampleField } from './action.ts'
import { ask, describeAll, segmentAll } from './ask.ts'
import type { Cycle } from './config.ts'
import { maskLoss } from './mask-loss.ts'
import { type CycleReply, type CycleSample, restoreSample, shownOf, storeSample } from './sample.ts'

/** An answer that carries a mask. */
interface AnswerRow {
  ids: Int32Array
  text: string
  finished: boolean
  logps: Float32Array
  segState: Tensor | null // [1, S]
}

export class CaptionToMask implements Task<WorkItem, CycleSample, CycleReply> {
  readonly name = 'loop2'
  readonly title = 'caption -> mask -> caption'
  readonly weight: number
  readonly beta: number
  readonly #cycle: Cycle
  /** Of the noise, in the units of what it perturbs; measured by `open`. */
  #scale = 1

  constructor(cycle: Cycle) {
    this.#cycle = cycle
    const { loop2, rl } = cycle.config
    this.weight = loop2.weight
    this.beta = loop2.beta ?? rl.beta
  }

  get opens(): boolean {
    return this.#cycle.config.loop2.action !== 'text'
  }

  /** The spread of what the action perturbs: standard deviation over records, averaged over dimensions, times loop2.actionStd. */
  open(items: readonly WorkItem[]): Json {
    if (this.opens) this.#scale = Math.max(this.#spread(items), 1e-6) * this.#cycle.config.loop2.actionStd
    return { scale: this.#scale }
  }

  reopen(state: Json): void {
    this.#scale = (state as { scale: number }).scale
  }

  describe(): string | null {
    return this.opens ? `mask action ${this.#cycle.config.loop2.action}: noise ${this.#scale.toPrecision(3)}` : null
  }

  #spread(items: readonly WorkItem[]): number {
    const { family } = this.#cycle
    return noGrad(() =>
      tidy(() => {
        const rows = ask(
          this.#cycle,
          items.map((item) => this.#prompt(item)),
        )
        const means = rows.flatMap((row, i) => {
          if (!row.segStates) return []
          const e = family.segPrompts(row.segStates.narrow(0, 0, 1))
          return [this.#mean(items[i]!, e).squeeze(0)]
        })
        if (means.length === 0) return 1
        if (means.length === 1) return means[0]!.std(null, { correction: 1 }).item()
        return stack(means).std([0], { correction: 1 }).mean().item()
      }),
    )
  }

  /** The mean of the action at a prompt of the decoder [1, d], float32 [1, n]: the prompt itself, or the pooled logits of its mask. */
  #mean({ features }: WorkItem, prompt: Tensor, choice?: number): Tensor {
    const { family, config } = this.#cycle
    if (config.loop2.action === 'embedding') return prompt.to('float32')
    const { logits } = family.drawMasks(features, prompt, choice === undefined ? undefined : [choice])
    return pooled(logits.to('float32'), gridOf(config.loop2.grid, logits.size(1)))
      .flatten()
      .unsqueeze(0)
  }

  #prompt({ features, example }: WorkItem) {
    return this.#cycle.family.segment(features, example.caption)
  }

  sample(items: readonly WorkItem[], draw: Draw): CycleSample[][] {
    const answers = this.#answers(items, draw)
    return items.map((item, b) => tidy(() => this.#samples(item, answers[b]!, draw)))
  }

  /** One greedy answer for all K, or K sampled ones. Words and actions have streams of their own: noise must not depend on what was said. */
  #answers(items: readonly WorkItem[], draw: Draw): AnswerRow[][] {
    const { rl, loop2 } = this.#cycle.config
    const K = rl.numGenerations
    const random = (row: number, k: number) => sampleStream(draw, streamId.sampling, items[row]!.id, k, this.name)
    const sampled = loop2.sampleText ? { samples: K, random } : undefined
    const rows = ask(
      this.#cycle,
      items.map((item) => this.#prompt(item)),
      sampled,
    ).map(({ ids, text, finished, logps, segStates }) => {
      return { ids, text, finished, logps, segState: segStates ? segStates.narrow(0, 0, 1) : null }
    })
    return items.map((_, b) => (sampled ? rows.slice(b * K, (b + 1) * K) : [rows[b]!]))
  }

  #samples(item: WorkItem, answers: readonly AnswerRow[], draw: Draw): CycleSample[] {
    const K = this.#cycle.config.rl.numGenerations
    const random = (k: number) => sampleStream(draw, streamId.maskAction, item.id, k)
    const all = Array.from({ length: K }, (_, k) => random(k))
    const shared = answers.length === 1
    const first = answers[0]!.segState
    const drawn: (Drawn | null)[] = shared
      ? first
        ? this.#act(item, first, all)
        : all.map(() => null)
      : answers.map((a, k) => (a.segState ? this.#act(item, a.segState, [random(k)])[0]! : null))
    return drawn.map((d, k) => {
      const { ids, text, finished, logps } = answers[shared ? 0 : k]!
      const mask = d ? this.#cycle.family.finishMasks(item.features, d.logits)[0]! : null
      const sampled = this.#cycle.config.loop2.sampleText
      return {
        ids,
        text,
        finished,
        logps,
        action: d?.action ?? null,
        caption: null,
        mask,
        ...(sampled ? {} : { sampled }),
      }
    })
  }

  #act({ features }: WorkItem, state: Tensor, randoms: readonly RandomStream[]): Drawn[] {
    const { family, config } = this.#cycle
    const { action, grid } = config.loop2
    const mean = family.segPrompts(state) // [1, d]
    if (action === 'embedding') return sampleEmbedding(family, features, mean, this.#scale, randoms)
    if (action === 'field') return sampleField(family, features, mean, this.#scale, grid, randoms)
    const { choice, logits } = family.drawMasks(features, mean)
    return randoms.map(() => ({ action: { value: new Float32Array(0), choice: choice[0]! }, logits }))
  }

  answer(items: readonly WorkItem[], groups: readonly (readonly CycleSample[])[]): CycleReply[][] {
    const regions = items.flatMap(({ features }, b) =>
      groups[b]!.flatMap(({ mask }) => (mask ? [{ features, mask }] : [])),
    )
    const captions = describeAll(this.#cycle, regions)
    let next = 0
    return items.map(({ example }, b) =>
      groups[b]!.map((s, k) => {
        const captionPrime = s.mask ? captions[next++]! : null
        const { id, caption: reference, mask: given } = example
        const mask = s.mask && maskArea(s.mask) > 0 ? s.mask : null
        const answer = { id: `${id}#${k}`, reference, given, mask, captionPrime, text: s.text }
        return { answer, mask: s.mask, text: captionPrime }
      }),
    )
  }

  densities(item: WorkItem, group: readonly CycleSample[]): Densities {
    const { family, config } = this.#cycle
    const answers = distinctAnswers(group)
    const pass = teacherForce(family.model, this.#prompt(item), answers, { checkpointing: config.checkpointing })
    const tokens = pass.logProbs(config.rl.temperature) // [A, T]
    const K = group.length
    const spread = (t: Tensor) => (answers.length === K ? t : t.expand([K, -1]))
    if (!this.opens) return { logps: spread(tokens.logps), entropies: spread(tokens.entropies) }
    const column = this.#actionColumn(item, group, pass, answers.length === K) // [K, 1]
    const none = zeros([K, 1], { device: pass.hidden.device })
    return {
      logps: cat([spread(tokens.logps), column], { dim: 1 }),
      entropies: cat([spread(tokens.entropies), none], { dim: 1 }),
    }
  }

  /** Log-densities of the actions; the K rows of one greedy answer share its mean. */
  #actionColumn(item: WorkItem, group: readonly CycleSample[], pass: TeacherPass, separate: boolean): Tensor {
    const density = (rows: readonly CycleSample[], k: number) => {
      const at = this.#segAt(rows[0]!.ids)
      const actions = rows.map((s) => s.action)
      if (at < 0 || !actions[0]) return zeros([rows.length, 1], { device: pass.hidden.device })
      const mean = this.#mean(item, this.#cycle.family.segPrompts(pass.stateAt(k, at)), actions[0].choice)
      return actionDensity(actions as MaskAction[], mean, this.#scale)
    }
    return separate ? cat(group.map((s, k) => density([s], k))) : density(group, 0)
  }

  /** Where the first [SEG] of an answer is; -1 without one that was read back. */
  #segAt(ids: Int32Array): number {
    const at = ids.indexOf(this.#cycle.family.segId)
    return at >= 0 && at < ids.length - 1 ? at : -1
  }

  actions(group: readonly CycleSample[]): ActionColumns | null {
    if (!this.opens) return null
    return { columns: 1, counts: Float32Array.from(group, (s) => (s.action ? 1 : 0)) }
  }

  extraLoss(item: WorkItem, group: readonly CycleSample[]): Tensor | null {
    const { family, config } = this.#cycle
    if (config.loop2.maskLoss === 0) return null
    const { ids } = group[0]!
    const at = this.#segAt(ids)
    if (at < 0) return null
    const pass = teacherForce(family.model, this.#prompt(item), [ids], { checkpointing: config.checkpointing })
    const { logits } = family.drawMasks(item.features, family.segPrompts(pass.stateAt(0, at)))
    return maskLoss(logits, [item.example.mask], { bce: 1, dice: 1 }).loss.mul(config.loop2.maskLoss)
  }

  /** The usual answer with sampled mask actions. */
  probe(item: WorkItem): CycleSample[] {
    const { family, config } = this.#cycle
    const text = segmentAnswers[0]!
    const ids = family.completion(text)
    const pass = teacherForce(family.model, this.#prompt(item), [ids])
    const state = pass.stateAt(0, ids.indexOf(family.segId))
    const randoms = Array.from({ length: config.rl.numGenerations }, (_, k) =>
      stream(config.seed, streamId.maskAction, 0, item.id, k),
    )
    const plain = { ids, text, finished: true, logps: new Float32Array(0), caption: null, mask: null }
    if (!this.opens) return randoms.map(() => ({ ...plain, action: null }))
    return this.#act(item, state, randoms).map(({ action }) => ({ ...plain, action }))
  }

  /** A model that never says [SEG] draws no mask: there is nothing to learn from. */
  examine({ features, example }: WorkItem): string[] {
    const [found] = segmentAll(this.#cycle, [{ features, caption: example.caption }])
    const { segs, text } = found!
    return [segs > 0 ? 'answers the first record with [SEG]' : `no [SEG] in "${text}"; fine-tune it first`]
  }

  shown = (item: WorkItem, _sample: CycleSample, reply: CycleReply | undefined) => shownOf(item, reply)
  store = storeSample
  restore = restoreSample
}

/** The K rows of a greedy answer are one completion. */
function distinctAnswers(group: readonly CycleSample[]): Int32Array[] {
  const first = group[0]!.ids
  const same = group.every(
    (s) => s.ids === first || (s.ids.length === first.length && s.ids.every((id, i) => id === first[i])),
  )
  return same ? [first] : group.map((s) => s.ids)
}
