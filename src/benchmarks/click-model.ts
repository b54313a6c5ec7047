// SAM2 under clicks: all clicks so far and the logits of the last mask go in; one click may mean several things, so its answer is
// the best of three, later ones are single masks.

import { Mismatch } from '../core/index.ts'
import type { RgbImage } from '../image/index.ts'
import type { Click, Mask } from '../mask/index.ts'
import type { GroundedFamily } from '../models/index.ts'
import { type Sam2Features, Sam2Model } from '../sam/index.ts'
import { type Tensor, tidyNoGrad } from '../tensor/index.ts'
import type { DrawClicks } from './clicks.ts'

function samOf({ module, name }: GroundedFamily): Sam2Model {
  const { sam } = module as { sam?: unknown }
  if (sam instanceof Sam2Model) return sam
  throw new Mismatch({ where: name, field: 'benchmark', expected: 'a family with SAM2 for clicks', got: 'none' })
}

/** `release` frees the kept logits; call it after the last click of a record. */
export function clicksOn(
  family: GroundedFamily,
  features: object,
  { width, height }: Pick<RgbImage, 'width' | 'height'>,
): { draw: DrawClicks; release(): void } {
  const sam = samOf(family)
  const levels = family.tensorsOf(features) as unknown as Sam2Features
  let kept: Tensor | null = null
  const release = () => {
    kept?.dispose()
    kept = null
  }
  const side = sam.config.image_size
  const frame = ({ point: [x, y] }: Click) => [(x * side) / width, (y * side) / height]
  const draw = (clicks: readonly Click[]): Mask => {
    const [mask, logits] = tidyNoGrad(() => {
      const prompt = {
        points: [clicks.map(frame)],
        labels: [clicks.map(({ label }) => label)],
        ...(kept ? { maskInput: kept } : {}),
      }
      const { masks, ious } = sam.decode(levels, prompt, { multimask: clicks.length === 1 })
      const scores = ious.numbers()
      const best = scores.indexOf(Math.max(...scores))
      const chosen = masks.narrow(1, best, 1) // [1, 1, h, w]
      return [family.finishMasks(features, chosen.squeeze(1))[0]!, chosen.clamp({ min: -32, max: 32 })] as const
    })
    release()
    kept = logits
    return mask
  }
  return { draw, release }
}
