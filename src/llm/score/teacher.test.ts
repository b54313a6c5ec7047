import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { roundingBound } from '../../../tests/support/rounding.ts'
import {
  box,
  encode,
  fillAdapters,
  freeFeatures,
  type Prompt,
  type Tiny,
  tinyConfig,
  tinyModel,
} from '../../../tests/support/sa2va.ts'
import { addLora, type Slot, tensorAt, trainOnly } from '../../nn/index.ts'
import { backward, expectNoLeak, int64Tensor, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { loraTargets } from '../index.ts'
import { headLogProbs, teacherForce, teacherForceGroups } from './teacher.ts'

/** A miniature with adapters that do something: B is zero at the start, which would hide half of the gradient. */
function adapted(llm: Record<string, unknown> = {}): Tiny & { trained: Slot[] } {
  const tiny = tinyModel(tinyConfig({}, llm))
  const wanted = loraTargets(tiny.cfg.llm.architectures[0]!)
  addLora(tiny.model, (path) => path.startsWith('language_model.') && wanted(path), { rank: 4, alpha: 8, seed: 2 })
  fillAdapters(tiny.model, 10)
  return { ...tiny, trained: trainOnly(tiny.model, [/\.lora_[AB]\./, /^mlp1\./]) }
}

const tiny = adapted()
const { model, prompter, trained } = tiny
const square = encode(tiny, 96, 96)
const wide = encode(tiny, 224, 112)
const prompt = prompter.describe(square, box(96, 96, 20, 20, 70, 70))
const other = prompter.segment(wide, 'the red cup')
const completions = ['a red cup.<|end|>', 'two', 'a large blue square on the left'].map((t) =>
  prompter.tokenizer.encode(t),
)
after(() => {
  freeFeatures(square)
  freeFeatures(wide)
  tiny.dispose()
})

function gradients(slots: readonly Slot[], loss: () => Tensor): Map<string, number[]> {
  for (const slot of slots) tensorAt(slot).setGrad(null)
  tidy(() => backward(loss()))
  return tidy(() => new Map(slots.map((s) => [s.name, tensorAt(s).grad()?.numbers() ?? []])))
}

function closeTo(got: Map<string, number[]>, want: Map<string, number[]>, limit: number): void {
  for (const [name, expected] of want) {
    const largest = Math.max(...expected.map(Math.abs), 1e-12)
    const worst = Math.max(...expected.map((v, i) => Math.abs(v - got.get(name)![i]!)))
    assert.equal(got.get(name)!.length, expected.length, name)
    assert.ok(worst <= limit * largest, `${name}: ${worst} of ${largest}`)
  }
}

/** Each token and each row with a different weight, so that nothing cancels. */
function weighted(logps: Tensor, firstRow = 0): Tensor {
  const [K, T] = logps.shape as [number, number]
  const w = Float32Array.from({ length: K * T }, (_, i) => Math.cos(1 + 7 * (firstRow + Math.floor(i / T)) + (i % T)))
  return logps.mul(tensor(w, [K, T])).sum()
}

function alone(p: Prompt, k: number): { logps: Tensor; entropies: Tensor } {
  return teacherForce(model, p, [completions[k]!]).logProbs(0.7)
}

test('completions packed after one prompt score as they do alone, log-probs and entropies', () => {
  tidy(() => {
    const packed = teacherForce(model, prompt, completions).logProbs(0.7)
    completions.forEach((ids, k) => {
      const own = alone(prompt, k)
      for (const which of ['logps', 'entropies'] as const) {
        const [a, b] = [packed[which].numbers(), own[which].numbers()]
        const T = packed[which].size(1)
        for (const j of ids.keys()) assert.ok(Math.abs(a[k * T + j]! - b[j]!) < 2e-5, `${which} ${k} ${j}`)
        for (let j = ids.length; j < T; j++) assert.equal(a[k * T + j], 0)
      }
    })
  })
})

test('gradients of the packed pass, adapters and mlp1, equal those of separate passes', () => {
  const packed = gradients(trained, () => weighted(teacherForce(model, prompt, completions).logProbs(0.7).logps))
  const apart = gradients(trained, () =>
    completions.map((_, k) => weighted(alone(prompt, k).logps, k)).reduce((sum, t) => sum.add(t)),
  )
  assert.ok(packed.get('mlp1.1.weight')!.some((v) => v !== 0))
  closeTo(packed, apart, 2e-5)
})

test('rows of different prompts score as each does alone', () => {
  const pairs: [Prompt, number][] = [
    [prompt, 0],
    [other, 2],
    [other, 1],
  ]
  tidy(() => {
    const all = teacherForceGroups(
      model,
      pairs.map(([p]) => p),
      pairs.map(([, k]) => [completions[k]!]),
    ).logProbs(0.7).logps
    pairs.forEach(([p, k], r) => {
      const own = alone(p, k).logps.numbers()
      const row = all.select(0, r).numbers()
      for (const j of completions[k]!.keys()) assert.ok(Math.abs(row[j]! - own[j]!) < roundingBound(64, 8), `${r} ${j}`)
    })
  })
})

test('groups of different prompts in one pass score, remember and differentiate as each does alone', () => {
  const groups: [Prompt, number[]][] = [
    [prompt, [0, 1, 2]],
    [other, [2]],
    [prompt, [1, 1]],
  ]
  const of = (ks: readonly number[]) => ks.map((k) => completions[k]!)
  const together = () =>
    teacherForceGroups(
      model,
      groups.map(([p]) => p),
      groups.map(([, ks]) => of(ks)),
    )
  const firstOf = (g: number) => groups.slice(0, g).reduce((n, [, ks]) => n + ks.length, 0)
  tidy(() => {
    const pass = together()
    const all = pass.logProbsByPrompt(0.7)
    groups.forEach(([p, ks], g) => {
      const alone = teacherForce(model, p, of(ks))
      const own = alone.logProbs(0.7)
      for (const which of ['logps', 'entropies'] as const) {
        assert.deepEqual(all[g]![which].shape, own[which].shape)
        const [a, b] = [all[g]![which].numbers(), own[which].numbers()]
        for (const [i, v] of b.entries())
          assert.ok(Math.abs(a[i]! - v) < roundingBound(64, 8), `${which} ${g} ${i}: ${a[i]} and ${v}`)
      }
      const states = pass.statesAt(ks.map((_, k) => ({ k: firstOf(g) + k, j: 0 }))).numbers()
      const expected = ks.flatMap((_, k) => alone.stateAt(k, 0).numbers())
      for (const [i, v] of expected.entries())
        assert.ok(Math.abs(states[i]! - v) < roundingBound(64, 4), `state ${g} ${i}`)
    })
  })
  const loss = (parts: readonly Tensor[]) =>
    parts.map((logps, g) => weighted(logps, firstOf(g))).reduce((sum, t) => sum.add(t))
  const packed = gradients(trained, () =>
    loss(
      together()
        .logProbsByPrompt(0.7)
        .map((g) => g.logps),
    ),
  )
  const apart = gradients(trained, () =>
    loss(groups.map(([p, ks]) => teacherForce(model, p, of(ks)).logProbs(0.7).logps)),
  )
  closeTo(packed, apart, 2e-5)
})

test('a loss of scores and states together has the gradient of both', () => {
  const of = (part: 'scores' | 'states' | 'both') =>
    gradients(trained, () => {
      const pass = teacherForce(model, prompt, completions)
      const scores = weighted(pass.logProbs().logps)
      const states = weighted(pass.statesAt(completions.map((_, k) => ({ k, j: -1 })))).mul(0.1)
      return part === 'both' ? scores.add(states) : part === 'scores' ? scores : states
    })
  const [scores, states] = [of('scores'), of('states')]
  const sum = new Map([...scores].map(([name, values]) => [name, values.map((v, i) => v + states.get(name)![i]!)]))
  closeTo(of('both'), sum, 1e-5)
})

test('recomputing layers in backward gives the same gradients', () => {
  const loss = (checkpointing: boolean) => () =>
    weighted(teacherForce(model, prompt, completions, { checkpointing }).logProbs().logps)
  closeTo(gradients(trained, loss(true)), gradients(trained, loss(false)), 1e-6)
})

test('scores in chunks have the gradient of scores at once, for any chunk', () => {
  const rows = 7
  const hidden = (): Tensor =>
    tensor(
      Float32Array.from({ length: rows * 64 }, (_, i) => Math.sin(i * 1.3)),
      [rows, 64],
    ).requiresGrad_()
  const ids = [3, 100, 7, 7, 250, 496, 0]
  const run = (chunk: number | null) =>
    tidy(() => {
      const h = hidden()
      const index = int64Tensor(ids)
      const head = model.decoder.headWeight
      if (chunk === null) {
        const logp = h.linear(head.detach()).div(0.9).logSoftmax(-1)
        const chosen = logp.gather(-1, index.unsqueeze(-1)).squeeze(-1)
        const entropy = logp.exp().mul(logp).sum(-1).neg()
        backward(mixed(chosen).add(mixed(entropy).mul(0.3)))
        return [chosen.numbers(), entropy.numbers(), h.grad()!.numbers()]
      }
      const both = headLogProbs(model.decoder, h, index, 0.9, chunk * 497)
      backward(mixed(both.select(0, 0)).add(mixed(both.select(0, 1)).mul(0.3)))
      return [both.select(0, 0).numbers(), both.select(0, 1).numbers(), h.grad()!.numbers()]
    })
  const plain = run(null)
  for (const chunk of [1, 2, 3, 100]) {
    run(chunk).forEach((list, part) => {
      const scale = Math.max(...plain[part]!.map(Math.abs))
      for (const [i, v] of list.entries())
        assert.ok(Math.abs(v - plain[part]![i]!) <= 2e-6 * scale, `chunk ${chunk} part ${part} ${i}`)
    })
  }
})

function mixed(t: Tensor): Tensor {
  return t.mul(tensor(Float32Array.from({ length: t.numel }, (_, i) => 1 + ((i * 5) % 7)))).sum()
}

test('the entropy gradient is the slope of finite differences', () => {
  const index = tensor(BigInt64Array.from([5n, 9n]))
  const start = Float32Array.from({ length: 128 }, (_, i) => Math.cos(i * 0.7) / 2)
  const entropy = (h: Tensor) => headLogProbs(model.decoder, h, index, 1, 497).select(0, 1).sum()
  const grad = tidy(() => {
    const h = tensor(start, [2, 64]).requiresGrad_()
    backward(entropy(h))
    return h.grad()!.numbers()
  })
  const along = Math.hypot(...grad)
  const direction = grad.map((g) => g / along)
  const at = (eps: number) =>
    noGrad(() =>
      tidy(() =>
        entropy(
          tensor(
            start.map((v, i) => v + eps * direction[i]!),
            [2, 64],
          ),
        ).item(),
      ),
    )
  const slope = (at(1e-2) - at(-1e-2)) / 2e-2
  assert.ok(Math.abs(slope - along) < 2e-3 * along, `${slope} against ${along}`)
  index.dispose()
})

test('a head that is trained or adapted gets its gradient too', () => {
  const own = adapted({ architectures: ['InternLM2ForCausalLM'] })
  const features = encode(own, 96, 96)
  const p = own.prompter.segment(features, 'a cup')
  assert.equal(own.model.decoder.headIsPlain, false)
  const grads = gradients(own.trained, () => weighted(teacherForce(own.model, p, completions).logProbs().logps))
  const head = grads.get('language_model.output.lora_A.weight')!
  assert.ok(head.some((v) => v !== 0))
  freeFeatures(features)
  own.dispose()
})

test('with a tied head the scores come from the embedding', () => {
  const own = tinyModel(tinyConfig({}, { tie_word_embeddings: true }))
  assert.ok(!own.model.names().includes('language_model.lm_head.weight'))
  const features = encode(own, 96, 96)
  tidy(() => {
    const pass = teacherForce(own.model, own.prompter.segment(features, 'a cup'), [completions[0]!])
    const want = pass.hidden
      .narrow(0, pass.rowOf(0, -1), 1)
      .matmul(own.model.decoder.module.parts.embedding.weight.t())
      .logSoftmax(-1)
      .numbers()[completions[0]![0]!]!
    assert.ok(Math.abs(pass.logProbs().logps.numbers()[0]! - want) < 1e-4)
  })
  freeFeatures(features)
  own.dispose()
})

test('an answer of one token, and of none, is scored', () => {
  tidy(() => {
    const one = teacherForce(model, prompt, [Int32Array.of(7), new Int32Array(0), completions[1]!]).logProbs().logps
    const plain = teacherForce(model, prompt, [Int32Array.of(7)]).logProbs().logps
    assert.ok(Math.abs(one.numbers()[0]! - plain.item()) < 2e-5)
    assert.equal(one.select(0, 1).abs().sum().item(), 0)
  })
})

test('scoring and encoding leave no tensor behind', () => {
  const run = () => tidy(() => teacherForce(model, prompt, completions).logProbs().logps.sum().item())
  expectNoLeak(() => noGrad(run))
  expectNoLeak(() =>
    tidy(
      () =>
        void backward(
          weighted(teacherForce(model, prompt, completions, { checkpointing: true }).logProbs().logps),
        ) as never,
    ),
  )
  expectNoLeak(() => {
    const features = encode(tiny, 96, 96)
    freeFeatures(features)
  })
})

test('a sequence beyond the positions of the model is refused', () => {
  assert.throws(() => teacherForce(model, prompt, [new Int32Array(4090)]), /length: expected at most 4096 positions/)
  assert.throws(() => teacherForceGroups(model, [prompt], [[new Int32Array(4090)]]), /at most 4096 positions/)
})
