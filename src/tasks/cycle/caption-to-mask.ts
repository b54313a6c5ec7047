// caption -> mask -> caption': the policy draws a mask from a caption, the EMA copy describes what was drawn. The mask itself is the
// sampled action: with text alone all K masks would be equal and nothing would reach the mask decoder.
import { type RandomStream, streamId } from '../../core/index.ts'
import { type TeacherPass, teacherForce, teacherForceGroups } from '../../llm/index.ts'
import { isEmptyMask, type Mask } from '../../mask/index.ts'
import {
  type ActionColumns,
  type Densities,
  type Draw,
  type Json,
  type Sample,
  sampleStream,
  type Task,
} from '../../rl/index.ts'
import { cat, type Tensor, tidy, tidyNoGrad, zeros } from '../../tensor/index.ts'
import { segmentAnswers } from '../../text/index.ts'
import { recordContext } from '../context.ts'
import type { WorkItem } from '../kind.ts'
import { confidencesOf, type Drawn, sampleBoth, sampleEmbedding, sampleField, spreadOf } from './action.ts'
import { type Cycle, usesField, usesPrompt } from './config.ts'
import { type CycleTask, jointOf, jointPass } from './joint.ts'
import { maskLoss } from './mask-loss.ts'
import { ask, describeAll, segmentAll } from './prompts.ts'
import { type CycleReply, type CycleSample, prepareShown, restoreSample, shownOf, storeSample } from './sample.ts'
import { actionColumns, fieldOf, scoreActions, segAt } from './score-actions.ts'

/** An answer that carries a mask. */
interface AnswerRow extends Sample {
  segState: Tensor | null // [1, S]
}

interface Noise {
  prompt: RandomStream
  field: RandomStream
}

/** A sample whose answer has a [SEG]. */
interface Acting {
  item: WorkItem
  answer: Pick<AnswerRow, 'segState'>
  noise: Noise
}

export class CaptionToMask implements Task<WorkItem, CycleSample, CycleReply> {
  readonly name = 'loop2'
  readonly title = 'caption -> mask -> caption'
  readonly weight: number
  readonly beta: number
  readonly #cycle: Cycle
  /** Of the noise on the mask logits and on the prompt, in the units of what they perturb; measured by `open`. */
  #scale = { field: 1, prompt: 1 }

  constructor(cycle: Cycle) {
    this.#cycle = cycle
    const { loop2, rl } = cycle.config
    this.weight = loop2.weight
    this.beta = loop2.beta ?? rl.beta
  }

  get opens(): boolean {
    return this.#cycle.config.loop2.action !== 'text'
  }

  /** The spread of what the actions perturb: standard deviation over records, averaged over dimensions, times the settings' multiples. */
  open(items: readonly WorkItem[]): Json {
    const { action, actionStd, promptStd } = this.#cycle.config.loop2
    const { prompt, field } = this.#spreads(items)
    // the embedding action alone has always been scaled by actionStd
    const prompts = action === 'embedding' ? actionStd : promptStd
    this.#scale = { field: Math.max(field, 1e-6) * actionStd, prompt: Math.max(prompt, 1e-6) * prompts }
    return { ...this.#scale }
  }

  /** Checkpoints of 0.1.0 have one scale. */
  reopen(state: Json): void {
    const stored = state as { scale?: number; field?: number; prompt?: number }
    this.#scale = { field: stored.field ?? stored.scale ?? 1, prompt: stored.prompt ?? stored.scale ?? 1 }
  }

  describe(): string | null {
    const { action } = this.#cycle.config.loop2
    const noise = [
      ...(usesPrompt(action) ? [`${this.#scale.prompt.toPrecision(3)} on the prompt`] : []),
      ...(usesField(action) ? [`${this.#scale.field.toPrecision(3)} on the mask logits`] : []),
    ]
    return noise.length > 0 ? `mask action ${action}: noise ${noise.join(', ')}` : null
  }

  #spreads(items: readonly WorkItem[]): { prompt: number; field: number } {
    const { family, config } = this.#cycle
    return tidyNoGrad(() => {
      const rows = ask(
        this.#cycle,
        items.map((item) => this.#prompt(item)),
      )
      const drawn = rows.flatMap((row, i) => {
        if (!row.segStates) return []
        const prompt = family.segPrompts(row.segStates.narrow(0, 0, 1))
        return [
          { prompt: prompt.squeeze(0).to('float32'), field: fieldOf(this.#cycle, [items[i]!], prompt).squeeze(0) },
        ]
      })
      const { action } = config.loop2
      return {
        prompt: usesPrompt(action) ? spreadOf(drawn.map((d) => d.prompt)) : 1,
        field: usesField(action) ? spreadOf(drawn.map((d) => d.field)) : 1,
      }
    })
  }

  #prompt({ features, example }: WorkItem) {
    return this.#cycle.family.segment(features, example.caption)
  }

  sample(items: readonly WorkItem[], draw: Draw): CycleSample[][] {
    const answers = this.#answers(items, draw)
    return tidy(() => this.#samples(items, answers, draw))
  }

  /** One greedy answer for all K, or K sampled ones. Tokens and actions use separate random streams: noise must not depend on the tokens. */
  #answers(items: readonly WorkItem[], draw: Draw): AnswerRow[][] {
    const { rl, loop2 } = this.#cycle.config
    const K = rl.numGenerations
    const random = (row: number, k: number) => sampleStream(draw, streamId.sampling, items[row]!.id, k, this.name)
    const sampled = loop2.sampleText ? { samples: K, random } : undefined
    const rows = ask(
      this.#cycle,
      items.map((item) => this.#prompt(item)),
      { sampled },
    ).map(({ ids, text, finished, logps, samplerLogps, segStates }) => {
      return {
        ids,
        text,
        finished,
        logps,
        ...(samplerLogps ? { samplerLogps } : {}),
        segState: segStates ? segStates.narrow(0, 0, 1) : null,
      }
    })
    return items.map((_, b) => (sampled ? rows.slice(b * K, (b + 1) * K) : [rows[b]!]))
  }

  /** All K samples of every record; masks are drawn for all of them together, from the answers that have a [SEG]. */
  #samples(items: readonly WorkItem[], answers: readonly (readonly AnswerRow[])[], draw: Draw): CycleSample[][] {
    const K = this.#cycle.config.rl.numGenerations
    const rows = items.flatMap((item, b) =>
      Array.from({ length: K }, (_, k) => ({ item, k, answer: answers[b]![answers[b]!.length === 1 ? 0 : k]! })),
    )
    const acting = rows.filter((row) => row.answer.segState)
    const drawn = new Map(
      this.#act(acting.map(({ item, k, answer }) => ({ item, answer, noise: this.#noise(draw, item, k) }))).map(
        (d, m) => [acting[m]!, d],
      ),
    )
    const masks = this.#finished(acting, drawn)
    const { sampleText } = this.#cycle.config.loop2
    const samples = rows.map((row): CycleSample => {
      const { segState: _, ...answer } = row.answer
      const d = drawn.get(row)
      const mask = masks.get(row) ?? null
      prepareShown(this.#cycle, mask, row.item)
      return {
        ...{ ...answer, action: d?.action ?? null, caption: null, mask },
        ...(d ? { confidence: d.confidence } : {}),
        ...(sampleText ? {} : { sampled: false }),
      }
    })
    return items.map((_, b) => samples.slice(b * K, (b + 1) * K))
  }

  /** The masks of all rows at the size of their images. */
  #finished<R extends { item: WorkItem }>(rows: readonly R[], drawn: ReadonlyMap<R, Drawn>): Map<R, Mask> {
    if (rows.length === 0) return new Map()
    const masks = this.#cycle.family.finishMasks(
      rows.map((row) => row.item.features),
      cat(rows.map((row) => drawn.get(row)!.logits)),
    )
    return new Map(rows.map((row, m) => [row, masks[m]!]))
  }

  #noise(draw: Draw, { id }: WorkItem, k: number): Noise {
    return {
      field: sampleStream(draw, streamId.maskAction, id, k),
      prompt: sampleStream(draw, streamId.maskAction, id, k, 'prompt'),
    }
  }

  #act(rows: readonly Acting[]): Drawn[] {
    if (rows.length === 0) return []
    const { family, config } = this.#cycle
    const { action, grid } = config.loop2
    const answers = [...new Map(rows.map((row) => [row.answer, row])).values()]
    const answered = {
      features: answers.map(({ item }) => item.features),
      means: family.segPrompts(cat(answers.map(({ answer }) => answer.segState!))), // [A, d]
      of: rows.map((row) => answers.findIndex(({ answer }) => answer === row.answer)),
    }
    const noise = rows.map((row) => row.noise)
    const fields = noise.map((n) => n.field)
    if (action === 'both') return sampleBoth(family, answered, this.#scale, grid, noise)
    if (action === 'embedding') return sampleEmbedding(family, answered, this.#scale.prompt, fields)
    if (action === 'field') return sampleField(family, answered, this.#scale.field, grid, fields)
    const drawn = family.drawMasks(answered.features, answered.means)
    const sure = confidencesOf(drawn)
    return answered.of.map((a) => {
      const still = { value: new Float32Array(0), choice: drawn.choice[a]! }
      return { action: still, logits: drawn.logits.narrow(0, a, 1), confidence: sure[a]! }
    })
  }

  answer(items: readonly WorkItem[], groups: readonly (readonly CycleSample[])[]): CycleReply[][] {
    const regions = items.flatMap(({ features }, b) =>
      groups[b]!.flatMap(({ mask }) => (mask ? [{ features, mask }] : [])),
    )
    const captions = describeAll(this.#cycle, regions)
    let next = 0
    return items.map((item, b) =>
      groups[b]!.map((s, k) => {
        const captionPrime = s.mask ? captions[next++]! : null
        const { id, caption: reference, mask: given } = item.example
        const mask = s.mask && !isEmptyMask(s.mask) ? s.mask : null
        const answer = {
          ...{ id: `${id}#${k}`, reference, given, mask, captionPrime, text: s.text },
          ...{ maskConfidence: s.confidence ?? null, record: recordContext(item) },
        }
        return { answer, mask: s.mask, text: captionPrime }
      }),
    )
  }

  reading(items: readonly WorkItem[], groups: readonly (readonly CycleSample[])[]) {
    return { prompts: items.map((item) => this.#prompt(item)), answers: groups.map(distinctAnswers) }
  }

  densitiesFrom(
    pass: TeacherPass,
    items: readonly WorkItem[],
    groups: readonly (readonly CycleSample[])[],
  ): Densities[] {
    const answers = groups.map(distinctAnswers)
    const tokens = pass.logProbsByPrompt(this.#cycle.config.rl.temperature) // [A, T]
    const columns = this.opens ? scoreActions(this.#cycle, this.#scale, { items, groups, answers }, pass) : null // [K, n]
    return groups.map((group, b) => {
      const spread = (t: Tensor) => t.expand([group.length, -1])
      const { logps, entropies } = { logps: spread(tokens[b]!.logps), entropies: spread(tokens[b]!.entropies) }
      const own = columns?.[b]
      if (!own) return { logps, entropies }
      const none = zeros(own.shape as number[], { dtype: entropies.dtype, device: own.device })
      return { logps: cat([logps, own], { dim: 1 }), entropies: cat([entropies, none], { dim: 1 }) }
    })
  }

  densities(items: readonly WorkItem[], groups: readonly (readonly CycleSample[])[]): Densities[] {
    return jointPass(this.#cycle, [{ task: this as CycleTask, items, groups }])()[0]!
  }

  get joint() {
    return jointOf(this.#cycle)
  }

  actions(group: readonly CycleSample[]): ActionColumns | null {
    if (!this.opens) return null
    const columns = actionColumns(this.#cycle)
    return {
      columns,
      counts: Float32Array.from(group.flatMap((s) => new Array<number>(columns).fill(s.action ? 1 : 0))),
    }
  }

  extraLoss(items: readonly WorkItem[], groups: readonly (readonly CycleSample[])[]): (Tensor | null)[] | null {
    const { family, config } = this.#cycle
    if (config.loop2.maskLoss === 0) return null
    const places = groups.map((group) => segAt(this.#cycle, group[0]!.ids))
    const drawn = [...items.keys()].filter((b) => places[b]! >= 0)
    const out: (Tensor | null)[] = items.map(() => null)
    if (drawn.length === 0) return out
    const drawing = drawn.map((b) => items[b]!)
    const pass = teacherForceGroups(
      family.model,
      drawing.map((item) => this.#prompt(item)),
      drawn.map((b) => [groups[b]![0]!.ids]),
      { checkpointing: config.checkpointing },
    )
    const prompts = family.segPrompts(pass.statesAt(drawn.map((b, k) => ({ k, j: places[b]! }))))
    const { logits } = family.drawMasks(
      drawing.map((item) => item.features),
      prompts,
    )
    drawn.forEach((b, i) => {
      const own = maskLoss(logits.narrow(0, i, 1), [items[b]!.example.mask], { bce: 1, dice: 1 })
      out[b] = own.loss.mul(config.loop2.maskLoss)
    })
    return out
  }

  /** The usual answer with sampled mask actions. */
  probe(item: WorkItem): CycleSample[] {
    const { family, config } = this.#cycle
    const text = segmentAnswers[0]!
    const ids = family.completion(text)
    const pass = teacherForce(family.model, this.#prompt(item), [ids])
    const state = pass.stateAt(0, ids.indexOf(family.segId))
    const draw = { seed: config.seed, step: 0 }
    const noise = Array.from({ length: config.rl.numGenerations }, (_, k) => this.#noise(draw, item, k))
    const plain = { ids, text, finished: true, logps: new Float32Array(0), caption: null, mask: null }
    if (!this.opens) return noise.map(() => ({ ...plain, action: null }))
    const answer = { ...plain, segState: state }
    return this.#act(noise.map((n) => ({ item, answer, noise: n }))).map(({ action }) => ({ ...plain, action }))
  }

  /** A model that never says [SEG] draws no mask: there is nothing to learn from. */
  examine({ features, example }: WorkItem): string[] {
    const [found] = segmentAll(this.#cycle, [{ features, caption: example.caption }])
    const { segs, text } = found!
    return [segs > 0 ? 'answers the first record with [SEG]' : `no [SEG] in "${text}"; fine-tune it first`]
  }

  shown = (item: WorkItem, _sample: CycleSample, reply: CycleReply | undefined) => shownOf(item, reply, 'policy')
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
