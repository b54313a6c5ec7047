// A custom task: `npx roundtrip-rl train --task ./my-task.ts --train mlp1,lora`. The policy describes a region in its own words and
// is rewarded for short captions that say what the record says; nobody answers back. K captions of each record, T tokens.
import { bootstrapInterval } from 'roundtrip-rl'
import { type GroundedFamily, generate, isGrounded, teacherForceGroups } from 'roundtrip-rl/models'
import { type Answer, cleanCaption, countWords, meteor } from 'roundtrip-rl/rewards'
import {
  type CommonSettings,
  type Draw,
  type Evaluator,
  type Json,
  type Sample,
  sampleStream,
  streamId,
  type Task,
  type TaskKind,
  type WorkItem,
} from 'roundtrip-rl/tasks'

type Reply = { answer: Answer }

class ShortCaption implements Task<WorkItem, Sample, Reply> {
  readonly name = 'short'
  readonly title = 'region -> short caption'
  readonly weight = 1
  readonly beta: number
  readonly opens = false // nothing is measured before the first step
  readonly family: GroundedFamily
  readonly config: CommonSettings

  // Node runs TypeScript whose types can be taken out: no parameter properties, no enums
  constructor(family: GroundedFamily, config: CommonSettings) {
    this.family = family
    this.config = config
    this.beta = config.rl.beta
  }

  open = (): Json => null
  reopen = (): void => undefined
  describe = (): null => null

  /** Captions of regions: sampled with the random numbers of `draw`, or greedy without it. */
  captions(items: readonly WorkItem[], draw?: Draw): Sample[][] {
    const { temperature, maxCompletionLength, numGenerations } = this.config.rl
    const K = draw ? numGenerations : 1
    const random = (row: number, k: number) => sampleStream(draw!, streamId.sampling, items[row]!.id, k)
    const prompts = items.map((item) => this.#prompt(item))
    const rows = generate(this.family.model, this.family.tokenizer, prompts, {
      maxNewTokens: maxCompletionLength,
      stopStrings: this.family.stopWords,
      samples: K,
      ...(draw ? { sampling: { temperature }, random } : {}),
    })
    const samples = rows.map(({ ids, text, finished, logps }) => ({ ids, text, finished, logps }))
    return items.map((_, b) => samples.slice(b * K, (b + 1) * K))
  }

  sample = (items: readonly WorkItem[], draw: Draw): Sample[][] => this.captions(items, draw)

  /** Here the EMA copy would answer; this task only passes the caption to the rewards. */
  answer(items: readonly WorkItem[], groups: readonly (readonly Sample[])[]): Reply[][] {
    return items.map(({ example }, b) =>
      groups[b]!.map(({ text }, k) => {
        const caption = this.caption(text)
        return { answer: { id: `${example.id}#${k}`, reference: example.caption, given: example.mask, caption, text } }
      }),
    )
  }

  /** All records in one pass, the samples of a record packed after its prompt: [K, T] for each. */
  densities(items: readonly WorkItem[], groups: readonly (readonly Sample[])[]) {
    const prompts = items.map((item) => this.#prompt(item))
    const ids = groups.map((group) => group.map((sample) => sample.ids))
    return teacherForceGroups(this.family.model, prompts, ids).logProbsByPrompt(this.config.rl.temperature)
  }

  actions = (): null => null
  extraLoss = (): null => null
  probe = (item: WorkItem): Sample[] => this.captions([item], { seed: this.config.seed, step: 0 })[0]!
  shown = ({ example }: WorkItem) => [{ kind: 'text' as const, by: 'record' as const, value: example.caption }]

  /** A sample travels through a checkpoint as JSON. */
  store = ({ ids, text, finished, logps }: Sample): Json => ({ ids: [...ids], text, finished, logps: [...logps] })
  restore(stored: Json): Sample {
    const { ids, text, finished, logps } = stored as { ids: number[]; text: string; finished: boolean; logps: number[] }
    return { ids: Int32Array.from(ids), text, finished, logps: Float32Array.from(logps) }
  }

  /** What the model wrote, without markers and the text that ends an answer. */
  caption(text: string): string {
    const stop = this.family.stopWords.map((word) => text.indexOf(word)).filter((at) => at >= 0)
    return cleanCaption(text.slice(0, Math.min(text.length, ...stop)))
  }

  #prompt = ({ features, example }: WorkItem) => this.family.describe(features, example.mask)
}

function build(family: Parameters<TaskKind['build']>[0], config: CommonSettings): ShortCaption {
  if (!isGrounded(family)) throw new Error(`short: ${family.name} cannot describe regions`)
  return new ShortCaption(family, config)
}

/** Greedy captions of held-out records: METEOR against the record's caption, and the number of words. */
function evaluator(task: ShortCaption): Evaluator<{ id: string; meteor: number; words: number }> {
  return {
    score: (items) =>
      task.captions(items).map(([row], b) => {
        const { id, caption: reference } = items[b]!.example
        const caption = task.caption(row!.text)
        return { id, meteor: meteor(reference, caption), words: countWords(caption) }
      }),
    summary: (scores, seed) => ({
      'short/meteor': bootstrapInterval(
        scores.map((s) => s.meteor),
        { seed },
      ),
      'short/words': bootstrapInterval(
        scores.map((s) => s.words),
        { seed },
      ),
    }),
  }
}

/** Up to six words are free; twelve or more cost half of the reward. */
const short = {
  kind: 'captionLength',
  min: 1,
  max: 6,
  lambda: 0.5,
  power: 1,
  floor: 0.25,
  lambdaLong: 0.5,
  floorLong: 0.25,
} as const

export const task = {
  name: 'short',
  doc: 'short captions, rewarded without a second model',
  check({ train }) {
    const unreached = train.filter((group) => group !== 'mlp1' && group !== 'lora')
    if (unreached.length > 0) throw new Error(`short: no gradient reaches ${unreached.join(', ')}: --train mlp1,lora`)
  },
  rewards: () => ({
    tasks: {
      short: {
        rewards: { terms: [{ type: 'meteor', weight: 1, of: 'caption' }], shaping: short },
        produced: ['caption', 'text'],
        shapes: 'caption',
      },
    },
    notices: [],
  }),
  build: (family, config) => [build(family, config)],
  evaluator: (family, config) => evaluator(build(family, config)),
} satisfies TaskKind
