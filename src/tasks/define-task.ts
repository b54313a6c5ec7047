// A task from a prompt, a reward and metrics. Sampling, log-probabilities, evaluation and storage have defaults.
import { Mismatch, streamId } from '../core/index.ts'
import { generate, type PromptIds, teacherForceGroups } from '../llm/index.ts'
import type { Family, GroundedFamily } from '../models/index.ts'
import { type Answer, cleanCaption, type Reward } from '../rewards/index.ts'
import { type Draw, type Json, type Sample, type Shown, sampleStream, type Task } from '../rl/index.ts'
import { cutAnswer } from '../text/index.ts'
import { bootstrapInterval } from '../tracking/index.ts'
import { recordContext } from './context.ts'
import { requireGrounded } from './cycle/config.ts'
import { generateOptions } from './generate-options.ts'
import type { CommonSettings, RecordScore, TaskKind, TaskRewardsPlan, WorkItem } from './kind.ts'
import { restoreText, storeText } from './stored-text.ts'

/** What a task of text answers needs. Everything with a question mark has a default. */
export interface TaskDefinition {
  /** Prefix of its metrics. */
  name: string
  /** What it trains, for `--help`. */
  doc: string
  /** How a record is asked; default: the family's question about the record's region. */
  prompt?(family: GroundedFamily, item: WorkItem): PromptIds
  /** What rewards see of an answer in addition to `reference`, `given`, `text` and `record`; default: the text as `caption`. */
  answer?(text: string, item: WorkItem): Partial<Answer>
  /** Rewards and their weights; `--reward` modules are added to them. */
  rewards: readonly { reward: Reward; weight?: number }[]
  /** Numbers of a greedy answer to a held-out record; the log has their means with intervals. */
  metrics?(answer: Answer): Record<string, number>
  /** Groups of weights that a gradient reaches; default: mlp1, lora. */
  trains?: readonly string[]
  /** What a person sees of a sample beside its text; default: the record's caption. */
  shown?(item: WorkItem): Shown[]
}

type Reply = { answer: Answer }
type Samples = readonly (readonly Sample[])[]

class DefinedTask implements Task<WorkItem, Sample, Reply> {
  readonly name: string
  readonly title: string
  readonly weight = 1
  readonly beta: number
  readonly opens = false
  readonly #of: TaskDefinition
  readonly #family: GroundedFamily
  readonly #config: CommonSettings

  constructor(of: TaskDefinition, family: GroundedFamily, config: CommonSettings) {
    this.name = of.name
    this.title = of.doc
    this.beta = config.rl.beta
    this.#of = of
    this.#family = family
    this.#config = config
  }

  open = (): Json => null
  reopen = (): void => undefined
  describe = (): null => null
  actions = (): null => null

  #prompts(items: readonly WorkItem[]): PromptIds[] {
    const family = this.#family
    const ask = this.#of.prompt ?? ((_, { features, example }) => family.describe(features, example.mask))
    return items.map((item) => ask(family, item))
  }

  /** Sampled with the random numbers of `draw`, or greedy without it. */
  write(items: readonly WorkItem[], draw?: Draw): Sample[][] {
    const { model, tokenizer, stopWords } = this.#family
    const { rl } = this.#config
    const samples = draw ? rl.numGenerations : 1
    const random = (row: number, k: number) => sampleStream(draw!, streamId.sampling, items[row]!.id, k)
    const options = generateOptions(rl.maxCompletionLength, stopWords, draw && { rl, samples, random })
    const rows = generate(model, tokenizer, this.#prompts(items), options).map(
      ({ ids, text, finished, logps, samplerLogps }): Sample =>
        samplerLogps ? { ids, text, finished, logps, samplerLogps } : { ids, text, finished, logps },
    )
    return items.map((_, b) => rows.slice(b * samples, (b + 1) * samples))
  }

  sample = (items: readonly WorkItem[], draw: Draw): Sample[][] => this.write(items, draw)

  answerOf(item: WorkItem, { text }: Sample, k: number): Answer {
    const { id, caption: reference, mask: given } = item.example
    const clean = cutAnswer(text, this.#family.stopWords)
    const more = this.#of.answer?.(clean, item) ?? { caption: cleanCaption(clean) }
    return { id: `${id}#${k}`, reference, given, text, record: recordContext(item), ...more }
  }

  answer(items: readonly WorkItem[], groups: Samples): Reply[][] {
    return items.map((item, b) => groups[b]!.map((sample, k) => ({ answer: this.answerOf(item, sample, k) })))
  }

  densities(items: readonly WorkItem[], groups: Samples) {
    const ids = groups.map((group) => group.map((sample) => sample.ids))
    const { checkpointing, rl } = this.#config
    const pass = teacherForceGroups(this.#family.model, this.#prompts(items), ids, { checkpointing })
    return pass.logProbsByPrompt(rl.temperature)
  }

  /** The first sample is the record's caption with its end token, which the doctor checks. */
  probe(item: WorkItem): Sample[] {
    const [sampled] = this.write([item], { seed: this.#config.seed, step: 0 })
    const ids = this.#family.completion(item.example.caption, { words: true })
    return sampled!.map((s, k) => (k === 0 ? { ...s, ids, finished: true, logps: new Float32Array(0) } : s))
  }

  shown(item: WorkItem): Shown[] {
    return this.#of.shown?.(item) ?? [{ kind: 'text', by: 'record', value: item.example.caption }]
  }

  store = storeText
  restore = restoreText
}

type Score = RecordScore & Readonly<Record<string, number | string>>

/** Means over records of what `metrics` gives, with intervals. */
function summarise(name: string, scores: readonly Score[], seed: number) {
  const keys = [...new Set(scores.flatMap((score) => Object.keys(score)))].filter((key) => key !== 'id')
  const values = (key: string) => scores.flatMap((score) => (typeof score[key] === 'number' ? [score[key]] : []))
  return Object.fromEntries(keys.map((key) => [`${name}/${key}`, bootstrapInterval(values(key), { seed })]))
}

/** A kind of task for `--task FILE`: `export const task = defineTask({ name, doc, rewards })`. */
export function defineTask(definition: TaskDefinition): TaskKind {
  const { name, doc, rewards, metrics, trains = ['mlp1', 'lora'] } = definition
  const open = (family: Family, config: CommonSettings) => new DefinedTask(definition, requireGrounded(family), config)
  const terms = rewards.map(({ reward, weight = 1 }) => ({ type: 'task' as const, of: 'text', weight, reward }))
  const plan = ({ rewards: { modules } }: CommonSettings): TaskRewardsPlan => {
    const all = [...terms, ...modules.map((m) => ({ type: 'module' as const, ...m }))]
    const own = { rewards: { terms: all, shaping: 'none' as const }, produced: ['caption', 'text'] }
    return { tasks: { [name]: { ...own, shapes: 'caption' } }, notices: [] }
  }
  return {
    name,
    doc,
    check({ train }) {
      const got = train.filter((group) => !trains.includes(group)).join(', ')
      const [expected, hint] = ['groups that its loss reaches', `--train ${trains.join(',')}`]
      if (got !== '') throw new Mismatch({ where: name, field: 'train', expected, got, hint })
    },
    rewards: plan,
    build: (family, config) => [open(family, config)],
    evaluator(family, config) {
      const task = open(family, config)
      return {
        score: (items) =>
          task.write(items).map(([row], b): Score => {
            const answer = task.answerOf(items[b]!, row!, 0)
            return { id: items[b]!.id, ...(metrics?.(answer) ?? { words: (answer.caption ?? '').split(/\s+/).length }) }
          }),
        summary: (scores, seed) => summarise(name, scores as Score[], seed),
      }
    },
  }
}
