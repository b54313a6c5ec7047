// Decoding with our kernels against PyTorch ops, on small random decoders of shapes that the kernels cover.
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { inSpareTime, RandomStream, stream } from '../../src/core/index.ts'
import { DecodeKernels, kernelTarget, shareOf, useKernels } from '../../src/kernels/index.ts'
import { PackedCache } from '../../src/llm/generate/fused/packed-cache.ts'
import { roundedRows } from '../../src/llm/generate/fused/padded-rows.ts'
import { notFused, shapeOf } from '../../src/llm/generate/fused/weights.ts'
import { openAhead } from '../../src/llm/generate/open.ts'
import { prefill } from '../../src/llm/generate/plain/prefill.ts'
import {
  buildLanguageModule,
  commonIds,
  Decoder,
  decodePool,
  type GenerateOptions,
  generate,
  knownPrefixes,
  type LlmConfig,
  layerMatrices,
  loraTargets,
  notCovered,
  teacherForce,
} from '../../src/llm/index.ts'
import {
  addLora,
  dequantize,
  frozenForms,
  Linear,
  linears,
  MergedWeights,
  type QuantizedForm,
  replaceTensor,
  storeQuantized,
  tensorAt,
  withMergedLora,
  withWeights,
} from '../../src/nn/index.ts'
import { int64Tensor, noGrad, randn, tensor, tidy } from '../../src/tensor/index.ts'
import { loadTokenizer } from '../../src/text/index.ts'
import { tokenizerOf } from '../../tools/lib/checkpoint-shapes.ts'

const device = 'cuda:0'
const vocab = 1003
const base: LlmConfig = {
  architectures: ['Qwen2ForCausalLM'],
  hidden_size: 512,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 128,
  intermediate_size: 1024,
  vocab_size: vocab,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  mrope_section: [],
  mrope_interleaved: false,
  max_position_embeddings: 2048,
  tie_word_embeddings: false,
  attention_bias: true,
  output_bias: false,
  mlp_bias: false,
}
const folder = mkdtempSync(join(tmpdir(), 'roundtrip-decode-'))
writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizerOf(vocab)))
writeFileSync(join(folder, 'config.json'), '{}')
const tokenizer = loadTokenizer(folder)

function randomDecoder(more: Partial<LlmConfig> = {}) {
  const cfg = { ...base, ...more }
  const decoder = new Decoder(cfg, buildLanguageModule(cfg))
  for (const slot of decoder.module.slots()) {
    const shape = [...tensorAt(slot).shape]
    const value = () =>
      /norm/.test(slot.name) ? randn(shape, { device }).mul(0.1).add(1) : randn(shape, { device }).mul(0.03)
    replaceTensor(
      slot,
      noGrad(() => tidy(() => value().to('bfloat16'))),
    )
  }
  decoder.computeIn('bfloat16')
  return { decoder, model: speakerOf(decoder) }
}
function speakerOf(decoder: Decoder) {
  const promptEmbeddings = ({ ids }: { ids: Int32Array }) =>
    decoder.embed(int64Tensor(ids, [1, ids.length], { device }))
  return { placement: decoder.placement, decoder, promptEmbeddings }
}
type Model = ReturnType<typeof speakerOf>

/** Prompts of different lengths. */
const promptsOf = (count: number, seed = 0) =>
  Array.from({ length: count }, (_, b) => {
    const random = stream(seed, b)
    return { ids: Int32Array.from({ length: 40 + 9 * b }, () => random.below(vocab)) }
  })

function speak(model: Model, prompts: readonly { ids: Int32Array }[], more: Partial<GenerateOptions> = {}) {
  const options = { samples: 4, maxNewTokens: 40, stopStrings: [], segId: 7, sampling: { temperature: 1 } }
  const random = (b: number, k: number) => stream(9, b, k)
  return noGrad(() =>
    tidy(() =>
      generate(model, tokenizer, prompts, { ...options, random, samplerLogps: true, ...more }).map((r) => ({
        ids: [...r.ids],
        logps: [...r.logps],
        drawn: [...r.samplerLogps!],
        states: r.segStates?.to('float32').numbers() ?? [],
      })),
    ),
  )
}
/** The same weights in float32. */
function wideTwin({ decoder }: Model): Model {
  const wide = new Decoder(decoder.cfg, buildLanguageModule(decoder.cfg))
  const values = decoder.module.parameters()
  for (const slot of wide.module.slots())
    replaceTensor(
      slot,
      noGrad(() => tidy(() => values.get(slot.name)!.to('float32'))),
    )
  return speakerOf(wide)
}

function scores(model: Model, prompts: readonly { ids: Int32Array }[], said: ReturnType<typeof speak>): number[] {
  const samples = said.length / prompts.length
  const one = (ids: readonly number[], r: number) =>
    teacherForce(model, prompts[Math.floor(r / samples)]!, [Int32Array.from(ids)])
      .logProbs()
      .logps.numbers()
  return noGrad(() => said.flatMap(({ ids }, r) => tidy(() => one(ids, r))))
}

/**
 * Log-probs as the sampler saw them against those of one pass over the same tokens by torch's ops: within 0.05. Against a pass in float32
 * our kernels are not farther away than PyTorch ops are, token by token, beyond chance.
 */
function agree(name: string, model: Model, count: number, more: Partial<GenerateOptions> = {}, wide?: Model) {
  const prompts = promptsOf(count)
  const errors = (kernels: 'auto' | 'off') => {
    useKernels(kernels)
    const said = speak(model, prompts, more)
    const seen = said.flatMap(({ logps }) => logps)
    const apart = (other: Model) => scores(other, prompts, said).map((v, i) => Math.abs(v - seen[i]!))
    const same = apart(model)
    const far = apart(wide ?? model)
    assert.equal(seen.length, same.length)
    const mean = far.reduce((x, y) => x + y, 0) / far.length
    const worst = Math.max(...same)
    const [m, w] = [mean.toExponential(1), worst.toFixed(4)]
    console.log(`${name}, kernels ${kernels}: ${seen.length} tokens, worst ${w}, mean ${m}${wide ? ' of float32' : ''}`)
    return { said, mean, worst }
  }
  const [torch, ours] = [errors('off'), errors('auto')]
  assert.ok(ours.worst < 0.05, `${name}: log-probs differ by ${ours.worst}`)
  if (wide) assert.ok(ours.mean < 1.5 * torch.mean + 1e-3, `${name}: ${ours.mean}, torch's ops ${torch.mean}`)
  return ours.said
}
after(() => decodePool.clear())

const variants: Record<string, Partial<LlmConfig>> = {
  Qwen2: {},
  'Qwen3, tied': { architectures: ['Qwen3ForCausalLM'], attention_bias: false, tie_word_embeddings: true },
  'Phi-3': { architectures: ['Phi3ForCausalLM'], attention_bias: false },
  'Llama with heads of 64 and a width our products do not take': {
    architectures: ['LlamaForCausalLM'],
    attention_bias: false,
    hidden_size: 448,
    num_attention_heads: 7,
    num_key_value_heads: 1,
    head_dim: 64,
  },
}
for (const [name, cfg] of Object.entries(variants))
  test(`${name}: kernels see the log-probs that torch's ops see, at 1 to 24 rows`, () => {
    const { model } = randomDecoder(cfg)
    const rows = [
      [1, 1],
      [1, 4],
      [3, 2],
      [3, 4],
      [5, 3],
      [6, 4],
    ] as const
    const wide = wideTwin(model)
    for (const [count, samples] of rows) agree(`${count} prompts, ${samples} samples`, model, count, { samples }, wide)
    agree('greedy', model, 3, { sampling: undefined, samples: 1 }, wide)
    decodePool.clear(model.decoder)
  })

test('ids that are never drawn do not appear, and the others gain what they lose', () => {
  const { model } = randomDecoder()
  const plain = speak(model, promptsOf(3))
  const often = [...new Set(plain.flatMap((row) => row.ids))].slice(0, 100)
  const said = agree('suppressed', model, 3, { suppressIds: often })
  assert.ok(!said.some((row) => row.ids.some((id) => often.includes(id))), 'none of them')
  const gains = said.flatMap((row) => row.drawn.map((logp, i) => logp - row.logps[i]!))
  assert.ok(Math.min(...gains) > -1e-6, 'each is more likely among fewer')
  decodePool.clear(model.decoder)
})

test('the same seed gives the same bytes, and a row does not depend on what its neighbours say', () => {
  const { model } = randomDecoder()
  for (const count of [1, 3, 6]) {
    const prompts = promptsOf(count)
    const first = speak(model, prompts)
    assert.deepEqual(speak(model, prompts), first)
    const others = [prompts[0]!, ...promptsOf(count, 77).slice(1)]
    assert.deepEqual(speak(model, others).slice(0, 4), first.slice(0, 4))
  }
  decodePool.clear(model.decoder)
})

const [stopId, lastId] = [0, vocab - 1]

/** Numbers that draw `stopId` at one place, `lastId` at every seventh, and neither elsewhere. */
class Planned extends RandomStream {
  readonly #end: number | null

  constructor(end: number | null, ...key: readonly number[]) {
    super(...stream(...key).key)
    this.#end = end
  }

  override uniformAt(i: number): number {
    if (i === this.#end) return 0
    return i % 7 === 3 ? 1 - 1e-9 : 0.1 + 0.8 * super.uniformAt(i)
  }
}

/** Where a row ends: never, at once, before the first look, before the second; all of a prompt alike, or some of its samples. */
function endOf(prompts: number, b: number, k: number): number | null {
  const ends = [null, 0, 5, 20]
  return prompts === 1 || b % 5 === 4 ? ends[k]! : ends[b % 5]!
}

const wide448 = variants['Llama with heads of 64 and a width our products do not take']!
for (const [name, cfg, prompts, own, joined] of [
  ['4 rows, our products, joined', {}, 1, true, true],
  ['16 rows, our products, in parts', {}, 4, true, false],
  ['24 rows and 8 that fill up, in parts', {}, 6, false, false],
  ['64 rows, joined by pairs', {}, 16, false, true],
  ['4 rows, joined', wide448, 1, false, true],
  ['16 rows, in parts', wide448, 4, false, false],
  ['48 rows, joined', wide448, 12, false, true],
] as const)
  test(`${name}: a row says the same, bit for bit, whether its neighbours end early or never`, () => {
    useKernels('auto')
    const { model, decoder } = randomDecoder(cfg)
    const rows = roundedRows(4 * prompts)
    const share = shareOf([1, 2, 4], rows, decoder.cfg.num_key_value_heads)
    const kernels = new DecodeKernels(shapeOf(decoder), { rows, share }, device)
    const { clusters } = kernelTarget()
    assert.deepEqual([kernels.own, kernels.joinsWhole], [clusters && own, clusters && joined])
    const said = (stopIds: readonly number[]) =>
      speak(model, promptsOf(prompts), {
        maxNewTokens: 60,
        segId: lastId,
        stopIds: new Set(stopIds),
        random: (b, k) => new Planned(endOf(prompts, b, k), 9, b, k),
      })
    const never = said([])
    const cut = never.map(({ ids, logps, drawn, states }, r) => {
      const end = endOf(prompts, Math.floor(r / 4), r % 4) ?? 59
      const read = ids.slice(0, end).filter((id) => id === lastId).length * decoder.cfg.hidden_size
      return {
        ...{ ids: ids.slice(0, end + 1), logps: logps.slice(0, end + 1) },
        ...{ drawn: drawn.slice(0, end + 1), states: states.slice(0, read) },
      }
    })
    assert.deepEqual([never[0]!.ids.length, never[0]!.states.length], [60, 8 * decoder.cfg.hidden_size])
    for (const round of [1, 2]) {
      const early = said([stopId])
      early.forEach((row, r) => {
        assert.deepEqual(row, cut[r], `row ${r}, round ${round}`)
      })
    }
    assert.deepEqual(said([]), never, 'rows that were closed open again')
    decodePool.clear(decoder)
  })

test('rows of closed units draw nothing, those beside an open one do; a look leaves out steps started before it', () => {
  useKernels('auto')
  const { model, decoder } = randomDecoder()
  const prompts = promptsOf(6).flatMap((p) => [p, p, p, p])
  const ids = (closed: readonly number[], lead = 0) =>
    noGrad(() =>
      tidy(() => {
        const { logits: _, ...start } = prefill(model, prompts, 0)
        const rows = tensor(
          Int32Array.from(prompts, (__, r) => r - (r % 4)),
          { device },
        )
        const first = prompts.map(() => 11)
        const plan = { temperature: 1, never: [] }
        const decoding = openAhead(decoder, { ...start, rows }, 40, { plan, first })
        const numbers = [1, 2].map((i) => Float64Array.from({ length: 16 * 24 }, (__, at) => stream(i).uniformAt(at)))
        const whole = first.map(() => true)
        decoding.start(16, numbers[0]!, whole)
        const look = decoding.look(16)
        if (lead > 0) decoding.start(lead, numbers[1]!, whole)
        const before = look().ids
        const open = whole.map((__, r) => !closed.includes(r))
        decoding.start(16 - lead, lead > 0 ? null : numbers[1]!, open)
        const after = decoding.look(16)().ids
        decoding.dispose()
        start.cache.dispose()
        return { before, after }
      }),
    )
  const all = ids([])
  const some = ids([0, 1, 3, 22, 23]) // 24 rows are filled up to 32: units of 2
  assert.deepEqual(some.before, all.before)
  assert.deepEqual(ids([], 3), all, 'steps that are started before the look')
  all.after.forEach((id, at) => {
    const row = at % 24
    assert.equal(some.after[at], [0, 1, 22, 23].includes(row) ? all.before[at] : id, `row ${row}`)
  })
  decodePool.clear(decoder)
})

/** What the first call of each case says, alone in the pool. */
function saidAlone(model: Model, cases: readonly (readonly { ids: Int32Array }[])[]) {
  return cases.map((prompts) => {
    const said = speak(model, prompts)
    decodePool.clear(model.decoder)
    return said
  })
}

test('states of several shapes share the memory of their caches, which grows, and none sees what another left', () => {
  useKernels('auto')
  const { model, decoder } = randomDecoder()
  const long = { ids: Int32Array.from({ length: 700 }, (_, i) => (i * 31) % vocab) }
  const cases = [promptsOf(1), promptsOf(3), [long, ...promptsOf(2, 5)], promptsOf(6)]
  const alone = saidAlone(model, cases)
  for (const round of [1, 2, 3])
    cases.forEach((prompts, i) => {
      assert.deepEqual(speak(model, prompts), alone[i], `case ${i}, round ${round}`)
    })
  decodePool.clear(decoder)
})

test('a state that is taken while another decodes has its own memory', () => {
  useKernels('auto')
  const { model, decoder } = randomDecoder()
  const size = { rows: 4, prompts: 4, share: 1, room: 256, ownRoom: 64 }
  const alone = speak(model, promptsOf(3))
  const busy = decodePool.takeFused(decoder, size)
  const other = decodePool.takeFused(decoder, size)
  assert.notEqual(busy.memory, other.memory)
  assert.deepEqual(speak(model, promptsOf(3)), alone)
  decodePool.release(other)
  decodePool.release(busy)
  decodePool.clear(decoder)
})

test('weights that were in another place meanwhile are read where they are', () => {
  useKernels('auto')
  const { model, decoder } = randomDecoder()
  const [first, second] = [promptsOf(1), promptsOf(3)]
  const before = [speak(model, first), speak(model, second)]
  const slot = decoder.module.slots().find((s) => s.name.endsWith('layers.0.self_attn.q_proj.bias'))!
  const own = tensorAt(slot)
  const moved = noGrad(() => tidy(() => own.add(1)))
  withWeights([slot], new Map([[slot.name, moved]]), () => {
    assert.notDeepEqual(speak(model, first), before[0])
  })
  moved.dispose()
  assert.deepEqual([speak(model, second), speak(model, first)], [before[1], before[0]])
  decodePool.clear(decoder)
})

test('rows are filled up to few numbers of them: calls that differ a little share a recording', () => {
  useKernels('auto')
  const { model, decoder } = randomDecoder()
  for (const count of [8, 7, 5, 6]) {
    const prompts = promptsOf(count)
    const said = speak(model, prompts, { samples: 1 })
    assert.equal(said.length, count)
    assert.equal(decodePool.size, 1)
    const seen = said.flatMap(({ logps }) => logps)
    const worst = Math.max(...scores(model, prompts, said).map((v, i) => Math.abs(v - seen[i]!)))
    assert.ok(worst < 0.05, `${count} rows: log-probs differ by ${worst}`)
    assert.deepEqual(speak(model, prompts, { samples: 1 }), said)
  }
  decodePool.clear(decoder)
})

test('kernels cover these decoders whatever their adapters, unless they are switched off', () => {
  const { decoder } = randomDecoder()
  addLora(decoder.module, loraTargets('Qwen2ForCausalLM'), { rank: 8, alpha: 16, seed: 1 })
  useKernels('auto')
  assert.equal(notCovered(decoder), null)
  useKernels('off')
  assert.match(notCovered(decoder)!, /kernels is off/)
  useKernels('auto')
  decodePool.clear(decoder)
})

test('merged adapters are seen anew at each call, in places that stay', () => {
  const { model, decoder } = randomDecoder()
  addLora(decoder.module, loraTargets('Qwen2ForCausalLM'), { rank: 8, alpha: 16, seed: 1 })
  const factors = decoder.module.slots().filter((s) => /lora_B/.test(s.name))
  const places = new MergedWeights()
  const fill = (size: number) => {
    for (const slot of factors)
      noGrad(() => tidy(() => void tensorAt(slot).copy_(randn([...tensorAt(slot).shape], { device }).mul(size))))
  }
  const said = [0.02, 0.05].map((size) => {
    fill(size)
    return withMergedLora(decoder.module, () => agree(`merged ${size}`, model, 2), places)
  })
  assert.notDeepEqual(said[0], said[1])
  decodePool.clear(decoder)
  places.dispose()
})

/** What quantized matrices and adapters stand for, in float32. */
function wideTwinOfQuantized({ decoder }: Model): Model {
  const wide = new Decoder(decoder.cfg, buildLanguageModule(decoder.cfg))
  const own = new Map(decoder.module.slots().map((slot) => [slot.name, slot]))
  const value = (name: string) => {
    const { owner } = own.get(name)!
    const stored = tensorAt(own.get(name)!)
    if (!(owner instanceof Linear) || !name.endsWith('.weight')) return stored.to('float32')
    const { weight_scale, inFeatures } = owner
    const plain = weight_scale
      ? dequantize({ numbers: stored, scale: weight_scale.to('float32') }, inFeatures)
      : stored.to('float32')
    const low = owner.lora_A && owner.lora_B!.weight.matmul(owner.lora_A.weight)
    return low ? plain.add(low, { alpha: owner.adapter!.scale }) : plain
  }
  for (const slot of wide.module.slots())
    replaceTensor(
      slot,
      noGrad(() => tidy(() => value(slot.name))),
    )
  return speakerOf(wide)
}

function storeMatrices(decoder: Decoder, form: QuantizedForm): void {
  const isMatrix = layerMatrices(decoder)
  for (const slot of decoder.module.slots()) if (isMatrix(slot)) storeQuantized(slot.owner as Linear, form, 'bfloat16')
}

function quantizeWithAdapters(decoder: Decoder, form: QuantizedForm): void {
  storeMatrices(decoder, form)
  addLora(decoder.module, loraTargets('Qwen2ForCausalLM'), { rank: 24, alpha: 36, seed: 1 })
  for (const slot of decoder.module.slots().filter((s) => /lora_B/.test(s.name)))
    noGrad(() => tidy(() => void tensorAt(slot).copy_(randn([...tensorAt(slot).shape], { device }).mul(0.03))))
}

for (const [form, rank] of [
  ['int8', 16],
  ['int8', 24], // not covered by the kernel that widens
  ['nf4', 32],
  ['nf4', 24],
] as const)
  test(`${form} merged with adapters of rank ${rank}: the numbers and their product within bfloat16, read by our kernels; then all is quantized again`, () => {
    useKernels('auto')
    const { model, decoder } = randomDecoder()
    storeMatrices(decoder, form)
    const isAdapted = loraTargets('Qwen2ForCausalLM')
    addLora(decoder.module, (path) => isAdapted(path) && !/k_proj|down_proj/.test(path), {
      rank,
      alpha: 1.5 * rank,
      seed: 1,
    })
    const factors = decoder.module.slots().filter((s) => /lora_B/.test(s.name))
    const stored = linears(decoder.module).map(([, linear]) => linear.weight.handle)
    const places = new MergedWeights()
    const said = [0.03, 0.06].map((size) => {
      for (const slot of factors)
        noGrad(() => tidy(() => void tensorAt(slot).copy_(randn([...tensorAt(slot).shape], { device }).mul(size))))
      const wide = wideTwinOfQuantized(model)
      return withMergedLora(
        decoder.module,
        () => {
          assert.equal(notFused(decoder), null)
          const expected = new Map(linears(wide.decoder.module))
          for (const [name, { weight, weight_scale }] of linears(decoder.module).filter(([, l]) => l.weight_scale)) {
            assert.deepEqual([weight.dtype, weight_scale!.dtype], ['bfloat16', 'bfloat16'])
            const far = tidy(() => {
              const exact = expected.get(name)!.weight.to('float64')
              return weight.to('float64').sub(exact).norm().item() / exact.norm().item()
            })
            assert.ok(far < 2 ** -8, `${name}: ${far} of its norm`)
          }
          return agree(`${form} merged, rank ${rank}, ${size}`, model, 3, {}, wide)
        },
        places,
      )
    })
    assert.notDeepEqual(said[0], said[1])
    assert.deepEqual(
      linears(decoder.module).map(([, linear]) => linear.weight.handle),
      stored,
    )
    agree(`${form} apart again`, model, 3, {}, wideTwinOfQuantized(model))
    decodePool.clear(decoder)
    places.dispose()
  })

const quantizedVariants = Object.entries<Partial<LlmConfig> & { fused?: false }>({
  ...variants,
  'InternLM2, by recorded ops': { architectures: ['InternLM2ForCausalLM'], attention_bias: false, fused: false },
}).flatMap(([name, cfg]) => [[name, cfg, 'int8'] as const, [name, cfg, 'nf4'] as const])
for (const [name, { fused, ...cfg }, form] of quantizedVariants)
  test(`${name}, matrices in ${form}: the same with adapters beside them, which are seen anew at each call`, () => {
    useKernels('auto')
    const { model, decoder } = randomDecoder(cfg)
    storeMatrices(decoder, form)
    assert.equal(notFused(decoder) === null, fused ?? true, notFused(decoder) ?? 'our kernels decode')
    agree('no adapters', model, 3, {}, wideTwinOfQuantized(model))
    addLora(decoder.module, loraTargets(decoder.cfg.architectures[0]!), { rank: 24, alpha: 36, seed: 1 })
    const factors = decoder.module.slots().filter((s) => /lora_B/.test(s.name))
    const said = [0.01, 0.03].map((size) => {
      for (const slot of factors)
        noGrad(() => tidy(() => void tensorAt(slot).copy_(randn([...tensorAt(slot).shape], { device }).mul(size))))
      const wide = wideTwinOfQuantized(model)
      for (const [count, samples, maxNewTokens] of [
        [1, 4, 40],
        [5, 3, 16],
        [10, 4, 6],
      ] as const)
        agree(`adapters ${size}, ${count} x ${samples} rows`, model, count, { samples, maxNewTokens }, wide)
      const first = speak(model, promptsOf(2))
      assert.deepEqual(speak(model, promptsOf(2)), first)
      return first
    })
    assert.notDeepEqual(said[0], said[1])
    decodePool.clear(decoder)
  })

for (const form of frozenForms)
  test(`${form} weights: prompts read packed score as those read by torch, also after a prefix that an earlier call read`, () => {
    const { decoder, model } = randomDecoder()
    if (form !== 'exact') quantizeWithAdapters(decoder, form)
    const sharedPrefix = (a: { ids: Int32Array }, b: { ids: Int32Array }) => commonIds(a.ids, b.ids)
    const sharing = { ...model, sharedPrefix }
    const [one, other] = promptsOf(2, 3) as [{ ids: Int32Array }, { ids: Int32Array }]
    const tails = promptsOf(5, 4).map(({ ids }, i) => ids.subarray(0, 1 + 17 * i))
    const behind = (p: { ids: Int32Array }, tail: Int32Array) => ({ ids: Int32Array.from([...p.ids, ...tail]) })
    const prompts = tails.flatMap((tail) => [behind(one, tail), behind(other, tail)])
    const read = (by = sharing) =>
      noGrad(() =>
        tidy(() => {
          const { cache, logits } = prefill(by, prompts, 0)
          const packed = cache instanceof PackedCache
          cache.dispose()
          return { packed, scores: logits.logSoftmax(-1).numbers() }
        }),
      )
    useKernels('off')
    const plain = read()
    useKernels('auto')
    const fresh = read()
    const known = knownPrefixes.during(() => {
      noGrad(() => tidy(() => prefill(sharing, [behind(other, tails[4]!), behind(one, tails[3]!)], 0).cache.dispose()))
      return [read(), read()]
    })
    assert.deepEqual([plain.packed, fresh.packed, known[0]!.packed], [false, true, true])
    const exact = read({ ...(form === 'exact' ? wideTwin(model) : wideTwinOfQuantized(model)), sharedPrefix })
    const far = (a: readonly number[]) => Math.hypot(...a.map((v, i) => v - exact.scores[i]!))
    // ten prompts, each rounded as often either way
    for (const [name, { scores }] of Object.entries({ fresh, 'after a known prefix': known[0]! }))
      assert.ok(far(scores) < 1.5 * far(plain.scores), `${name}: ${far(scores)}, torch's ops ${far(plain.scores)}`)
    assert.deepEqual(known[1], known[0])
    assert.deepEqual(read(), fresh)
    decodePool.clear(decoder)
  })

test('the host does other work while the device decodes, and answers are the same', () => {
  useKernels('auto')
  const { model, decoder } = randomDecoder()
  const alone = speak(model, promptsOf(2))
  const done: number[] = []
  for (let i = 0; i < 3; i++) inSpareTime(() => void done.push(i))
  assert.deepEqual(speak(model, promptsOf(2)), alone)
  assert.deepEqual(done, [2, 1, 0])
  decodePool.clear(decoder)
})
