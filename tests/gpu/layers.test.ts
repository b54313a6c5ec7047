// Layers with a custom derivative on the device in bfloat16: each kernel against the same op by op, and a whole pass against
// libtorch's derivative. Their mathematics in float32 is in src/llm/score/by-hand/layers.test.ts.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TrainingKernels, useKernels } from '../../src/kernels/index.ts'
import { commonIds, loraTargets, type PromptIds, type TeacherOptions, teacherForceGroups } from '../../src/llm/index.ts'
import { atenElementwise, type Elementwise } from '../../src/llm/score/by-hand/elementwise.ts'
import { kernelElementwise } from '../../src/llm/score/by-hand/elementwise-kernels.ts'
import { TrainingLayers } from '../../src/llm/score/by-hand/layers.ts'
import { addLora, replaceTensor, type Slot, tensorAt, trainOnly } from '../../src/nn/index.ts'
import {
  backward,
  clearTape,
  cuda,
  int64Tensor,
  noGrad,
  randn,
  type Tensor,
  tensor,
  tensorsIn,
  tidy,
} from '../../src/tensor/index.ts'
import { fillAdapters, tinyConfig, tinyModel } from '../support/sa2va.ts'

const device = 'cuda:0'
const shape = { hidden: 256, inner: 512, heads: 4, groups: 2, dim: 64 }
useKernels('auto')
const kernels = TrainingKernels.of(shape, device)
const skip = kernels ? false : 'no kernels on this device'
const random = (...size: number[]) => randn(size, { device }).to('bfloat16')

/** |a - b| / |b|, in float32. */
function distance(a: Tensor, b: Tensor): number {
  return tidy(() => {
    const [x, y] = [a.to('float32'), b.to('float32')]
    return x.sub(y).norm().item() / Math.max(y.norm().item(), 1e-9)
  })
}

/** The same call both ways, and once more: equal within bfloat16's rounding, and the same bits again. */
function compare(
  name: string,
  call: (elementwise: Elementwise) => unknown,
  copies: () => void = () => undefined,
): void {
  const ours = kernelElementwise(kernels!)
  const read = (elementwise: Elementwise) => {
    copies()
    return tensorsIn(call(elementwise))
  }
  noGrad(() =>
    tidy(() => {
      const [want, got, again] = [read(atenElementwise), read(ours), read(ours)]
      assert.equal(got.length, want.length, name)
      want.forEach((t, i) => {
        const far = distance(got[i]!, t)
        assert.ok(far < 1e-2, `${name}, result ${i}: ${far}`)
        assert.deepEqual(got[i]!.numbers(), again[i]!.numbers(), `${name}, result ${i}, once more`)
      })
    }),
  )
}

test('kernels between the products give what ATen gives, and the same bits again', { skip }, () => {
  const T = 37
  const heads = { queries: shape.heads, keys: shape.groups, dim: shape.dim }
  const { hidden: S, inner: I } = shape
  const [x, y, grad, residual] = [random(T, S), random(T, S + 8), random(T, S), random(T, S + 8)]
  const norm = { weight: random(S), eps: 1e-6 }
  compare('addNorm', (b) => b.addNorm(x, y, norm))
  compare('norm', (b) => b.addNorm(x, null, norm))
  compare('normBackward', (b) => b.normBackward(grad, x, norm, residual, 8).narrow(1, 0, S))
  const gateUp = random(T, 2 * I + 16)
  compare('swiglu', (b) => b.swiglu(gateUp, I))
  const ofActivation = random(T, I)
  compare('swigluBackward', (b) => {
    const own = gateUp.clone()
    return [b.swigluBackward(ofActivation.clone(), own, I), own]
  })
  const angles = randn([T, 1, shape.dim / 2], { device })
  const table = (f: 'cos' | 'sin') => angles[f]().to('bfloat16').repeat([1, 1, 2])
  const tables = { cos: table('cos'), sin: table('sin') }
  const columns = (shape.heads + 2 * shape.groups) * shape.dim
  const qkv = random(T, columns + 24)
  compare('rotate', (b) => {
    const own = qkv.clone()
    b.rotate(own, heads, tables)
    return own
  })
  const grads = (n: number, m: number) => ({
    query: random(n, shape.heads, shape.dim),
    key: random(m, shape.groups, shape.dim),
    value: random(m, shape.groups, shape.dim),
  })
  const placed = [
    { queries: [0, T] as const, keys: [0, T] as const, grads: grads(T, T) },
    { queries: [20, 17] as const, keys: [0, 20] as const, grads: grads(17, 20) },
  ]
  compare('rotateBackward', (b) => b.rotateBackward(T, placed, heads, tables, 24).narrow(1, 0, columns))
  compare('rotateBackward of one piece', (b) =>
    b.rotateBackward(T, placed.slice(0, 1), heads, tables, 24).narrow(1, 0, columns),
  )
  const attended = (rows: number) => ({
    out: random(rows, shape.heads, shape.dim),
    logSumExp: randn([shape.heads, rows], { device }),
    random: [],
  })
  const copyOf = (of: ReturnType<typeof attended>) => ({ ...of, out: of.out.clone(), logSumExp: of.logSumExp.clone() })
  for (const [whole, part] of [T, 11].map((rows) => [attended(T), attended(rows)] as const))
    compare(`join of the last ${part.out.size(0)} rows`, (b) => {
      const both = [copyOf(whole), copyOf(part)] as const
      b.join(...both)
      return both
    })
})

test('scores of rows, entropies and their gradient are those of log-softmax', { skip }, () => {
  tidy(() => {
    const [M, V, W, temperature] = [19, 1003, 1024, 0.7]
    const scores = random(M, W)
    const ids = tensor(
      BigInt64Array.from({ length: M }, (_, i) => BigInt((i * 53) % V)),
      { device },
    )
    const grad = randn([2, M], { device })
    const leaf = scores.narrow(1, 0, V).to('float32').detach().clone().requiresGrad_()
    const logp = leaf.div(temperature).logSoftmax(-1)
    const want = [logp.gather(1, ids.unsqueeze(1)).squeeze(1), logp.exp().mul(logp).sum(-1).neg()] as const
    backward(
      want[0]
        .mul(grad.select(0, 0))
        .add(want[1].mul(grad.select(0, 1)))
        .sum(),
    )
    noGrad(() => {
      const got = kernels!.scoreRows(scores, V, ids, temperature)
      want.forEach((t, i) => {
        const far = distance(got.select(0, i), t)
        assert.ok(far < 1e-5, `result ${i}: ${far}`)
      })
      kernels!.scoreBack(scores, V, ids, temperature, got, grad)
      const far = distance(scores.narrow(1, 0, V), leaf.grad()!)
      assert.ok(far < 1e-2, `gradient: ${far}`)
      assert.equal(
        scores
          .narrow(1, V, W - V)
          .abs()
          .max()
          .item(),
        0,
        'columns after the vocabulary',
      )
    })
  })
})

/** A model of heads that the kernels cover (64), or do not (16). */
function onDevice(dim: number, only: RegExp) {
  const sizes = { num_attention_heads: 4, num_key_value_heads: 2, hidden_size: 4 * dim, intermediate_size: 8 * dim }
  const tiny = tinyModel(tinyConfig({}, { ...sizes, head_dim: dim }), { dtype: 'bfloat16' })
  for (const slot of tiny.model.slots())
    replaceTensor(
      slot,
      tidy(() => tensorAt(slot).mul(0.2).to(device)),
    )
  const wanted = loraTargets(tiny.cfg.llm.architectures[0]!)
  const options = { rank: 8, alpha: 16, seed: 2 }
  addLora(tiny.model, (path) => path.startsWith('language_model.') && wanted(path) && only.test(path), options)
  fillAdapters(tiny.model, 20)
  const trained = trainOnly(tiny.model, [/\.lora_[AB]\./])
  return { ...tiny, trained }
}

interface Asked {
  prompts: readonly string[]
  answers: readonly (readonly string[])[]
}

const asked: Asked = {
  prompts: ['describe the red cup on the left', 'what?'],
  answers: [['a red cup', 'two', 'x'], ['a large blue square']],
}
const image = 'a long text instead of an image, longer than the blocks in which attention reads keys, '.repeat(4)
/** Several questions after one beginning; one of them has two answers, and one beginning has a single question. */
const branched: Asked = {
  prompts: [
    `${image}describe the cup, then say where it is`,
    `${image}where?`,
    'what?',
    `${image}how many`,
    `${image}who`,
  ],
  answers: [['a red cup', 'two'], ['on the left'], ['a large blue square'], ['one', 'two cups'], ['x']],
}

function passOf(of: ReturnType<typeof onDevice>, { prompts: texts, answers }: Asked, options: TeacherOptions) {
  const { prompter, model, trained } = of
  const prompts = texts.map((text) => ({ ids: prompter.tokenizer.encode(text) }))
  const said = answers.map((group) => group.map((text) => prompter.tokenizer.encode(text)))
  const plain = {
    placement: model.placement,
    decoder: model.decoder,
    promptEmbeddings: ({ ids }: { ids: Int32Array }) =>
      model.decoder.embed(int64Tensor(ids, [1, ids.length], { device })),
    sharedPrefix: (a: PromptIds, b: PromptIds) => commonIds(a.ids, b.ids),
  }
  for (const slot of trained) tensorAt(slot).setGrad(null)
  const pass = teacherForceGroups(plain, prompts, said, options)
  const { logps } = pass.logProbs()
  cuda.inFixedOrder(true, () => backward(logps.sum()))
  clearTape()
  const grads = trained.map((slot: Slot) => tensorAt(slot).grad()!.clone())
  return { tokens: pass.hidden.size(0), logps: noGrad(() => logps.numbers()), grads }
}

for (const [name, texts, dim, only] of [
  ['a pass with heads of 64', asked, 64, /./],
  ['a pass with heads of 16', asked, 16, /./],
  ['questions after one beginning, heads of 64,', branched, 64, /./],
  ['a pass with adapters on attention alone', branched, 64, /self_attn/],
] as const)
  test(`${name} in bfloat16 scores and differentiates as op by op, and the same bits again`, () => {
    const of = onDevice(dim, only)
    tidy(() => {
      const want = passOf(of, texts, { packed: false })
      assert.equal(TrainingLayers.of(of.model.decoder) !== null, kernels !== null && dim === 64, 'covered by kernels')
      for (const options of [{ packed: true }, { packed: true, checkpointing: true }]) {
        const [got, again] = [passOf(of, texts, options), passOf(of, texts, options)]
        if (texts === branched) assert.ok(got.tokens < want.tokens / 3, `${got.tokens} of ${want.tokens} tokens read`)
        const worst = Math.max(...got.logps.map((v, i) => Math.abs(v - want.logps[i]!)))
        assert.ok(worst < 0.05, `log-probs: ${worst}`)
        assert.deepEqual(again.logps, got.logps)
        want.grads.forEach((t, i) => {
          const far = distance(got.grads[i]!, t)
          assert.ok(far < 0.05, `${of.trained[i]!.name}: ${far}`)
          if (dim === 64) assert.equal(distance(again.grads[i]!, got.grads[i]!), 0, `${of.trained[i]!.name}, again`)
        })
      }
    })
    TrainingLayers.release(of.model.decoder)
    of.dispose()
  })
