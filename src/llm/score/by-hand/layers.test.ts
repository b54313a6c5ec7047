// Layers with a hand-written derivative against libtorch's, in float32 on the CPU: states, log-probs, gradients of every adapter and of x.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { roundingBound } from '../../../../tests/support/rounding.ts'
import {
  box,
  encode,
  fillAdapters,
  freeFeatures,
  type Tiny,
  tinyConfig,
  tinyModel,
} from '../../../../tests/support/sa2va.ts'
import { type AdapterState, addLora, isPacked, type Slot, tensorAt, trainOnly } from '../../../nn/index.ts'
import {
  backward,
  clearTape,
  expectNoLeak,
  LentMemory,
  noGrad,
  type Tensor,
  tensor,
  tidy,
} from '../../../tensor/index.ts'
import { loraTargets } from '../../model.ts'
import { type TeacherOptions, type TeacherPass, teacherForceGroups } from '../teacher.ts'
import { numWholeLayers, TrainingLayers } from './layers.ts'

interface Adapted extends Tiny {
  trained: Slot[]
  adapter: AdapterState
}

/** B is zero at the start, which would hide half of the gradient. */
function adapted(llm: Record<string, unknown> = {}, dropout = 0, only = /./): Adapted {
  const tiny = tinyModel(tinyConfig({}, llm))
  const wanted = loraTargets(tiny.cfg.llm.architectures[0]!)
  const options = { rank: 8, alpha: 24, seed: 2, dropout }
  const isTarget = (path: string) => path.startsWith('language_model.') && wanted(path) && only.test(path)
  const adapter = addLora(tiny.model, isTarget, options)
  fillAdapters(tiny.model, 10)
  return { ...tiny, adapter, trained: trainOnly(tiny.model, [/\.lora_[AB]\./, /^mlp1\./]) }
}

const tiny = adapted()
const { model, prompter, trained } = tiny
const [square, wide] = [encode(tiny, 96, 96), encode(tiny, 224, 112)]
const prompts = [
  prompter.describe(square, box(96, 96, 20, 20, 70, 70)),
  prompter.segment(wide, 'the red cup'),
  prompter.segment(square, 'a'),
]
const said = (...texts: string[]) => texts.map((t) => prompter.tokenizer.encode(t))
/** Groups of three, one and two; one completion has a single token, which is read though it predicts nothing. */
const groups = [
  said('a red cup.<|end|>', 'two', 'a large blue square on the left'),
  said('it is [SEG]'),
  said('x', 'no'),
]
after(() => {
  TrainingLayers.release(model.decoder)
  freeFeatures(square)
  freeFeatures(wide)
  tiny.dispose()
})

type Case = { prompts: typeof prompts; groups: Int32Array[][] }
/** Of one image a region with two completions, and three phrases; the other image between them. The last two begin with the same words. */
const branched: Case = {
  prompts: [
    prompts[0]!,
    prompts[2]!,
    prompts[1]!,
    ...['the dog', 'the cat'].map((words) => prompter.segment(square, words)),
  ],
  groups: [said('a red cup.<|end|>', 'two'), said('it is [SEG]'), groups[1]!, said('x', 'it is [SEG]'), said('no')],
}
/** Of both images a second question: what nobody sees of the first image lies before the second one. */
const twoImages: Case = {
  prompts: [prompts[0]!, prompts[2]!, prompts[1]!, prompter.segment(wide, 'a')],
  groups: [said('a red cup.<|end|>'), said('it is [SEG]', 'two'), groups[1]!, said('no')],
}
const shared: Case = { prompts, groups }
const apart: Case = { prompts: prompts.slice(0, 2), groups: groups.slice(0, 2) }
const single: Case = { prompts, groups: groups.map((group) => [group[0]!]) }

const pass = (of: Case, options: TeacherOptions, by = tiny) =>
  teacherForceGroups(by.model, of.prompts, of.groups, options)

/** Every token, entropy and a state with a different weight, so that nothing cancels. */
function lossOf(p: TeacherPass): Tensor {
  const weighted = (t: Tensor, phase: number) =>
    t
      .mul(
        tensor(
          Float32Array.from({ length: t.numel }, (_, i) => Math.cos(phase + 0.7 * i)),
          [...t.shape],
        ),
      )
      .sum()
  const { logps, entropies } = p.logProbs(0.7)
  return weighted(logps, 1)
    .add(weighted(entropies, 2).mul(0.3))
    .add(weighted(p.stateAt(1, 0), 3).mul(0.1))
}

interface Outcome {
  loss: number
  logps: number[]
  grads: Map<string, number[]>
}

function outcome(of: Case, options: TeacherOptions, by = tiny): Outcome {
  for (const slot of by.trained) tensorAt(slot).setGrad(null)
  return tidy(() => {
    const p = pass(of, options, by)
    const loss = lossOf(p)
    const logps = noGrad(() => p.logProbs().logps.numbers())
    backward(loss)
    clearTape()
    return { loss: loss.item(), logps, grads: gradsNow(by) }
  })
}

function gradsNow(by = tiny): Map<string, number[]> {
  return tidy(() => new Map(by.trained.map((s) => [s.name, tensorAt(s).grad()?.numbers() ?? []])))
}

// gradients of adapters are sums over tokens and features, added in another order
const anotherOrder = roundingBound(256)

function close(name: string, got: readonly number[], want: readonly number[], limit = anotherOrder): void {
  assert.equal(got.length, want.length, name)
  const largest = Math.max(...want.map(Math.abs), 1e-12)
  const worst = Math.max(...want.map((v, i) => Math.abs(v - got[i]!)))
  assert.ok(worst <= limit * largest, `${name}: ${worst} of ${largest}`)
}

function compare(got: Outcome, want: Outcome): void {
  close('loss', [got.loss], [want.loss])
  close('log-probs', got.logps, want.logps)
  assert.ok(want.grads.size > 10, `${want.grads.size} trained tensors`)
  for (const [name, expected] of want.grads) {
    assert.ok(Math.max(...expected.map(Math.abs)) > 0, `${name} has a gradient`)
    close(name, got.grads.get(name)!, expected)
  }
}

for (const [name, of] of [
  ['completions that share a prompt', shared],
  ['completions about different images', apart],
  ['one completion after each prompt', single],
  ['questions about one image', branched],
  ['questions about each of two images', twoImages],
] as const)
  test(`${name}: scores and gradients of adapters and inputs are those of the way op by op`, () => {
    const want = outcome(of, { packed: false })
    compare(outcome(of, { packed: true }), want)
    compare(outcome(of, { packed: true, checkpointing: true }), want)
  })

for (const only of [/self_attn/, /mlp/, /o_proj/])
  test(`with adapters on ${only.source} alone scores and gradients are those of the way op by op`, () => {
    const part = adapted({}, 0, only)
    const want = outcome(branched, { packed: false }, part)
    for (const checkpointing of [false, true]) compare(outcome(branched, { packed: true, checkpointing }, part), want)
    const states = (packed: boolean) =>
      noGrad(() => tidy(() => pass(shared, { packed }, part).logProbs().logps.numbers()))
    part.adapter.enabled = false
    close('adapters off', states(true), states(false))
    part.adapter.enabled = true
    for (const { fused } of part.model.decoder.module.parts.layers) {
      const packs = [fused!.attention.qkv, fused!.mlp.gateUp].filter(([first]) => !first!.lora_A)
      assert.ok(packs.every(isPacked), 'decoding leaves the weights where they are')
    }
    TrainingLayers.release(part.model.decoder)
    part.dispose()
  })

test('an image that several prompts are about is read once', () => {
  const tokens = branched.prompts.map(({ ids }) => ids.length)
  const read = branched.groups.map((group) => group.reduce((n, ids) => n + Math.max(1, ids.length - 1), 0))
  const ofImage = model.sharedPrefix(branched.prompts[0]!, branched.prompts[1]!)
  const copied = tokens[3]! - ofImage // before the second completion of prompt 3
  const whole = [...tokens, ...read].reduce((a, b) => a + b)
  const rows = noGrad(() => tidy(() => pass(branched, { packed: true }).hidden.size(0)))
  assert.equal(rows, whole - 3 * ofImage + copied)
})

test('a part of a pass has the densities of its prompts', () => {
  tidy(() => {
    const p = pass(branched, { packed: true })
    const all = p.logProbsByPrompt(0.7)
    const part = p.part(2, 2).logProbsByPrompt(0.7)
    assert.deepEqual(
      part.map(({ logps }) => logps.shape),
      all.slice(2, 4).map(({ logps }) => logps.shape),
    )
    for (const [i, { logps, entropies }] of part.entries()) {
      close('log-probs', logps.numbers(), all[2 + i]!.logps.numbers())
      close('entropies', entropies.numbers(), all[2 + i]!.entropies.numbers())
    }
    clearTape()
  })
})

test('gradients of several passes add up, also those of the two ways', () => {
  const [a, b] = [outcome(shared, { packed: false }).grads, outcome(single, { packed: false }).grads]
  for (const slot of trained) tensorAt(slot).setGrad(null)
  for (const of of [shared, single])
    tidy(() => {
      backward(lossOf(pass(of, { packed: true })))
    })
  for (const [name, got] of gradsNow())
    close(
      name,
      got,
      a.get(name)!.map((v, i) => v + b.get(name)![i]!),
    )
})

test('without adapters, as the reference, and without gradient the states are those of the way op by op', () => {
  const states = (packed: boolean) => noGrad(() => tidy(() => pass(shared, { packed }).logProbs().logps.numbers()))
  close('adapters on', states(true), states(false))
  tiny.adapter.enabled = false
  try {
    close('adapters off', states(true), states(false))
  } finally {
    tiny.adapter.enabled = true
  }
})

test('states kept in lent memory give the same gradients, and are not read once the memory is written again', () => {
  const { intermediate_size: inner, num_hidden_layers: layers } = model.decoder.cfg
  const [tokens, width] = [noGrad(() => tidy(() => pass(shared, { packed: true }).hidden.size(0))), 2 * inner + 16]
  const matrices = (memory: LentMemory) =>
    tidy(
      () =>
        memory.whole
          .view([-1, tokens * width])
          .abs()
          .sum(1)
          .numbers()
          .filter((sum) => sum > 0).length,
    )
  for (const checkpointing of [false, true]) {
    const want = outcome(shared, { packed: true, checkpointing })
    for (const count of [1, layers + 2]) {
      const shape = [tokens * width, 1] as const // whose size is a multiple of 128
      const memory = new LentMemory(new Array(count).fill(shape), { dtype: 'float32', device: 'cpu' })
      memory.whole.zero_()
      assert.deepEqual(outcome(shared, { packed: true, checkpointing }), want)
      assert.equal(matrices(memory), Math.min(count, layers), `${count} checkpointing ${checkpointing}`)
      memory.whole.zero_()
      tidy(() => backward(lossOf(pass(shared, { packed: true, checkpointing }))))
      memory.whole.zero_()
      tidy(() => void pass(shared, { packed: true, checkpointing }))
      assert.equal(matrices(memory), Math.min(count, layers), 'after backward')
      clearTape()
      memory.whole.zero_()
      assert.deepEqual(outcome(shared, { packed: true, checkpointing }), want, 'lent again')
      assert.equal(matrices(memory), Math.min(count, layers), 'also after a pass without backward')
      tidy(() => {
        for (const slot of trained) tensorAt(slot).setGrad(null)
        const loss = lossOf(pass(shared, { packed: true, checkpointing }))
        memory.whole.zero_()
        backward(loss)
        clearTape()
        assert.notDeepEqual(gradsNow(), want.grads, 'what was kept is read')
      })
      tidy(() => {
        const loss = lossOf(pass(shared, { packed: true, checkpointing }))
        memory.reclaim()
        assert.throws(() => backward(loss), /nobody samples between a pass and its backward/)
      })
      memory.dispose()
    }
  }
})

test('layers whose gate and up are in lent memory are whole beside those that memory allows', () => {
  const widths = { qkv: 2944, gateUp: 22_272 } // the 4B shape
  const at = (tokens: number, lent: number) => numWholeLayers(36, tokens, widths, lent)
  assert.deepEqual([at(2048, 0), at(2049, 0), at(7200, 0)], [36, 18, 11])
  assert.deepEqual([at(7200, 10), at(7200, 20), at(7200, 36)], [19, 28, 36])
  assert.equal(at(100_000, 2), 2, 'queries and keys of the two take more than there is')
})

test('the layers keep their weights, and a pass leaves no tensor behind', () => {
  const before = outcome(shared, { packed: false }).logps
  TrainingLayers.release(model.decoder)
  assert.deepEqual(outcome(shared, { packed: false }).logps, before)
  outcome(shared, { packed: true })
  for (const slot of trained) tensorAt(slot).setGrad(null)
  expectNoLeak(() =>
    tidy(() => {
      pass(shared, { packed: true })
      clearTape()
    }),
  )
  expectNoLeak(() => {
    tidy(() => {
      backward(lossOf(pass(shared, { packed: true })))
    })
    for (const slot of trained) tensorAt(slot).setGrad(null)
  })
})

test('other layers, weights that train, dropout and a rank that does not fit are left to the way op by op', () => {
  const covered = (other: Adapted) => {
    const yes = TrainingLayers.of(other.model.decoder, true) !== null
    TrainingLayers.release(other.model.decoder)
    other.dispose()
    return yes
  }
  assert.equal(covered(adapted()), true)
  assert.equal(covered(adapted({}, 0.1)), false)
  assert.equal(covered(adapted({}, 0, /[qv]_proj/)), false)
  assert.equal(covered(adapted({}, 0, /layers\.0\./)), false)
  assert.equal(covered(adapted({ architectures: ['Qwen3ForCausalLM'] })), false)
  const everything = adapted()
  trainOnly(everything.model, [/./])
  assert.equal(covered(everything), false)
  assert.equal(TrainingLayers.of(model.decoder), null, 'the CPU is slower this way')
})
