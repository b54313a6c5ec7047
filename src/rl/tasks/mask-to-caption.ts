// Loop 1: the policy describes a region, the EMA copy must find the region again from the words.
import { teacherForce } from '../../models/index.ts'
import { ask, captionOf, segmentAll } from './reading.ts'
import type { Task, TaskContext, WorkItem } from './task.ts'

function prompt({ learner, config }: TaskContext, item: WorkItem) {
  return learner.loaded.prompter.describe(item.features, item.example.mask, config.loop1.question)
}

export const maskToCaption: Task = {
  name: 'loop1',

  sample(context, items, random) {
    const K = context.config.rl.numGenerations
    const rows = ask(
      context,
      items.map((item) => prompt(context, item)),
      { samples: K, random: (row, k) => random(items[row]!, k, 'text') },
    )
    const rollouts = rows.map((row) => ({
      ids: row.ids,
      text: row.text,
      finished: row.finished,
      logps: row.logps,
      action: null,
      caption: captionOf(context, row.text),
      mask: null,
    }))
    return items.map((_, b) => rollouts.slice(b * K, (b + 1) * K))
  },

  answer(context, items, groups) {
    const phrases = items.flatMap((item, b) =>
      groups[b]!.map((r) => ({ features: item.features, caption: r.caption ?? '' })),
    )
    const asked = phrases.filter((p) => p.caption !== '')
    const found = segmentAll(context, asked)
    let next = 0
    return items.map((item, b) =>
      groups[b]!.map((r, k) => {
        const hit = r.caption ? found[next++]! : null
        const { id, caption: reference, mask: given } = item.example
        const answer = {
          id: `${id}#${k}`,
          reference,
          given,
          caption: r.caption,
          maskPrime: hit?.mask ?? null,
          text: r.text,
        }
        return { answer, madeMask: hit?.mask ?? null, answerText: hit?.text ?? null }
      }),
    )
  },

  densities(context, item, group) {
    const pass = teacherForce(
      context.learner.loaded.model,
      prompt(context, item),
      group.map((r) => r.ids),
      { checkpointing: context.config.checkpointing },
    )
    return pass.logProbs(context.config.rl.temperature)
  },

  mask(_context, group) {
    const T = Math.max(1, ...group.map((r) => r.ids.length))
    const out = new Float32Array(group.length * T)
    group.forEach((r, k) => {
      out.fill(1, k * T, k * T + r.ids.length)
    })
    return out
  },

  extraLoss: () => null,
}
