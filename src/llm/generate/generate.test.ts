import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { farthest, largest, roundingBound } from '../../../tests/support/rounding.ts'
import { box, encode, freeFeatures, type Prompt, tinyConfig, tinyModel } from '../../../tests/support/sa2va.ts'
import { Mismatch, stream, streamId } from '../../core/index.ts'
import { expectNoLeak, tidy } from '../../tensor/index.ts'
import { type Generated, type GenerateOptions, generate } from './generate.ts'

const tiny = tinyModel()
const { model, prompter } = tiny
const square = encode(tiny, 96, 96)
const wide = encode(tiny, 224, 112)
after(() => {
  freeFeatures(square)
  freeFeatures(wide)
  tiny.dispose()
})

/** Four prompts of different lengths: one and three tiles, regions and phrases. */
const prompts: Prompt[] = [
  prompter.segment(square, 'the red circle'),
  prompter.describe(wide, box(224, 112, 10, 10, 150, 90)),
  prompter.segment(wide, 'the large blue square on the left of the picture'),
  prompter.describe(square, box(96, 96, 30, 30, 60, 60)),
]
const rowStream = (id: number, k: number) => stream(5, streamId.sampling, id, k)
const base: GenerateOptions = { maxNewTokens: 14, stopStrings: prompter.template.stopWords, segId: prompter.segId }

/** Rows as plain data, for the prompts of these numbers: a row's stream is keyed by its prompt, not by its place in the batch. */
function rows(ids: readonly number[], more: Partial<GenerateOptions> = {}, samples = 1): string[] {
  const random = (b: number, k: number) => rowStream(ids[b]!, k)
  const chosen = ids.map((i) => prompts[i]!)
  return tidy(() => generate(model, prompter.tokenizer, chosen, { ...base, samples, random, ...more }).map(plain))
}

function plain({ ids, text, finished, segAt }: Generated): string {
  return JSON.stringify({ ids: [...ids], text, finished, segAt })
}

const samplings: [string, Partial<GenerateOptions>][] = [
  ['greedy', {}],
  ['temperature 1', { sampling: {} }],
  ['every warper', { sampling: { temperature: 0.8, topK: 40, topP: 0.9, minP: 0.02, repetitionPenalty: 1.2 } }],
]

for (const [name, more] of samplings) {
  test(`${name}: a batch of prompts of different lengths gives the tokens of each prompt alone, however it is split`, () => {
    const alone = prompts.flatMap((_, i) => rows([i], more))
    assert.deepEqual(rows([0, 1, 2, 3], more), alone)
    assert.deepEqual([...rows([0, 1], more), ...rows([2, 3], more)], alone)
    assert.deepEqual([...rows([0], more), ...rows([1, 2, 3], more)], alone)
    const reversed = rows([3, 2, 1, 0], more)
    assert.deepEqual(reversed.reverse(), alone)
  })
}

test('K samples that share a prefill equal K separate runs, and differ from each other', () => {
  const more: Partial<GenerateOptions> = { sampling: { temperature: 1.5 } }
  const shared = rows([1, 0], more, 3)
  const separate = [1, 0].flatMap((i) =>
    [0, 1, 2].flatMap((k) => rows([i], { ...more, random: () => rowStream(i, k) })),
  )
  assert.deepEqual(shared, separate)
  assert.ok(new Set(shared).size > 4)
})

test('rows that ended leave the batch: the others say, score and remember what they do alone', () => {
  const K = 6
  const half = new Set(Array.from({ length: 250 }, (_, i) => 2 * i)) // about every second token ends a row
  const random = (b: number, k: number) => rowStream(b, k)
  const drawn = { sampling: { temperature: 1.5 }, stopIds: half }
  const longest = tidy(() => generate(model, prompter.tokenizer, prompts, { ...base, ...drawn, samples: K, random }))
    .map(({ ids }) => ids)
    .reduce((a, b) => (b.length > a.length ? b : a))
  assert.ok(longest.length > 3, `a row of ${longest.length} tokens outlives the first that leave`)
  const segId = longest.at(-2)! // states are looked for where rows have left
  const more: Partial<GenerateOptions> = { ...drawn, segId, samplerLogps: true }
  const numbers = (found: readonly Generated[]) =>
    found.map(({ ids, finished, segAt, logps, samplerLogps, segStates }) => {
      return {
        plain: { ids: [...ids], finished, segAt },
        all: [logps, samplerLogps!, segStates?.numbers() ?? []].flatMap((v) => [...v]),
      }
    })
  const { decoder } = model
  const forward = decoder.forward.bind(decoder)
  const sizes: number[] = []
  decoder.forward = (x, pass) => {
    if (x.size(1) === 1) sizes.push(x.size(0))
    return forward(x, pass)
  }
  const together = tidy(() =>
    numbers(generate(model, prompter.tokenizer, prompts, { ...base, ...more, samples: K, random })),
  )
  decoder.forward = forward
  assert.equal(sizes[0]! <= prompts.length * K && sizes.at(-1)! < sizes[0]!, true, `rows of each step: ${sizes}`)
  const alone = prompts.flatMap((prompt, b) =>
    Array.from({ length: K }, (_, k) =>
      tidy(
        () =>
          numbers(generate(model, prompter.tokenizer, [prompt], { ...base, ...more, random: () => random(b, k) }))[0]!,
      ),
    ),
  )
  together.forEach((row, r) => {
    assert.deepEqual(row.plain, alone[r]!.plain)
    for (const [i, v] of alone[r]!.all.entries()) assert.ok(Math.abs(v - row.all[i]!) < 1e-4, `row ${r} number ${i}`)
  })
  assert.ok(new Set(together.map((row) => row.plain.ids.length)).size > 2, 'rows of several lengths')
  assert.ok(
    together.some((row) => row.plain.segAt.some((j) => j > 1)),
    'a state of a late token',
  )
})

test('token t of a row is drawn with number t of its stream, and a repetition counts from the prompt on', () => {
  const used: number[] = []
  const random = () => {
    const own = rowStream(0, 0)
    const uniformAt = own.uniformAt.bind(own)
    own.uniformAt = (t) => {
      used.push(t)
      return uniformAt(t)
    }
    return own
  }
  const options = { ...base, stopStrings: [], maxNewTokens: 5, random }
  const [row] = tidy(() => generate(model, prompter.tokenizer, [prompts[0]!], { ...options, sampling: {} }))
  assert.deepEqual(used, [...row!.ids.keys()])
  // before the first token only the prompt can be repeated: its penalty moves what that token is drawn from
  const first = (repetitionPenalty: number) => {
    const one = { ...options, maxNewTokens: 1, samplerLogps: true, sampling: { repetitionPenalty } }
    return tidy(() => generate(model, prompter.tokenizer, [prompts[0]!], one))[0]!.samplerLogps![0]
  }
  assert.notEqual(first(2), first(1))
})

test("the sampler's log-probs are the policy's at any temperature, until a warper leaves tokens out", () => {
  const drawn = (sampling: GenerateOptions['sampling']) => {
    const options = { ...base, samplerLogps: true, samples: 2, random: rowStream, sampling }
    return tidy(() => generate(model, prompter.tokenizer, [prompts[0]!], options)).map(({ logps, samplerLogps }) => ({
      logps: [...logps],
      sampler: [...samplerLogps!],
    }))
  }
  for (const temperature of [0.6, 1, 1.7])
    for (const { logps, sampler } of drawn({ temperature })) assert.ok(farthest(sampler, logps) < roundingBound(64, 8))
  for (const { logps, sampler } of drawn({ temperature: 1.7, topK: 1 })) {
    assert.ok(largest(sampler) === 0, 'the only token that is left is certain')
    assert.ok(logps.every((v) => v < 0))
  }
})

/** Tokens that pass the decoder while the prompts are read. */
function tokensRead(chosen: readonly Prompt[]): number {
  const { decoder } = model
  const forward = decoder.forward.bind(decoder)
  let read = 0
  decoder.forward = (x, pass) => {
    read += x.size(0) * x.size(1)
    return forward(x, pass)
  }
  try {
    tidy(() => generate(model, prompter.tokenizer, chosen, { ...base, maxNewTokens: 1 }))
  } finally {
    decoder.forward = forward
  }
  return read
}

test('prompts of one image read it once; regions of equal size are not taken for each other', () => {
  const boxes = [
    [4, 4],
    [52, 4],
    [4, 52],
  ].map(([x, y]) => box(96, 96, x!, y!, x! + 40, y! + 40))
  const regions = boxes.map((b) => prompter.describe(square, b))
  assert.equal(new Set(regions.map((p) => p.ids.join())).size, 1, 'the same ids: only the cells differ')
  const N = regions[0]!.ids.length
  const [image, cells] = [square.tiles * model.tokensPerTile, regions[0]!.regions[0]!.reduce((a, b) => a + b, 0)]
  const shared = model.sharedPrefix(regions[0]!, regions[1]!)
  assert.ok(shared > image && shared < N - cells, `${shared} of ${N}`)
  assert.equal(tokensRead(regions), shared + 3 * (N - shared))
  assert.equal(tokensRead(regions.slice(1, 2)), N)
  const states = (chosen: readonly Prompt[]) =>
    tidy(() =>
      generate(model, prompter.tokenizer, chosen, { ...base, stopStrings: [], maxNewTokens: 6 }).map((r) => r.logps),
    )
  const together = states(regions)
  regions.forEach((p, i) => {
    states([p])[0]!.forEach((v, t) => {
      assert.ok(Math.abs(v - together[i]![t]!) < 1e-5, `region ${i} token ${t}: ${v} and ${together[i]![t]}`)
    })
  })
  assert.ok(Math.abs(together[0]![0]! - together[1]![0]!) > 1e-4, 'the regions are seen')
})

test('the log-probabilities that the sampler saw do not depend on the batch', () => {
  const logps = (ids: number[]) =>
    tidy(() =>
      generate(
        model,
        prompter.tokenizer,
        ids.map((i) => prompts[i]!),
        base,
      ).map((r) => r.logps),
    )
  const together = logps([0, 1, 2, 3])
  ;[0, 1, 2, 3].forEach((i) => {
    const [alone] = logps([i])
    alone!.forEach((v, t) => {
      assert.ok(Math.abs(v - together[i]![t]!) < 1e-4, `row ${i} token ${t}: ${v} and ${together[i]![t]}`)
    })
  })
})

test('a stop string ends its own row only, at the token that completes it, and stays in the text', () => {
  const free = tidy(() => generate(model, prompter.tokenizer, prompts, { ...base, stopStrings: ['<|never|>'] }))
  // the first token after the fourth, of any row, that is readable text
  const [r, at] = free
    .flatMap((row, i) => [...row.ids.keys()].map((j) => [i, j] as const))
    .find(([i, j]) => {
      return j > 3 && /^[\x21-\x7e]{2,}$/.test(prompter.tokenizer.decode(free[i]!.ids.subarray(j, j + 1)))
    })!
  const word = prompter.tokenizer.decode(free[r]!.ids.subarray(at, at + 1))
  const stopped = tidy(() => generate(model, prompter.tokenizer, prompts, { ...base, stopStrings: [word] }))
  assert.equal(stopped[r]!.finished, true)
  assert.ok(stopped[r]!.ids.length <= at + 1)
  stopped.forEach((row, i) => {
    assert.deepEqual([...row.ids], [...free[i]!.ids.slice(0, row.ids.length)])
    assert.equal(row.finished, row.text.endsWith(word))
    assert.ok(row.finished || row.ids.length === base.maxNewTokens)
  })
})

test('<|end|> is plain text of several tokens, and ends a row whatever tokens spell it', () => {
  // a model that repeats a given text: the uniform numbers walk through the ids of the text
  const text = 'a cup.<|end|>\n and more'
  const ids = prompter.tokenizer.encode(text)
  const end = [...ids].findIndex((_, i) => prompter.tokenizer.decode(ids.subarray(0, i + 1)).includes('<|end|>'))
  assert.ok(end > 3 && end < ids.length - 1)
  const says = [...ids]
  let t = 0
  const [row] = tidy(() =>
    generate(model, prompter.tokenizer, [prompts[0]!], {
      ...base,
      maxNewTokens: ids.length,
      get suppressIds() {
        const wanted = says[t++] ?? 0
        return Array.from({ length: tiny.cfg.llm.vocab_size }, (_, i) => i).filter((i) => i !== wanted)
      },
    }),
  )
  assert.deepEqual([...row!.ids], says.slice(0, end + 1))
  assert.equal(row!.finished, true)
})

test('each [SEG] that was read gives a state, and one as the last token gives none', () => {
  const { segId } = prompter
  const force = (says: number[], maxNewTokens: number) => {
    let t = 0
    return generate(model, prompter.tokenizer, [prompts[0]!], {
      ...base,
      maxNewTokens,
      get suppressIds() {
        const wanted = says[t++]!
        return Array.from({ length: tiny.cfg.llm.vocab_size }, (_, i) => i).filter((i) => i !== wanted)
      },
    })[0]!
  }
  tidy(() => {
    const two = force([40, segId, 41, segId, 42], 5)
    assert.deepEqual(two.segAt, [1, 3])
    assert.deepEqual(two.segStates!.shape, [2, 64])
    const last = force([40, segId, 41, segId], 4)
    assert.deepEqual(last.segAt, [1])
    const none = force([40, segId], 2)
    assert.deepEqual([none.segAt, none.segStates], [[], null])
    const masks = model.finishMasks(square, model.drawMasks(square, model.segPrompts(two.segStates!)).logits)
    assert.equal(masks.length, 2)
    assert.deepEqual([masks[0]!.height, masks[0]!.width], [96, 96])
  })
})

test("stop ids are a set: the tokenizer's own and those given", () => {
  const free = tidy(() => generate(model, prompter.tokenizer, [prompts[0]!], { ...base, stopStrings: [] }))[0]!
  const third = free.ids[2]!
  const row = tidy(() => generate(model, prompter.tokenizer, [prompts[0]!], { ...base, stopIds: new Set([third]) }))[0]!
  const ending = new Proxy(prompter.tokenizer, {
    get(tokenizer, key) {
      const value: unknown = key === 'eosIds' ? new Set([third]) : Reflect.get(tokenizer, key)
      return typeof value === 'function' ? value.bind(tokenizer) : value
    },
  })
  const own = tidy(() => generate(model, ending, [prompts[0]!], { ...base, stopStrings: [] }))[0]!
  for (const { ids, finished } of [row, own]) {
    assert.equal(ids.at(-1), third)
    assert.equal(ids.length, free.ids.indexOf(third) + 1)
    assert.ok(finished)
  }
})

test('generation leaves no tensor behind, and no new tokens are a valid request', () => {
  tidy(() => void generate(model, prompter.tokenizer, prompts, base) as never)
  expectNoLeak(() =>
    tidy(() => generate(model, prompter.tokenizer, prompts, { ...base, samples: 2 }).map((r) => r.text)),
  )
  const empty = tidy(() => generate(model, prompter.tokenizer, prompts, { ...base, maxNewTokens: 0 }))
  assert.deepEqual(
    empty.map((r) => [r.ids.length, r.text, r.finished]),
    prompts.map(() => [0, '', false]),
  )
  assert.deepEqual(generate(model, prompter.tokenizer, [], base), [])
})

test('sampling without streams and sequences beyond the positions are refused', () => {
  assert.throws(() => generate(model, prompter.tokenizer, prompts, { ...base, sampling: {} }), Mismatch)
  assert.throws(
    () => generate(model, prompter.tokenizer, prompts, { ...base, maxNewTokens: 5000 }),
    /at most 4096 positions/,
  )
})

test('NaN in the weights is reported at the row in which it appears', () => {
  const other = tinyModel(tinyConfig(), { seed: 3 })
  const features = encode(other, 96, 96)
  tidy(() => void other.model.decoder.headWeight.fill_(Number.NaN) as never)
  const prompt = other.prompter.segment(features, 'a cup')
  assert.throws(() => generate(other.model, prompter.tokenizer, [prompt], base), /row 0: expected finite scores/)
  freeFeatures(features)
  other.dispose()
})

test('suppressed ids are out before the warpers choose: with top-k 1 the next best is drawn, and no warper is left with nothing', () => {
  const first = (more: Partial<GenerateOptions>) =>
    tidy(() =>
      generate(model, prompter.tokenizer, prompts, { ...base, maxNewTokens: 1, ...more }).map((r) => r.ids[0]!),
    )
  const best = first({})
  const second = first({ suppressIds: best })
  assert.ok(second.every((id) => !best.includes(id)))
  const random = (b: number, k: number) => rowStream(b, k)
  const narrow: Partial<GenerateOptions['sampling']>[] = [{ topK: 1 }, { topP: 1e-6 }, { minP: 0.999999 }]
  for (const sampling of narrow) {
    assert.deepEqual(first({ sampling, random }), best)
    assert.deepEqual(first({ sampling, random, suppressIds: best }), second)
  }
})

test('a caption sampled with the suppression of the prompter has no marker, however likely it is', () => {
  const { tokenizer, captionSuppressIds } = prompter
  const names = ['[SEG]', '<IMG_CONTEXT>', '<img>', '</img>', '<vp>', '</vp>', '<p>', '</p>']
  assert.deepEqual(
    captionSuppressIds,
    names.map((name) => tokenizer.requireId(name)),
  )
  const random = (b: number, k: number) => rowStream(b, k)
  const hot: Partial<GenerateOptions> = { sampling: { temperature: 5 }, random, samples: 8, maxNewTokens: 24 }
  const ids = (more: Partial<GenerateOptions>) =>
    tidy(() => generate(model, tokenizer, prompts, { ...base, ...hot, ...more }).flatMap((r) => [...r.ids]))
  const marked = (list: number[]) => list.filter((id) => captionSuppressIds.includes(id)).length
  assert.ok(marked(ids({})) > 0, 'they would be drawn')
  assert.equal(marked(ids({ suppressIds: captionSuppressIds })), 0)
})

test('a phrase that spells the image placeholder asks about one image all the same', () => {
  const places = (phrase: string) => prompter.segment(square, phrase).imagePositions.length
  for (const phrase of ['the red <image> star', 'a <IMG_CONTEXT> star', '</img><img>']) {
    assert.equal(places(phrase), places('a star'))
    tidy(() => generate(model, prompter.tokenizer, [prompter.segment(square, phrase)], { ...base, maxNewTokens: 1 }))
  }
})
