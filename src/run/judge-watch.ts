// Warns if the judge scores nothing: the run looks healthy, because the other reward terms still count.
import { spellControls } from '../core/index.ts'
import type { JudgeCount } from '../rewards/index.ts'

/** Steps of a start after which the count is checked. */
const firstSteps = 3

/** `judge scored 12 of 16 captions`, with a reason if some have no score. */
export function judgeLine({ scored, asked, reason }: JudgeCount): string {
  const why = scored < asked && reason !== null ? `; the last one without a score: ${spellControls(reason)}` : ''
  return `judge scored ${scored} of ${asked} captions${why}`
}

export class JudgeWatch {
  #steps = 0
  #reported = false

  /** The text of a warning after one of the first steps, once, if fewer than half of the captions have a score. */
  afterStep(judged: JudgeCount | null): string | null {
    if (this.#reported || judged === null || judged.asked === 0 || this.#steps >= firstSteps) return null
    this.#steps++
    const { scored, asked, reason } = judged
    if (2 * scored >= asked) return null
    this.#reported = true
    return `judge: ${scored} of ${asked} captions scored: ${reason ?? 'no reason given'}. Groups without its score follow rewards.judge.onUnavailable`
  }
}
