// A custom task: `npx roundtrip-rl train --task ./my-task.ts --train mlp1,lora`. The policy describes a region and is rewarded for short
// captions that say what the record says. `defineTask` samples, scores, evaluates and stores; docs/tasks.md lists its defaults.
import { type Answer, countWords, meteor } from 'roundtrip-rl/rewards'
import { defineTask } from 'roundtrip-rl/tasks'

/** METEOR against the record's caption. */
const similarity = ({ reference, caption }: Answer) => meteor(reference, caption ?? '')

/** Up to six words are free; twelve or more cost half of the reward. */
const brevity = ({ caption }: Answer) => 1 - Math.min(6, Math.max(0, countWords(caption ?? '') - 6)) / 12

export const task = defineTask({
  name: 'short',
  doc: 'region -> short caption',
  rewards: [
    {
      reward: {
        name: 'short',
        range: [0, 1],
        doc: 'METEOR, less for long captions.',
        score: (answer) => similarity(answer) * brevity(answer),
      },
    },
  ],
  metrics: (answer) => ({ meteor: similarity(answer), words: countWords(answer.caption ?? '') }),
})
