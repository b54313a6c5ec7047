// Against the definitions written down once more in tests/parity/generate.py.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { loadWeights, openWeights, readHeader, readTensors } from '../checkpoint/index.ts'
import { Mismatch } from '../core/index.ts'
import { KVCache, tensorAt } from '../nn/index.ts'
import { backward, expectNoLeak, noGrad, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { compareTensor } from '../verify/compare.ts'
import { buildLanguageModule, Decoder, readLlmConfig } from './index.ts'

const variants = ['qwen2-tied', 'qwen3', 'llama', 'llama-bias', 'internlm2', 'phi3']

function open(name: string): { decoder: Decoder; want: Map<string, Tensor>; ids: Tensor } {
  const path = fileURLToPath(new URL(`../../tests/parity/llm-${name}.safetensors`, import.meta.url))
  const cfg = readLlmConfig(JSON.parse(readHeader(path).metadata['config']!), path)
  const decoder = new Decoder(cfg, buildLanguageModule(cfg))
  const folder = openWeights(path)
  loadWeights(decoder.module, folder, { unused: [/^(in|out|grad)\./] })
  const want = readTensors(folder)
  return { decoder, want, ids: want.get('in.ids')!.unsqueeze(0) }
}

function close({ decoder, want }: ReturnType<typeof open>): void {
  for (const t of [...want.values(), ...decoder.module.parameters().values()]) t.dispose()
}

for (const name of variants) {
  test(`${name}: logits and gradients equal the written-out layers`, () => {
    const c = open(name)
    for (const slot of c.decoder.module.slots()) tensorAt(slot).requiresGrad_(true)
    tidy(() => {
      const logits = c.decoder.logits(c.decoder.forward(c.decoder.embed(c.ids))).squeeze(0) // [T, V]
      const row = compareTensor('logits', logits, c.want.get('out.logits')!, { rel: 2e-6, words: '2e-6' })
      assert.ok(row.pass, JSON.stringify(row))
      const T = c.ids.size(1)
      const logp = logits.narrow(0, 0, T - 1).logSoftmax(-1)
      backward(
        logp
          .gather(
            -1,
            c.ids
              .squeeze(0)
              .narrow(0, 1, T - 1)
              .unsqueeze(-1),
          )
          .mean()
          .neg(),
      )
      let checked = 0
      for (const slot of c.decoder.module.slots()) {
        const want = c.want.get(`grad.${slot.name}`)
        if (!want) continue
        const g = compareTensor(slot.name, tensorAt(slot).grad()!, want, { rel: 1e-5, words: '1e-5' })
        assert.ok(g.pass, JSON.stringify(g))
        checked++
      }
      assert.ok(checked >= 8)
    })
    close(c)
  })

  test(`${name}: reading token by token through the cache gives the logits of one pass`, () => {
    const c = open(name)
    noGrad(() => tidy(() => void c.decoder.forward(c.decoder.embed(c.ids)) as never)) // makes the rotary table
    noGrad(() => expectNoLeak(() => tidy(() => void cacheEqualsPass(c) as never)))
    close(c)
  })
}

function cacheEqualsPass({ decoder, ids }: ReturnType<typeof open>): void {
  const T = ids.size(1)
  const { num_hidden_layers: layers, num_key_value_heads: heads, head_dim: dim } = decoder.cfg
  const whole = decoder.logits(decoder.forward(decoder.embed(ids))) // [1, T, V]
  const cache = new KVCache(layers, { batch: 1, heads, capacity: T, dim }, decoder.module.parts.norm.weight)
  const columns = (from: number, to: number) =>
    tensor(BigInt64Array.from({ length: to - from }, (_, i) => BigInt(from + i)))
  const read = (from: number, to: number) => {
    const at = columns(from, to)
    const x = decoder.embed(ids.narrow(1, from, to - from))
    return decoder.logits(decoder.forward(x, { positions: at.unsqueeze(0), cache, columns: at, length: to }))
  }
  const parts = [read(0, 6), ...Array.from({ length: T - 6 }, (_, i) => read(6 + i, 7 + i))]
  let start = 0
  for (const part of parts) {
    const n = part.size(1)
    const row = compareTensor(`token ${start}`, part, whole.narrow(1, start, n), {
      abs: 2e-5,
      rel: 1e-5,
      words: '1e-5',
    })
    assert.ok(row.pass, JSON.stringify(row))
    start += n
  }
  cache.dispose()
}

const plain = {
  architectures: ['Qwen2ForCausalLM'],
  hidden_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 4,
  intermediate_size: 8,
  vocab_size: 10,
}

test('a configuration takes the defaults of its class', () => {
  const read = (more: object) => readLlmConfig({ ...plain, ...more }, 'config.json')
  assert.equal(read({}).attention_bias, true)
  assert.equal(read({ architectures: ['Qwen3ForCausalLM'] }).head_dim, 128)
  assert.equal(read({ architectures: ['Phi3ForCausalLM'] }).rms_norm_eps, 1e-5)
  assert.equal(read({ rope_parameters: { rope_theta: 5e5, rope_type: 'default' } }).rope_theta, 5e5)
  assert.equal(read({ architectures: ['Phi3ForCausalLM'], sliding_window: 2047 }).max_position_embeddings, 2047)
  assert.equal(read({ sliding_window: 2047, use_sliding_window: false }).max_position_embeddings, 32768)
})

test('a configuration that would compute something else is refused by field', () => {
  const refused = (more: object, field: RegExp) =>
    assert.throws(
      () => readLlmConfig({ ...plain, ...more }, 'c.json'),
      (e) => e instanceof Mismatch && field.test(e.message),
    )
  refused(
    { rope_scaling: { rope_type: 'yarn', factor: 4 } },
    /rope_scaling\.type: expected none, default or dynamic, got yarn/,
  )
  refused({ rope_parameters: { rope_type: 'llama3' } }, /rope_parameters\.type/)
  refused({ partial_rotary_factor: 0.5 }, /partial_rotary_factor/)
  refused({ hidden_act: 'gelu' }, /hidden_act: expected silu, got gelu/)
  refused({ num_key_value_heads: 3 }, /num_key_value_heads: expected a divisor of 4, got 3/)
  refused({ hidden_size: 'wide' }, /hidden_size: expected a whole number/)
  refused({ architectures: undefined }, /architectures/)
  assert.throws(
    () => buildLanguageModule(readLlmConfig({ ...plain, architectures: ['GPT2LMHeadModel'] }, 'c')),
    /Qwen2, Qwen3/,
  )
})
