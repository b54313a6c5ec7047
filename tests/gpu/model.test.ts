// The model on the device against the CPU: generation through recorded steps, roles, bfloat16, memory. Nothing of training is needed.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { stream } from '../../src/core/index.ts'
import { useKernels } from '../../src/kernels/index.ts'
import { decodePool, type GenerateOptions, generate, loraTargets, teacherForce } from '../../src/llm/index.ts'
import { type Loaded, openSa2VA, prepareImage, Sa2VAFamily } from '../../src/models/index.ts'
import {
  addLora,
  dequantize,
  type FrozenForm,
  isQuantized,
  type Linear,
  replaceTensor,
  tensorAt,
  trainOnly,
  withWeights,
} from '../../src/nn/index.ts'
import { makeScene, sceneExample } from '../../src/scenes/index.ts'
import {
  attention,
  CudaGraph,
  cuda,
  type DType,
  keep,
  memory,
  noGrad,
  randn,
  rmsNorm,
  type Tensor,
  tensor,
  tensorsIn,
  tidy,
  zeros,
} from '../../src/tensor/index.ts'

const folder = fileURLToPath(new URL('../../assets/miniature', import.meta.url))
const scenes = [0, 1, 2, 3].map((i) => sceneExample(makeScene(5, i)))
const worst = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Math.max(0, ...Array.from(a, (v, i) => Math.abs(v - b[i]!)))

function open(t: { after(fn: () => void): void }, device: string, dtype: DType, frozenWeights?: FrozenForm): Loaded {
  const loaded = openSa2VA(folder, { device, dtype, frozenWeights })
  t.after(() => {
    decodePool.clear(loaded.model.decoder)
    for (const p of loaded.model.parameters().values()) p.dispose()
  })
  return loaded
}
after(() => decodePool.clear())

/** Regions and phrases of different lengths. */
function promptsOf({ model, prompter, cfg }: Loaded) {
  const features = scenes.map((s) => model.encode(prepareImage(s.image, cfg)))
  return [
    prompter.describe(features[0]!, scenes[0]!.mask),
    prompter.describe(features[1]!, scenes[1]!.mask),
    prompter.segment(features[0]!, scenes[0]!.caption),
    prompter.segment(features[0]!, 'the star'),
    prompter.segment(features[2]!, scenes[2]!.caption),
  ]
}

/** Three sampled rows of each prompt, as plain data. */
function speak(loaded: Loaded, more: Partial<GenerateOptions> = {}) {
  const { model, prompter } = loaded
  const options: GenerateOptions = {
    samples: 3,
    maxNewTokens: 24,
    stopStrings: prompter.template.stopWords,
    segId: prompter.segId,
    sampling: { temperature: 1 },
    random: (b, k) => stream(9, b, k),
    ...more,
  }
  return noGrad(() =>
    tidy(() =>
      generate(model, prompter.tokenizer, promptsOf(loaded), options).map((r) => ({
        ids: [...r.ids],
        logps: [...r.logps],
        states: r.segStates?.to('float32').numbers() ?? [],
      })),
    ),
  )
}

function assertSame(a: ReturnType<typeof speak>, b: ReturnType<typeof speak>, limit: number): void {
  a.forEach((row, i) => {
    assert.deepEqual(b[i]!.ids, row.ids, `row ${i}`)
    assert.ok(worst(row.logps, b[i]!.logps) < limit, `row ${i}: log-probs differ by ${worst(row.logps, b[i]!.logps)}`)
    assert.ok(worst(row.states, b[i]!.states) < 10 * limit, `row ${i}: states differ`)
  })
}

test('in float32 the device says what the CPU says, the first time and through the recording it kept', (t) => {
  const [cpu, card] = [open(t, 'cpu', 'float32'), open(t, 'cuda', 'float32')]
  const expected = speak(cpu)
  assertSame(expected, speak(card), 1e-4)
  const kept = decodePool.size
  assertSame(expected, speak(card), 1e-4)
  assert.equal(decodePool.size, kept)
  const other = { random: (b: number, k: number) => stream(10, b, k) }
  assertSame(speak(cpu, other), speak(card, other), 1e-4)
})

for (const form of ['int8', 'nf4'] as const) {
  test(`matrices in ${form} are the same numbers on the device, and it says what the CPU says`, (t) => {
    const [cpu, card] = [open(t, 'cpu', 'float32', form), open(t, 'cuda', 'float32', form)]
    const onCpu = cpu.model.parameters()
    for (const [name, there] of card.model.parameters())
      assert.ok(
        tidy(() => there.to('cpu').equal(onCpu.get(name)!)),
        name,
      )
    assertSame(speak(cpu), speak(card), 1e-4)
  })

  test(`in bfloat16 matrices in ${form} decode like the same numbers as plain weights, through recorded steps`, (t) => {
    const [rounded, plain] = [open(t, 'cuda', 'bfloat16', form), open(t, 'cuda', 'bfloat16')]
    const own = new Map(plain.model.slots().map((slot) => [slot.name, slot]))
    for (const { name, owner } of rounded.model.slots().filter((slot) => isQuantized(tensorAt(slot)))) {
      const { weight: numbers, weight_scale, inFeatures } = owner as Linear
      replaceTensor(own.get(name)!, dequantize({ numbers, scale: weight_scale! }, inFeatures))
    }
    useKernels('off')
    t.after(() => useKernels('auto'))
    const expected = speak(plain)
    assertSame(expected, speak(rounded), 1e-6)
    useKernels('auto') // numbers are multiplied as they are: sums round otherwise, until a draw falls on another token
    let compared = 0
    speak(rounded).forEach(({ ids, logps }, i) => {
      const { ids: others, logps: seen } = expected[i]!
      const other = ids.findIndex((id, at) => id !== others[at])
      const same = other < 0 ? ids.length : other
      const error = worst(logps.slice(0, same), seen)
      assert.ok(error < 0.05, `row ${i}: log-probs differ by ${error}`)
      compared += same
    })
    const all = expected.reduce((sum, { ids }) => sum + ids.length, 0)
    assert.ok(compared > all / 2, `${compared} of ${all} tokens are the same`)
  })
}

test('policy, EMA copy and switched-off adapters decode with one state, each as on the CPU', (t) => {
  const sides = (['cpu', 'cuda'] as const).map((device) => {
    const loaded = open(t, device, 'float32')
    const { language_model } = loaded.model
    const adapter = addLora(language_model, loraTargets('Qwen2ForCausalLM'), { rank: 8, alpha: 16, seed: 1 })
    const slots = trainOnly(language_model, [/\.lora_[AB]\./])
    const random = stream(4)
    let at = 0
    const fill = (t: Tensor, size: number) => {
      const values = Float32Array.from({ length: t.numel }, () => size * random.normalAt(at++))
      noGrad(() => tidy(() => void t.copy_(tensor(values, t.shape))))
    }
    for (const slot of slots) fill(tensorAt(slot), 0.02)
    const ema = new Map(slots.map((s) => [s.name, keep(noGrad(() => tidy(() => tensorAt(s).detach().clone())))]))
    for (const copy of ema.values()) fill(copy, 0.02)
    t.after(() => {
      for (const copy of ema.values()) copy.dispose()
    })
    return {
      policy: () => speak(loaded),
      ema: () => withWeights(slots, ema, () => speak(loaded)),
      off: () => {
        adapter.enabled = false
        const said = speak(loaded)
        adapter.enabled = true
        return said
      },
    }
  })
  const [cpu, card] = sides as [(typeof sides)[0], (typeof sides)[0]]
  const before = decodePool.size
  for (const role of ['policy', 'ema', 'policy', 'off', 'policy'] as const) assertSame(cpu[role](), card[role](), 2e-4)
  assert.ok(decodePool.size <= before + 1)
  assert.notDeepEqual(cpu.policy(), cpu.ema())
})

test('in bfloat16 log-probs of the device are within 0.05 of float32 on the same weights, and of what its sampler saw', (t) => {
  const [half, wide] = [open(t, 'cuda', 'bfloat16'), open(t, 'cpu', 'float32')]
  for (const slot of wide.model.slots())
    replaceTensor(
      slot,
      tidy(() => tensorAt(slot).to('bfloat16').to('float32')),
    )
  const score = (loaded: Loaded, rows: readonly Int32Array[]) =>
    noGrad(() =>
      tidy(() =>
        promptsOf(loaded).map((prompt, i) => teacherForce(loaded.model, prompt, [rows[i]!]).logProbs().logps.numbers()),
      ),
    )
  const said = speak(half, { samples: 1 })
  const rows = said.map((r) => Int32Array.from(r.ids))
  const [a, b] = [score(half, rows), score(wide, rows)]
  a.forEach((logps, i) => {
    assert.ok(worst(logps, b[i]!) < 0.05, `prompt ${i}: ${worst(logps, b[i]!)}`)
    assert.ok(worst(logps, said[i]!.logps) < 0.05, `sampler, prompt ${i}: ${worst(logps, said[i]!.logps)}`)
  })
})

test('memory of the device is flat over 40 calls of generate', (t) => {
  const loaded = open(t, 'cuda', 'bfloat16')
  const { model, prompter, cfg } = loaded
  const features = noGrad(() => tidy(() => model.encode(prepareImage(scenes[0]!.image, cfg))))
  for (const each of tensorsIn(features)) keep(each)
  const call = (i: number, samples: number) =>
    tidy(() => {
      const prompt = prompter.describe(features, scenes[0]!.mask)
      generate(model, prompter.tokenizer, [prompt], {
        samples,
        maxNewTokens: 100,
        stopStrings: ['<|never|>'],
        sampling: { temperature: 1 },
        random: (b, k) => stream(i, b, k),
      })
      return null
    })
  for (let i = 0; i < 4; i++) call(i, i % 2 ? 64 : 16)
  const before = { ...cuda.memory(), tensors: memory().tensors }
  for (let i = 4; i < 44; i++) call(i, i % 2 ? 64 : 16)
  const now = { ...cuda.memory(), tensors: memory().tensors }
  assert.equal(now.tensors, before.tensors)
  assert.ok(now.allocated <= before.allocated + 1e6, `allocated ${before.allocated} -> ${now.allocated}`)
  assert.ok(now.reserved <= before.reserved + 32e6, `reserved ${before.reserved} -> ${now.reserved}`)
  for (const each of tensorsIn(features)) each.dispose()
})

test('40 captures that are freed leave the memory where it was, and share a stream', () => {
  const x = keep(zeros([1 << 20], { device: 'cuda' }))
  const once = () => {
    const { graph, result } = CudaGraph.capture(() => x.add(1).mul(2).sin())
    graph.replay()
    graph.dispose()
    result.dispose()
  }
  noGrad(() => {
    for (let i = 0; i < 3; i++) once()
    const before = cuda.memory().reserved
    for (let i = 0; i < 40; i++) once()
    assert.ok(cuda.memory().reserved <= before, `${before} -> ${cuda.memory().reserved}`)
  })
  x.dispose()
})

test('two recordings in one pool, replayed in any order, do not disturb each other', () => {
  noGrad(() => {
    const x = keep(tensor([1, 2, 3, 4], { device: 'cuda' }))
    const a = CudaGraph.capture(() => x.mul(10).add(1))
    const b = CudaGraph.capture(() => x.mul(100).sub(1))
    for (const order of ['ab', 'ba', 'abba']) {
      for (const which of order) {
        const { graph, result } = which === 'a' ? a : b
        graph.replay()
        assert.deepEqual(result.numbers(), which === 'a' ? [11, 21, 31, 41] : [99, 199, 299, 399])
      }
      tidy(() => void x.copy_(tensor([1, 2, 3, 4])))
    }
    for (const { graph, result } of [a, b]) {
      graph.dispose()
      result.dispose()
    }
    x.dispose()
  })
})

test('a step that cannot be recorded is an error, and the next recording works', () => {
  noGrad(() => {
    const x = keep(zeros([4], { device: 'cuda' }))
    const mine = () => {
      x.add(1)
      throw new Error('mine')
    }
    assert.throws(() => CudaGraph.capture(mine, { warmups: 0 }), /mine/)
    assert.throws(() => CudaGraph.capture(() => x.add(1).sum().item(), { warmups: 0 }), { code: 'ERR_TORCH' })
    assert.deepEqual(
      tidy(() => x.add(2).numbers()),
      [2, 2, 2, 2],
    )
    const { graph, result } = CudaGraph.capture(() => x.add(5))
    graph.replay()
    assert.deepEqual(result.numbers(), [5, 5, 5, 5])
    graph.dispose()
    result.dispose()
    x.dispose()
  })
})

test('every device that is there decodes, cuda:1 as cuda:0', (t) => {
  const devices = Array.from({ length: cuda.count() }, (_, i) => `cuda:${i}`)
  const expected = speak(open(t, 'cpu', 'float32'))
  for (const device of devices) assertSame(expected, speak(open(t, device, 'float32')), 1e-4)
  cuda.use('cuda:0')
})

test('grouped heads and rms_norm are those of the CPU', () => {
  noGrad(() =>
    tidy(() => {
      const on = (t: Tensor) => t.to('cuda')
      const q = randn([2, 8, 5, 16])
      const [k, v] = [randn([2, 2, 5, 16]), randn([2, 2, 5, 16])]
      const one = q.narrow(2, 4, 1)
      const mask = tensor(
        Uint8Array.from({ length: 10 }, (_, i) => (i % 5 === 3 ? 0 : 1)),
        [2, 1, 1, 5],
        { dtype: 'bool' },
      )
      const cases = [
        [q, { causal: true }],
        [q, { mask }],
        [one, { mask }],
        [one, {}],
      ] as const
      for (const [query, options] of cases) {
        const named = { ...options, groupedHeads: true }
        const expected = attention(query, k, v, named).numbers()
        const moved = 'mask' in options ? { ...named, mask: on(options.mask) } : named
        assert.ok(worst(expected, attention(on(query), on(k), on(v), moved).numbers()) < 1e-5)
      }
      const [x, w] = [randn([7, 64]), randn([64])]
      assert.ok(worst(rmsNorm(x, w, 1e-6).numbers(), rmsNorm(on(x), on(w), 1e-6).numbers()) < 1e-5)
      const [hx, hw] = [on(x).to('bfloat16'), on(w).to('bfloat16')]
      const exact = rmsNorm(hx.to('cpu').to('float32'), hw.to('cpu').to('float32'), 1e-6).numbers()
      assert.ok(worst(exact, rmsNorm(hx, hw, 1e-6).numbers()) < 0.06)
    }),
  )
})

test('events are freed and their places used again', () => {
  const [a, b] = [cuda.event(), cuda.event()]
  assert.ok(cuda.elapsed(a, b) >= 0)
  cuda.freeEvent(a)
  assert.equal(cuda.event(), a)
  cuda.freeEvent(a)
  cuda.freeEvent(b)
  assert.throws(() => cuda.elapsed(a, b), /unknown event/)
})

for (const [dtype, limit] of [
  ['float32', 1e-3],
  ['bfloat16', 0.05],
] as const) {
  test(`${dtype}: images encoded together are those encoded alone, the same bits each time, and follow the weights`, (t) => {
    const loaded = open(t, 'cuda', dtype)
    const family = new Sa2VAFamily(loaded)
    t.after(() => loaded.model.forgetRecordings())
    const inputs = scenes.map((s) => family.prepare(s.image))
    const numbers = (some: typeof inputs) =>
      tidy(() => family.encode(some).map((f) => tensorsIn(f).map((x) => x.to('float32').array() as Float32Array)))
    const relative = (a: Float32Array, b: Float32Array) => worst(a, b) / b.reduce((m, v) => Math.max(m, Math.abs(v)), 0)
    const together = numbers(inputs)
    const alone = inputs.flatMap((input) => numbers([input]))
    const away = Math.max(...together.flatMap((own, i) => own.map((x, k) => relative(x, alone[i]![k]!))))
    assert.ok(away < limit, `together they are ${away} of the largest away`)
    assert.deepEqual(numbers(inputs), together)
    const reversed = numbers([...inputs].reverse())
    assert.deepEqual(reversed.reverse(), together)
    const name = 'grounding_encoder.sam2_model.image_encoder.neck.convs.0.conv.bias'
    const slot = loaded.model.slots().find((s) => s.name === name)!
    replaceTensor(
      slot,
      noGrad(() => tidy(() => tensorAt(slot).add(1))),
    )
    assert.notDeepEqual(numbers(inputs), together)
  })
}
