// The task of `npm run bench -- peers`: answer a question about an image with a fixed number of tokens. The reward is the share of digits.
import { streamId } from '../../src/core/index.ts'
import { generate, teacherForceGroups } from '../../src/llm/index.ts'
import { isVqa, type VqaFamily } from '../../src/models/index.ts'
import type { Answer, Reward } from '../../src/rewards/index.ts'
import { type Draw, type Json, type Sample, sampleStream, type Task } from '../../src/rl/index.ts'
import type { CommonSettings, TaskKind, WorkItem } from '../../src/tasks/index.ts'
import { restoreText, storeText } from '../../src/tasks/stored-text.ts'

type Reply = { answer: Answer }

export const question = 'Points outside:'

export const reward = {
  name: 'digits',
  range: [0, 1],
  doc: 'Share of the characters that are digits.',
  score: ({ text }: Answer): number => (text ?? '').replace(/\D/g, '').length / Math.max(text?.length ?? 0, 1),
} satisfies Reward

class Digits implements Task<WorkItem, Sample, Reply> {
  readonly name = 'digits'
  readonly title = 'image -> digits'
  readonly weight = 1
  readonly beta = 0
  readonly opens = false

  constructor(
    readonly family: VqaFamily,
    readonly config: CommonSettings,
  ) {}

  open = (): Json => null
  reopen = (): void => undefined
  describe = (): null => null

  sample(items: readonly WorkItem[], draw: Draw): Sample[][] {
    const { temperature, maxCompletionLength, numGenerations: K } = this.config.rl
    const rows = generate(this.family.model, this.family.tokenizer, this.#prompts(items), {
      maxNewTokens: maxCompletionLength,
      samples: K,
      stopStrings: [],
      sampling: { temperature },
      suppressIds: [...this.family.tokenizer.eosIds, ...this.family.imageIds],
      random: (row, k) => sampleStream(draw, streamId.sampling, items[row]!.id, k),
    })
    const samples = rows.map(({ ids, text, logps }) => ({ ids, text, finished: true, logps }))
    return items.map((_, b) => samples.slice(b * K, (b + 1) * K))
  }

  answer(items: readonly WorkItem[], groups: readonly (readonly Sample[])[]): Reply[][] {
    return items.map(({ id, example }, b) =>
      groups[b]!.map(({ text }, k) => ({
        answer: { id: `${id}#${k}`, reference: example.caption, given: example.mask, text },
      })),
    )
  }

  densities(items: readonly WorkItem[], groups: readonly (readonly Sample[])[]) {
    const ids = groups.map((group) => group.map((sample) => sample.ids))
    return teacherForceGroups(this.family.model, this.#prompts(items), ids).logProbsByPrompt(this.config.rl.temperature)
  }

  actions = (): null => null
  probe = (item: WorkItem): Sample[] => this.sample([item], { seed: this.config.seed, step: 0 })[0]!
  shown = () => []
  store = storeText
  restore = restoreText

  #prompts = (items: readonly WorkItem[]) => items.map(({ features }) => this.family.ask(features, question))
}

export const task = {
  name: 'digits',
  doc: 'digits in the answer to a question about an image',
  check: () => undefined,
  rewards: () => ({
    tasks: {
      digits: {
        rewards: { terms: [{ type: 'module', path: import.meta.filename, weight: 1 }], shaping: 'none' },
        produced: ['text'],
        shapes: 'caption',
      },
    },
    notices: [],
  }),
  build: (family, config) => {
    if (!isVqa(family)) throw new Error(`digits: ${family.name} cannot be asked`)
    return [new Digits(family, config)]
  },
  evaluator: () => ({ score: () => [], summary: () => ({}) }),
} satisfies TaskKind
