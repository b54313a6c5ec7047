// SAM2 under clicks: all clicks so far and the logits of the last mask go in; one click may mean several things, so its answer is
// the best of three, later ones are single masks.

import type { Mask } from '../mask/index.ts'
import type { Features, Loaded } from '../models/index.ts'
import { noGrad, type Tensor, tidy } from '../tensor/index.ts'
import type { Click, DrawClicks } from './clicks.ts'

/** `release` frees the kept logits; call it after the last click of a record. */
export function clicksOn({ model, cfg }: Loaded, features: Features): { draw: DrawClicks; release(): void } {
  const side = cfg.sam.image_size
  let kept: Tensor | null = null
  const release = () => {
    kept?.dispose()
    kept = null
  }
  const frame = ({ x, y }: Click) => [(x * side) / features.width, (y * side) / features.height]
  const draw = (clicks: readonly Click[]): Mask => {
    const [mask, logits] = noGrad(() =>
      tidy(() => {
        const prompt = {
          points: [clicks.map(frame)],
          labels: [clicks.map((click) => Number(click.inside))],
          ...(kept ? { maskInput: kept } : {}),
        }
        const { masks, ious } = model.sam.decode(features.sam, prompt, { multimask: clicks.length === 1 })
        const scores = ious.numbers()
        const best = scores.indexOf(Math.max(...scores))
        const chosen = masks.narrow(1, best, 1) // [1, 1, h, w]
        return [model.finishMasks(features, chosen.squeeze(1))[0]!, chosen.clamp({ min: -32, max: 32 })] as const
      }),
    )
    release()
    kept = logits
    return mask
  }
  return { draw, release }
}
