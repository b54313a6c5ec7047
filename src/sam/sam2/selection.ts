// Which mask is taken, and how it becomes pixels. B prompts, M proposals.
import { Mismatch } from '../../core/index.ts'
import { cat, ones, resizeMaps, type Tensor, tidy, where } from '../../tensor/index.ts'
import type { DecoderOutput } from './mask-decoder.ts'

/** The proposal with the largest predicted overlap in each row, the first on ties: ious [B, M] to indices [B], int64. */
export function chooseMask(ious: Tensor): Tensor {
  return tidy(() => ious.detach().argmax({ dim: 1 }))
}

/** The chosen masks [B, 1, h, w] of [B, M, h, w], or their overlaps [B, 1] of [B, M]; the choice itself has no gradient. */
export function takeMask(values: Tensor, index: Tensor): Tensor {
  return tidy(() => {
    const column = index.view([-1, ...values.shape.slice(1).map(() => 1)])
    return values.gather(1, column.expand([values.size(0), 1, ...values.shape.slice(2)]))
  })
}

/** Share of the pixels above -delta that are also above +delta: logits [B, h, w] to [B]; 1 if there are none. */
export function stability(logits: Tensor, delta: number): Tensor {
  return tidy(() => {
    const flat = logits.detach().flatten({ startDim: 1 })
    const sure = flat.gt(delta).sum(-1).to('float32')
    const likely = flat.gt(-delta).sum(-1).to('float32')
    return where(likely.gt(0), sure.div(likely), 1)
  })
}

/** Mask 0 of each row, or the best proposal where mask 0 is unstable: all masks [B, 1 + M, ..] to one per row. */
export function stableMask(all: DecoderOutput, delta: number, threshold: number): DecoderOutput {
  return tidy(() => {
    const steady = stability(all.masks.select(1, 0), delta).ge(threshold) // [B]
    const proposals = all.ious.narrow(1, 1, all.ious.size(1) - 1)
    const best = chooseMask(proposals).add(1)
    const index = where(steady, best.mul(0), best)
    return { masks: takeMask(all.masks, index), ious: takeMask(all.ious, index), objScore: all.objScore, tokens: index }
  })
}

/** Low-resolution logits [B, M, h, w] to [B, M, height, width], by way of SAM2's input size: the two steps differ from one at edges. */
export function upsampleMask(lowRes: Tensor, samSize: number, height: number, width: number): Tensor {
  if (lowRes.ndim !== 4)
    throw new Mismatch({ where: 'upsampleMask', field: 'lowRes', expected: '[B, M, h, w]', got: `[${lowRes.shape}]` })
  return tidy(() => resizeMaps(resizeMaps(lowRes, samSize, samSize), height, width))
}

/** Values of mask logits that were no numbers, since the start; their pixels are outside. */
export const maskLogits = { nan: 0 }

/**
 * Logits [.., H, W] to 0/1 pixels, row-major, one array for each of the leading rows. sigmoid > 0.5, as the reference decides:
 * it differs from logit > 0 for logits below 1e-7 only. Waits for the device.
 */
export function toMask(logits: Tensor): Uint8Array[] {
  if (logits.ndim < 2)
    throw new Mismatch({ where: 'toMask', field: 'logits', expected: '[.., H, W]', got: `[${logits.shape}]` })
  maskLogits.nan += tidy(() => countNaN(logits.detach()))
  const size = logits.size(-1) * logits.size(-2)
  const bits = tidy(() => inside(logits).to('uint8').array()) as Uint8Array
  return Array.from({ length: bits.length / size }, (_, i) => bits.slice(i * size, (i + 1) * size))
}

/** The sum says in a twentieth of the time that there is none. */
const countNaN = (x: Tensor): number => (Number.isFinite(x.sum().item()) ? 0 : x.isnan().sum().item())

const inside = (logits: Tensor) => logits.detach().sigmoid().gt(0.5)

/**
 * The run lengths of the same masks [B, H, W], column by column. They are computed on the logits' device, so that little comes back from it,
 * and lie in shared memory: other threads read them where they are.
 */
export function maskRuns(logits: Tensor): Uint32Array[] {
  const [B, H, W] = logits.shape as [number, number, number]
  const [runs, counts, nan] = tidy(() => {
    const columns = inside(logits)
      .transpose(1, 2)
      .reshape([B, H * W])
    const before = columns.roll([1], { dims: [1] })
    before.narrow(1, 0, 1).fill_(false)
    const ends = cat([columns.ne(before), ones([B, 1], { dtype: 'bool', device: logits.device })], { dim: 1 })
    const at = ends.nonzero().select(1, 1) // [N]: pixels before which a run ends, H * W at the end of a mask
    const lengths = at.sub(at.roll([1], { dims: [0] }).remainder(H * W)).to('int32')
    return [lengths.array(true), ends.sum(1).numbers(), logits.detach().isnan().sum().item()]
  })
  maskLogits.nan += nan
  let next = 0
  return counts.map((count) => {
    next += count
    return new Uint32Array(runs.buffer, (next - count) * 4, count)
  })
}
