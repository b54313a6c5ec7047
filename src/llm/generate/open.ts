// Chooses the decoder of a call; the table in index.ts lists the conditions.
import { kernelsOff } from '../../kernels/index.ts'
import type { Decoder } from '../model.ts'
import { type AheadDecoding, capturesGraphs, type DecodeStart, type Decoding } from './decoding.ts'
import { sizeOf } from './fused/caches.ts'
import { filled, ofRows, widened, withMoreRows } from './fused/padded-rows.ts'
import type { FusedState } from './fused/state.ts'
import { notFused } from './fused/weights.ts'
import { DecodeStep } from './plain/step.ts'
import type { DrawPlan } from './recorded/draws.ts'
import { decodePool } from './recorded/pool.ts'
import type { DecodeState } from './recorded/state.ts'
import { slowPathLog } from './slow-path.ts'

/** Decoding of up to `newTokens` tokens after the prompts. A state of the pool copies the start's cache and frees it. */
export function openDecoding(decoder: Decoder, start: DecodeStart, newTokens: number): Decoding {
  if (!capturesGraphs(decoder)) return new DecodeStep(decoder, start, newTokens)
  const state = decodePool.take(decoder, start.next.length, start.columns + newTokens)
  taken(state, start, () => state.begin(start))
  return { run: (ids) => state.run(ids), dispose: () => decodePool.release(state) }
}

/** The same with draws on the device, after each row's `first` token; only on devices that capture graphs. */
export function openAhead(
  decoder: Decoder,
  start: DecodeStart,
  newTokens: number,
  draws: { plan: DrawPlan; first: readonly number[] },
): AheadDecoding {
  if (fuses(decoder, start)) return openFused(decoder, start, newTokens, draws)
  const state = decodePool.take(decoder, start.next.length, start.columns + newTokens)
  taken(state, start, () => state.begin(start, draws))
  return {
    start: (steps, numbers) => state.start(steps, numbers),
    look: (steps) => state.look(steps),
    dispose: () => decodePool.release(state),
  }
}

function openFused(
  decoder: Decoder,
  start: DecodeStart,
  newTokens: number,
  { plan, first }: { plan: DrawPlan; first: readonly number[] },
): AheadDecoding {
  const more = withMoreRows(start)
  const [R, all] = [start.next.length, more.next.length]
  const state = decodePool.takeFused(decoder, sizeOf(decoder, more, newTokens))
  taken(state, start, () => state.begin(more, { plan, first: filled(first, all) }))
  return {
    start: (steps, numbers, open) => state.start(steps, numbers && widened(numbers, R, all), open),
    look: (steps) => {
      const taken = state.look(steps)
      return () => ofRows(taken(), all, R)
    },
    dispose: () => decodePool.release(state),
  }
}

function taken(state: DecodeState | FusedState, start: DecodeStart, begin: () => void): void {
  try {
    begin()
    start.cache.dispose()
  } catch (error) {
    decodePool.release(state)
    throw error
  }
}

/** Whether the custom kernels decode. The reason why not is logged, unless the setting `kernels` is off. */
function fuses(decoder: Decoder, { next, columns }: DecodeStart): boolean {
  const reason = Math.max(...next) > columns ? 'positions ahead of the columns' : notFused(decoder)
  if (reason && reason !== kernelsOff()) slowPathLog.note(reason)
  return reason === null
}
