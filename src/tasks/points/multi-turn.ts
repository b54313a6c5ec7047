// Several turns (second-look with `turns` above 1). The policy answers, sees the mask after its clicks, and answers again. It ends
// when the policy stops, writes something unreadable, or has answered `turns` times. A trajectory is one sample: its tokens share one advantage.

import { type PromptIds, teacherForceGroups } from '../../llm/index.ts'
import type { Densities, Sample } from '../../rl/index.ts'
import { cat, noGrad, stack, type Tensor, tidy, zeros } from '../../tensor/index.ts'
import { askAbout, drawOptions, type PointItem, type PointSetup, positiveClicks, withContour } from './item.ts'
import { type PointAnswer, parsePointAnswer } from './parse.ts'
import {
  askPoints,
  askPrompts,
  corrected,
  type PointReply,
  type PointText,
  replyTo,
  type SampledPoints,
  type Start,
} from './reply.ts'

/** What the policy wrote, look after look; without `looks` there was one. Plain data. */
export interface PointWords extends Sample {
  readonly looks?: readonly PointText[]
}

const looksOf = (words: PointWords): readonly PointText[] => words.looks ?? [words]

/** The state of a trajectory: what SAM2 was given and drew last, and the answers with the mask after each. */
interface Walk extends Start {
  turns: PointReply['turns'][number][]
  switched: boolean
}

function begin(setup: PointSetup, item: PointItem): Walk {
  const prompt = positiveClicks(setup, item.record, item.positive)
  return { prompt, mask: item.first!, turns: [], switched: false }
}

const isOver = ({ turns }: Walk) => turns.some(({ answer }) => !answer.valid || answer.stop)

/** One more answer, and the mask of all clicks so far. */
function advance(setup: PointSetup, item: PointItem, walk: Walk, { text, finished }: PointText): Walk {
  const answer = parsePointAnswer(text, item.frame, setup.config, !finished)
  if (answer.counts.kept === 0) return { ...walk, turns: [...walk.turns, { answer, mask: null }] }
  const given = corrected(setup, item, answer, walk)
  const [mask] = setup.sam.draw(item.sam, [given], drawOptions(setup, item.record))
  const { previous: _, ...prompt } = given
  const switched = walk.switched || mask!.token !== walk.mask.token
  return { prompt, mask: mask!, switched, turns: [...walk.turns, { answer, mask: mask!.mask }] }
}

function promptOf(setup: PointSetup, item: PointItem, { mask }: Walk): PromptIds {
  const { record, positive } = item
  return noGrad(() => askAbout(setup, { record, positive, shown: withContour(record.image, mask.mask) }).prompt)
}

/** K trajectories of each item. */
export function askLooks(setup: PointSetup, items: readonly PointItem[], sampled?: SampledPoints): PointWords[][] {
  const first = askPoints(setup, items, sampled)
  if (setup.config.turns === 1) return first
  const open = first.flatMap((texts, b) =>
    texts.map((text, k) => ({ b, k, item: items[b]!, looks: [text], walk: begin(setup, items[b]!) })),
  )
  for (let turn = 1; turn < setup.config.turns; turn++) {
    for (const one of open)
      if (one.looks.length === turn) one.walk = advance(setup, one.item, one.walk, one.looks.at(-1)!)
    const going = open.filter((one) => one.looks.length === turn && !isOver(one.walk))
    if (going.length === 0) break
    const asked = askPrompts(
      setup,
      going.map((one) => promptOf(setup, one.item, one.walk)),
      sampled && { ...sampled, samples: 1, random: (row) => sampled.random(going[row]!.b, going[row]!.k, turn) },
    )
    going.forEach((one, i) => {
      one.looks.push(asked[i]![0]!)
    })
  }
  return first.map((texts, b) => texts.map((_, k) => wordsOf(open.find((one) => one.b === b && one.k === k)!.looks)))
}

/** The looks as one sample: their tokens one after the other. */
export function wordsOf(looks: readonly PointText[]): PointWords {
  const ids = Int32Array.from(looks.flatMap((l) => [...l.ids]))
  const logps = Float32Array.from(looks.flatMap((l) => [...l.logps]))
  const drawn = looks.flatMap((l) => (l.samplerLogps ? [...l.samplerLogps] : []))
  const sampler = drawn.length === ids.length ? { samplerLogps: Float32Array.from(drawn) } : {}
  const { finished } = looks.at(-1)!
  return { ids, logps, ...sampler, text: looks.map((l) => l.text).join('\n'), finished, looks }
}

/** Answers read and drawn, a reply for each trajectory. */
export function replyToLooks(setup: PointSetup, item: PointItem, words: readonly PointWords[]): PointReply[] {
  if (setup.config.turns === 1) return replyTo(setup, item, words)
  const replyOf = (one: PointWords): PointReply => {
    const walk = looksOf(one).reduce((at, text) => advance(setup, item, at, text), begin(setup, item))
    const answer = joined(walk.turns.map((t) => t.answer))
    const mask1 = walk.turns.findLast((t) => t.mask)?.mask ?? null
    const { confidence } = walk.mask
    const start = positiveClicks(setup, item.record, item.positive)
    const masks = { mask0: item.first!.mask, mask1 }
    return { answer, turns: walk.turns, prompt: start, ...masks, confidence, switched: walk.switched }
  }
  return tidy(() => words.map(replyOf))
}

/** All clicks of a trajectory as one answer, for whoever looks at places and counts. */
function joined(answers: readonly PointAnswer[]): PointAnswer {
  const [first, ...rest] = answers as [PointAnswer, ...PointAnswer[]]
  return rest.reduce((all, one) => {
    const sum = (key: keyof PointAnswer['counts']) => all.counts[key] + one.counts[key]
    const counts = { kept: sum('kept'), raw: sum('raw'), oob: sum('oob'), dup: sum('dup'), extra: sum('extra') }
    const [negatives, positives] = [
      [...all.negatives, ...one.negatives],
      [...all.positives, ...one.positives],
    ]
    return {
      ...one,
      valid: all.valid && one.valid,
      format: Math.min(all.format, one.format),
      negatives,
      positives,
      counts,
    }
  }, first)
}

/** Log-densities of every token of the trajectories [K, T] for each item; each look is scored under the image it saw. */
export function densitiesOfLooks(
  setup: PointSetup,
  items: readonly PointItem[],
  groups: readonly (readonly PointWords[])[],
  options: { temperature: number; checkpointing: boolean },
): Densities[] {
  const prompts: PromptIds[] = items.map((item) => item.prompt)
  const completions: Int32Array[][] = groups.map((group) => group.map((words) => looksOf(words)[0]!.ids))
  const places = groups.map((group, b) =>
    group.map((words) => {
      const later = looksOf(words).slice(1)
      let walk = later.length > 0 ? begin(setup, items[b]!) : null
      return later.map((look, i) => {
        walk = noGrad(() => advance(setup, items[b]!, walk!, looksOf(words)[i]!))
        completions.push([look.ids])
        return prompts.push(promptOf(setup, items[b]!, walk)) - 1
      })
    }),
  )
  const { checkpointing, temperature } = options
  const scored = teacherForceGroups(setup.policy.model, prompts, completions, { checkpointing }).logProbsByPrompt(
    temperature,
  )
  if (setup.config.turns === 1) return scored
  return groups.map((group, b) => {
    const T = Math.max(1, ...group.map((words) => words.ids.length))
    const rowsOf = (kind: 'logps' | 'entropies') =>
      stack(
        group.map((words, k) => {
          const looks = looksOf(words)
          const own = scored[b]![kind].select(0, k).narrow(0, 0, looks[0]!.ids.length)
          const later = places[b]![k]!.map((at, i) =>
            scored[at]![kind].select(0, 0).narrow(0, 0, looks[i + 1]!.ids.length),
          )
          return padded([own, ...later], T)
        }),
      )
    return { logps: rowsOf('logps'), entropies: rowsOf('entropies') }
  })
}

function padded(parts: readonly Tensor[], length: number): Tensor {
  const row = cat([...parts])
  const missing = length - row.size(0)
  return missing === 0 ? row : cat([row, zeros([missing], { dtype: row.dtype, device: row.device })])
}
