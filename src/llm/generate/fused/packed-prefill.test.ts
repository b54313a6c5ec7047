import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { box, encode, freeFeatures, type Prompt, tinyModel } from '../../../../tests/support/sa2va.ts'
import { packInPlace } from '../../../nn/index.ts'
import { expectNoLeak, noGrad, type Tensor, tidy } from '../../../tensor/index.ts'
import { atenElementwise } from '../../score/by-hand/elementwise.ts'
import { groupsOf, prefill } from '../plain/prefill.ts'
import { columnsOf } from './packed-cache.ts'
import { readPacked } from './packed-prefill.ts'
import { knownPrefixes } from './prefixes.ts'
import { forgetWeights } from './weights.ts'

const tiny = tinyModel()
const { model, prompter } = tiny
for (const { fused } of model.decoder.module.parts.layers) {
  packInPlace(fused!.attention.qkv)
  packInPlace(fused!.mlp.gateUp)
}
const square = encode(tiny, 96, 96)
const wide = encode(tiny, 224, 112)
after(() => {
  forgetWeights(model.decoder)
  freeFeatures(square)
  freeFeatures(wide)
  tiny.dispose()
})

const phrases = (features: typeof square, words: readonly string[]) => words.map((w) => prompter.segment(features, w))
const regions: Prompt[] = [
  prompter.describe(wide, box(224, 112, 10, 10, 150, 90)),
  prompter.describe(square, box(96, 96, 30, 30, 60, 60)),
  prompter.describe(wide, box(224, 112, 0, 0, 40, 100)),
]
const words: Prompt[] = [
  ...phrases(wide, ['the red circle']),
  ...phrases(square, ['a dog', 'the large blue square']),
  ...phrases(wide, ['it']),
]

/** Scores after each prompt, and its keys and values in order, padding left out. */
interface Read {
  logits: number[][]
  cache: number[][]
}

const rounded = (t: Tensor) => t.to('float64').numbers()

function plainly(prompts: readonly Prompt[]): Read {
  return noGrad(() =>
    tidy(() => {
      const { cache: read, logits, columns } = prefill(model, prompts, 0)
      const cache = columnsOf(read)
      const own = (t: Tensor, b: number) =>
        rounded(t.select(0, b).narrow(1, columns - prompts[b]!.ids.length, prompts[b]!.ids.length))
      const alone = prompts.length === 1
      const got = {
        logits: prompts.map((_, b) => rounded(logits.select(0, b))),
        cache: alone ? prompts.map((_, b) => [...cache.keys, ...cache.values].flatMap((t) => own(t, b))) : [],
      }
      cache.dispose()
      return got
    }),
  )
}

function packed(prompts: readonly Prompt[]): Read {
  return noGrad(() =>
    tidy(() => {
      const { cache: read, lengths, last } = readPacked(model, prompts, groupsOf(model, prompts), atenElementwise)!
      const cache = columnsOf(read)
      read.dispose()
      const logits = model.decoder.logits(last)
      const own = (t: Tensor, b: number) => rounded(t.select(0, b).narrow(1, 0, lengths[b]!))
      const got = {
        logits: prompts.map((_, b) => rounded(logits.select(0, b))),
        cache: prompts.map((_, b) => [...cache.keys, ...cache.values].flatMap((t) => own(t, b))),
      }
      cache.dispose()
      return got
    }),
  )
}

/** Each prompt read alone, op by op. */
const alone = (prompts: readonly Prompt[]): Read => {
  const each = prompts.map((p) => plainly([p]))
  return { logits: each.flatMap((r) => r.logits), cache: each.flatMap((r) => r.cache) }
}

function near(got: Read, want: Read): void {
  const worst = (a: readonly number[][], b: readonly number[][]) => {
    assert.deepEqual(
      a.map((row) => row.length),
      b.map((row) => row.length),
    )
    return Math.max(...a.map((row, r) => row.reduce((most, v, i) => Math.max(most, Math.abs(v - b[r]![i]!)), 0)))
  }
  assert.ok(worst(got.logits, want.logits) < 2e-4, `logits differ by ${worst(got.logits, want.logits)}`)
  assert.ok(worst(got.cache, want.cache) < 2e-4, `keys and values differ by ${worst(got.cache, want.cache)}`)
}

for (const [name, prompts] of [
  ['one prompt', regions.slice(0, 1)],
  ['prompts of different images', regions.slice(0, 2)],
  ['several regions of an image', regions],
  ['several phrases of two images', words],
  ['a phrase between two regions of its image', [regions[0]!, words[0]!, regions[2]!]],
  ['the same prompt twice', [words[0]!, words[0]!]],
] as const) {
  test(`packed, ${name}: scores, keys and values are those of each prompt read alone`, () => {
    near(packed(prompts), alone(prompts))
  })
}

test('what one call read of an image serves the next ones, until the weights may change', () => {
  const want = [alone(words), alone(regions)]
  let reads = 0
  const counted = {
    ...atenElementwise,
    rotate: (...args: Parameters<typeof atenElementwise.rotate>) => {
      reads += args[0].size(0)
      atenElementwise.rotate(...args)
    },
  }
  const tokens = (prompts: readonly Prompt[]) => {
    reads = 0
    noGrad(() => tidy(() => readPacked(model, prompts, groupsOf(model, prompts), counted)!.cache.dispose()))
    return reads / model.decoder.module.parts.layers.length
  }
  const fresh = tokens(regions)
  knownPrefixes.during(() => {
    near(packed(words), want[0]!)
    near(packed(regions), want[1]!)
    near(packed(regions.slice(1, 2)), alone(regions.slice(1, 2)))
    assert.ok(tokens(regions) < fresh / 2, `${tokens(regions)} tokens are read, ${fresh} without a known prefix`)
  })
  assert.equal(tokens(regions), fresh)
  knownPrefixes.during(() => {
    knownPrefixes.during(() => packed(words)) // a turn of the policy
    const otherWeights = (prompts: readonly Prompt[]) =>
      knownPrefixes.apart(() => knownPrefixes.during(() => tokens(prompts)))
    assert.equal(otherWeights(regions), fresh, 'what the policy read is not for other weights')
    assert.ok(otherWeights(regions) < fresh / 2, 'they know it in their next turn')
    assert.ok(tokens(regions) < fresh / 2, 'and so does the policy')
  })
})

test('an image that is not known among those asked about: everything is read', () => {
  knownPrefixes.during(() => {
    packed(words.slice(1, 3))
    near(packed(regions), alone(regions))
  })
})

test('nothing is leaked', () => {
  expectNoLeak(() => {
    knownPrefixes.during(() => {
      packed(words)
      packed(regions)
    })
  })
})

test('a prompt that was read before, as a whole or as the beginning of another, is answered from its last token', () => {
  knownPrefixes.during(() => {
    packed(words)
    near(packed(words.slice(0, 1)), alone(words.slice(0, 1)))
    near(packed(words), alone(words))
  })
  knownPrefixes.during(() => {
    packed(words.slice(0, 1))
    const begun = { ...words[0]!, ids: words[0]!.ids.slice(0, -4) }
    near(packed([begun]), alone([begun]))
  })
})

for (const order of [
  [0, 1, 2],
  [1, 0, 2],
  [2, 1, 0],
]) {
  test(`prompts of one image share what all of them begin with, in the order ${order}`, () => {
    const mixed = [regions[0]!, words[0]!, regions[2]!]
    const prompts = order.map((i) => mixed[i]!)
    const [group, ...others] = groupsOf(model, prompts)
    const common = (a: Prompt, b: Prompt) => a.ids.findIndex((id, i) => id !== b.ids[i])
    assert.deepEqual(others, [])
    assert.ok(group!.prefix > 0)
    assert.ok(prompts.every((p) => group!.prefix <= common(p, mixed[1]!) || p === mixed[1]))
  })
}
