// Recorded decoding on the CPU: the recorder runs the step again with the tensors that were in place when it recorded, as a captured
// graph reads the addresses it was captured with. What CUDA itself adds is checked in tests/gpu.
import assert from 'node:assert/strict'
import { after, beforeEach, test } from 'node:test'
import { box, encode, fillAdapters, freeFeatures, type Prompt, tinyModel } from '../../../../tests/support/sa2va.ts'
import { stream } from '../../../core/index.ts'
import {
  addLora,
  greedyTokens,
  replaceTensor,
  type Slot,
  sampleTokens,
  suppress,
  tensorAt,
  trainOnly,
  withWeights,
} from '../../../nn/index.ts'
import { int64Tensor, keep, memory, noGrad, type Tensor, tidy } from '../../../tensor/index.ts'
import { loraTargets } from '../../model.ts'
import type { DecodeStart, Decoding } from '../decoding.ts'
import { hasRoomFor } from '../fused/caches.ts'
import { openDecoding } from '../open.ts'
import { prefill } from '../plain/prefill.ts'
import { DecodePool } from './pool.ts'
import type { Recorder } from './state.ts'

const tiny = tinyModel()
const { model, prompter } = tiny
const { decoder } = model
const adapter = addLora(model.language_model, loraTargets('Qwen2ForCausalLM'), { rank: 4, alpha: 8, seed: 1 })
fillAdapters(model, 3)
const trained = trainOnly(model.language_model, [/\.lora_[AB]\./])
const [square, wide] = [encode(tiny, 96, 96), encode(tiny, 224, 112)]
after(() => {
  freeFeatures(square)
  freeFeatures(wide)
  tiny.dispose()
})

let recordings = 0
const again: Recorder = (step) => {
  recordings++
  const slots = decoder.module.slots()
  const place = new Map(slots.map((slot) => [slot.name, tensorAt(slot)]))
  const run = () => withWeights(slots, place, step)
  const result = tidy(run)
  for (const t of Object.values(result)) keep(t)
  const replay = () =>
    tidy(() => {
      const { hidden, logits } = run()
      result.hidden.copy_(hidden)
      result.logits.copy_(logits)
    })
  return { result, replay, dispose: () => undefined }
}
const newPool = (bytes = 1e9) => new DecodePool(again, () => bytes)
beforeEach(() => {
  recordings = 0
})

const phrases = [prompter.segment(square, 'the red circle'), prompter.segment(square, 'a very large blue star')]
const region = [prompter.describe(wide, box(224, 112, 10, 10, 150, 90)), phrases[0]!]
const tokens = [5, 9, 13, 7]

/** Scores of the tokens after the prompts, read one by one. */
function read(prompts: readonly Prompt[], open: (start: ReturnType<typeof prefill>) => Decoding): number[] {
  return noGrad(() =>
    tidy(() => {
      const start = prefill(model, prompts, tokens.length + 1)
      const decoding = open(start)
      const out = tokens.map((id) => decoding.run(prompts.map((_, r) => id + r)).logits)
      decoding.dispose()
      start.cache.dispose()
      return out.flatMap((t) => t.numbers())
    }),
  )
}

const plainly = (prompts: readonly Prompt[]) => read(prompts, (s) => openDecoding(decoder, { ...s, rows: null }, 8))
const through = (pool: DecodePool, prompts: readonly Prompt[]) =>
  read(prompts, (start) => {
    const state = pool.take(decoder, prompts.length, start.columns + 8)
    state.begin({ ...start, rows: null })
    return { run: (ids) => state.run(ids), dispose: () => pool.release(state) }
  })

function near(a: readonly number[], b: readonly number[]): void {
  const worst = Math.max(...a.map((v, i) => Math.abs(v - b[i]!)))
  assert.ok(worst < 1e-4, `differ by ${worst}`)
}

test('one recording serves prompts of one shape, and gives the scores of decoding op by op', () => {
  const pool = newPool()
  near(through(pool, phrases), plainly(phrases))
  near(through(pool, [...phrases].reverse()), plainly([...phrases].reverse()))
  near(through(pool, phrases), plainly(phrases))
  assert.equal(recordings, 1)
  near(through(pool, region), plainly(region))
  assert.deepEqual([recordings, pool.size], [2, 2])
  pool.clear()
})

/** Other values for the trained weights: what the EMA copy is. */
function otherRole(): Map<string, Tensor> {
  return new Map(trained.map((slot) => [slot.name, keep(noGrad(() => tidy(() => tensorAt(slot).detach().mul(-2))))]))
}

test('another role, an update in place and the adapters switched off are each seen, without and with a new recording', () => {
  const pool = newPool()
  const policy = plainly(phrases)
  near(through(pool, phrases), policy)
  const ema = otherRole()
  const roleOf = <R>(fn: () => R) => withWeights(trained as Slot[], ema, fn)
  near(
    roleOf(() => through(pool, phrases)),
    roleOf(() => plainly(phrases)),
  )
  near(through(pool, phrases), policy)
  assert.equal(recordings, 1, 'a role is copied, not recorded')
  noGrad(() => tidy(() => void tensorAt(trained[0]!).mul_(3)))
  near(through(pool, phrases), plainly(phrases))
  assert.equal(recordings, 1)
  adapter.enabled = false
  near(through(pool, phrases), plainly(phrases))
  adapter.enabled = true
  assert.equal(recordings, 2)
  near(through(pool, phrases), plainly(phrases))
  assert.equal(recordings, 3)
  noGrad(() => tidy(() => void tensorAt(trained[0]!).mul_(1 / 3)))
  for (const t of ema.values()) t.dispose()
  pool.clear()
})

test('a base weight that is replaced makes a new recording, and is copied from then on', () => {
  const pool = newPool()
  through(pool, phrases)
  const slot = model.language_model.slots().find((s) => s.name.endsWith('norm.weight'))!
  for (const factor of [2, 0.5]) {
    replaceTensor(
      slot,
      noGrad(() => tidy(() => tensorAt(slot).mul(factor))),
    )
    near(through(pool, phrases), plainly(phrases))
  }
  assert.equal(recordings, 2)
  pool.clear()
})

test('what is left of an earlier call, even NaN, does not reach the next', () => {
  const pool = newPool()
  const weight = tensorAt(model.language_model.slots().find((s) => s.name.endsWith('layers.0.input_layernorm.weight'))!)
  const before = tidy(() => weight.array())
  noGrad(() => tidy(() => void weight.fill_(Number.NaN)))
  assert.ok(through(pool, phrases).some(Number.isNaN))
  noGrad(() => tidy(() => void weight.fill_((before as Float32Array)[0]!)))
  near(through(pool, phrases), plainly(phrases))
  assert.equal(recordings, 1)
  pool.clear()
})

test('a pool keeps four shapes at most and no more bytes than allowed, the oldest go, and clear leaves nothing', () => {
  through(newPool(), phrases)
  const live = memory().tensors
  const pool = newPool()
  for (const rows of [1, 2, 3, 4, 5, 6])
    through(
      pool,
      Array.from({ length: rows }, () => phrases[0]!),
    )
  assert.equal(pool.size, 4)
  through(
    pool,
    Array.from({ length: 3 }, () => phrases[0]!),
  )
  assert.equal(recordings, 1 + 6, 'rows 3 to 6 were kept')
  pool.clear(decoder)
  assert.equal(memory().tensors, live)
  const small = newPool(1)
  for (const rows of [1, 2, 3])
    through(
      small,
      Array.from({ length: rows }, () => phrases[0]!),
    )
  assert.equal(small.size, 1)
  small.clear()
  assert.equal(memory().tensors, live)
})

test('rows that continue one prompt take over its columns, padding included', () => {
  const pool = newPool()
  const samples = [0, 0, 1, 1, 1]
  const scores = (open: (start: DecodeStart) => Decoding) =>
    noGrad(() =>
      tidy(() => {
        const { cache, valid, columns, next } = prefill(model, region, 9)
        const rows = int64Tensor(samples)
        const seen = valid!.indexSelect(0, rows)
        const decoding = open({ cache, rows, valid: seen, columns, next: samples.map((b) => next[b]!) })
        const out = tokens.map((id) => decoding.run(samples.map((_, r) => id + r)).logits)
        decoding.dispose()
        cache.dispose()
        return out.flatMap((t) => t.numbers())
      }),
    )
  const recorded = scores((start) => {
    const state = pool.take(decoder, samples.length, start.columns + 8)
    state.begin(start)
    return { run: (ids) => state.run(ids), dispose: () => pool.release(state) }
  })
  near(
    recorded,
    scores((start) => openDecoding(decoder, start, 8)),
  )
  pool.clear()
})

test('a state that draws by itself says what draws of the host say, greedily, by numbers, and without the ids it must not', () => {
  const pool = newPool()
  const first = [5, 6]
  const steps = 18 // more than a look
  const numbers = Float64Array.from({ length: steps * first.length }, (_, i) => stream(3).uniformAt(i))
  const never = [1, 2, 3, 7]
  for (const plan of [
    { temperature: null, never: [] },
    { temperature: 0.7, never },
    { temperature: null, never },
  ]) {
    const bare = (t: Tensor) => (plan.never.length > 0 ? suppress(t, int64Tensor(never)) : t)
    const host = noGrad(() =>
      tidy(() => {
        const start = prefill(model, region, steps + 1)
        const decoding = openDecoding(decoder, { ...start, rows: null }, steps)
        let ids: readonly number[] = first
        const out = Array.from({ length: steps }, (_, t) => {
          const { hidden, logits } = decoding.run(ids)
          const all = logits.div(plan.temperature ?? 1)
          const u = numbers.subarray(t * first.length, (t + 1) * first.length)
          const chosen = plan.temperature === null ? greedyTokens(bare(all)) : sampleTokens(bare(all), u)
          ids = chosen.numbers()
          const at = (scores: Tensor) => scores.logSoftmax(-1).gather(-1, chosen.unsqueeze(-1)).numbers()
          return { ids, logps: at(all), drawn: at(bare(all)), hidden: hidden.numbers() }
        })
        decoding.dispose()
        start.cache.dispose()
        return out
      }),
    )
    const device = noGrad(() =>
      tidy(() => {
        const start = prefill(model, region, 0)
        const state = pool.take(decoder, first.length, start.columns + steps)
        state.begin({ ...start, rows: null }, { plan, first })
        start.cache.dispose()
        const given = (from: number, to: number) => (plan.temperature === null ? null : numbers.slice(2 * from, 2 * to))
        state.start(16, given(0, 16))
        const early = state.look(16)
        state.start(1, given(16, 18)) // in the places of the first of them, before they are read
        const looks = [early()]
        state.start(1, null)
        looks.push(state.look(2)())
        pool.release(state)
        return looks.map(({ hidden, ...rest }) => ({ ...rest, hidden: hidden.numbers() }))
      }),
    )
    const flat = (key: 'ids' | 'logps' | 'drawn' | 'hidden') => host.flatMap((step) => step[key])
    assert.deepEqual(
      device.flatMap((look) => look.ids),
      flat('ids'),
    )
    near(
      device.flatMap((look) => look.logps),
      flat('logps'),
    )
    near(
      device.flatMap((look) => look.drawnLogps),
      flat('drawn'),
    )
    near(
      device.flatMap((look) => look.hidden),
      flat('hidden'),
    )
  }
  assert.equal(recordings, 3)
  pool.clear()
})

test('a state by kernels serves the same rows of prompts with less room, never with more', () => {
  const have = { rows: 16, prompts: 4, share: 4, room: 1280, ownRoom: 128 }
  assert.ok(hasRoomFor(have, { ...have, room: 1024, ownRoom: 64 }), 'shorter prompts and answers')
  for (const other of [{ rows: 8 }, { prompts: 16 }, { share: 1 }, { room: 1281 }, { ownRoom: 192 }])
    assert.ok(!hasRoomFor(have, { ...have, ...other }), `${JSON.stringify(other)} is another shape`)
})
