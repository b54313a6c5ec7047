// A custom reward: `npx roundtrip-rl train --reward ./my-reward.ts`. The import is of types only, so the module needs
// nothing at run time. `score` may be async; `scoreBatch` gets a whole group at once instead.
import type { Answer, Reward } from 'roundtrip-rl/rewards'

const colours = new Set([
  'red',
  'green',
  'blue',
  'yellow',
  'black',
  'white',
  'brown',
  'grey',
  'orange',
  'purple',
  'pink',
])

function coloursIn(text: string): Set<string> {
  return new Set((text.toLowerCase().match(/\p{L}+/gu) ?? []).filter((word) => colours.has(word)))
}

/** Share of the reference's colours that the caption names; a reference without colours cannot be scored. */
export const reward = {
  name: 'colours',
  range: [0, 1],
  doc: "Share of the reference's colour words that the caption names.",
  score(answer: Answer): number | null {
    const wanted = coloursIn(answer.reference)
    if (wanted.size === 0) return null
    const named = coloursIn(answer.caption ?? answer.captionPrime ?? '')
    return [...wanted].filter((c) => named.has(c)).length / wanted.size
  },
} satisfies Reward
