import assert from 'node:assert/strict'
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { adapterSettings, saveAdapter } from '../../tests/support/adapter.ts'
import { golden, refuses, scratch } from '../../tests/support/checkpoint.ts'
import { addLora, Embedding, initRandom, Linear, linears, Module } from '../nn/index.ts'
import { tensor, tidy } from '../tensor/index.ts'
import { adapterConfigText } from './adapter.ts'
import { loadAdapter } from './lora.ts'
import { readAll, readHeader, writeSafetensors } from './safetensors.ts'

class Attention extends Module {
  readonly q_proj = new Linear(64, 64)
  readonly k_proj = new Linear(64, 32)
  readonly v_proj = new Linear(64, 32)
  readonly o_proj = new Linear(64, 64, { bias: false })
}
class Mlp extends Module {
  readonly gate_proj = new Linear(64, 176, { bias: false })
  readonly up_proj = new Linear(64, 176, { bias: false })
  readonly down_proj = new Linear(176, 64, { bias: false })
}
class Layer extends Module {
  readonly self_attn = new Attention()
  readonly mlp = new Mlp()
}
class Trunk extends Module {
  readonly embed_tokens = new Embedding(20, 64)
  readonly layers = [new Layer(), new Layer(), new Layer()]
}
class Language extends Module {
  readonly model = new Trunk()
  readonly lm_head = new Linear(64, 20, { bias: false })
}
/** The layers of the golden adapter's model, inside a larger one. */
class Whole extends Module {
  readonly language_model = new Language()
  readonly other = new Linear(4, 4)
}

function whole(): Whole {
  const model = new Whole()
  initRandom(model, { seed: 1, std: 0.1 })
  return model
}

function free(model: Module): void {
  for (const t of model.parameters().values()) t.dispose()
}

const folder = golden('lora-tiny')

test('the golden adapter goes in and comes out with the same names, shapes and bytes', (t) => {
  const model = whole()
  const state = loadAdapter(model, folder)
  assert.deepEqual(state, { rank: 8, alpha: 16, scale: 2, dropout: 0.05, enabled: true })
  const used = whole()
  assert.equal(loadAdapter(used, folder, { dropout: 0 }).dropout, 0, 'what is evaluated drops nothing')
  free(used)
  const out = scratch(t)
  saveAdapter(out, model, 'language_model.')
  const file = 'adapter_model.safetensors'
  assert.deepEqual(readHeader(join(out, file)).tensors, readHeader(join(folder, file)).tensors)
  assert.ok(readFileSync(join(out, file)).equals(readFileSync(join(folder, file))))
  const read = (dir: string) => JSON.parse(readFileSync(join(dir, 'adapter_config.json'), 'utf8'))
  const [ours, theirs] = [read(out), read(folder)]
  assert.deepEqual([...ours.target_modules].sort(), [...theirs.target_modules].sort())
  assert.deepEqual({ ...ours, target_modules: 0 }, { ...theirs, target_modules: 0 })
  free(model)
})

test('one switch turns all adapters off, including layers with another rank', (t) => {
  const dir = scratch(t)
  const model = whole()
  const x = tensor(
    Float32Array.from({ length: 64 }, (_, i) => Math.sin(i)),
    [1, 64],
  )
  const { q_proj } = model.language_model.model.layers[1]!.self_attn
  const run = () => tidy(() => q_proj.forward(x).numbers())
  const plain = run()
  const all = readAll(join(folder, 'adapter_model.safetensors'))
  const own = 'base_model.model.model.layers.1.self_attn.q_proj'
  for (const part of ['A', 'B']) {
    const e = all.get(`${own}.lora_${part}.weight`)!
    const floats = new Float32Array(e.data.slice().buffer)
    const half = part === 'A' ? floats.slice(0, 4 * 64) : floats.filter((_, i) => i % 8 < 4)
    all.set(`${own}.lora_${part}.weight`, {
      dtype: 'F32',
      shape: part === 'A' ? [4, 64] : [64, 4],
      data: new Uint8Array(half.buffer),
    })
  }
  writeSafetensors(
    join(dir, 'adapter_model.safetensors'),
    Array.from(all, ([name, e]) => ({ name, ...e })),
  )
  const settings = { r: 8, lora_alpha: 16, target_modules: ['q_proj'], use_rslora: true }
  const patterns = {
    rank_pattern: { 'layers.1.self_attn.q_proj': 4 },
    alpha_pattern: { 'layers.1.self_attn.q_proj': 3 },
  }
  writeFileSync(join(dir, 'adapter_config.json'), adapterConfigText({ ...settings, ...patterns }))
  const state = loadAdapter(model, dir)
  assert.equal(state.scale, 16 / Math.sqrt(8))
  assert.equal(q_proj.adapter!.scale, 3 / 2)
  const adapted = run()
  assert.notDeepEqual(adapted, plain)
  state.enabled = false
  assert.deepEqual(run(), plain)
  q_proj.adapter!.enabled = true
  assert.equal(state.enabled, true)
  state.dropout = 0.5
  assert.equal(q_proj.adapter!.dropout, 0.5)
  state.dropout = 0
  assert.deepEqual(run(), adapted)
  const back = adapterSettings(model, 'language_model.')
  assert.deepEqual(back.rank_pattern, { 'model.layers.1.self_attn.q_proj': 4 })
  assert.equal(back.use_rslora, true)
  x.dispose()
  free(model)
})

test('keys of rank_pattern are names, read as PEFT reads them: the end of a path, a whole path after ^, escaped dots', (t) => {
  const path = 'model.layers.1.self_attn.q_proj'
  const cases: [string, boolean][] = [
    ['q_proj', true],
    ['self_attn.q_proj', true],
    [path, true],
    [`^${path}`, true],
    [`${path.replaceAll('.', '\\.')}$`, true],
    ['_proj', false],
    ['^self_attn.q_proj', false],
    ['layers.0.self_attn.q_proj', false],
  ]
  for (const [key, hits] of cases) {
    const dir = scratch(t)
    const first = whole()
    addLora(first, (p) => p.endsWith(path), { rank: 4, alpha: 8, seed: 1 })
    saveAdapter(dir, first, 'language_model.')
    const config = { r: hits ? 8 : 4, lora_alpha: 8, target_modules: ['q_proj'], rank_pattern: { [key]: hits ? 4 : 8 } }
    writeFileSync(join(dir, 'adapter_config.json'), adapterConfigText(config))
    const second = whole()
    loadAdapter(second, dir)
    assert.equal(second.language_model.model.layers[1]!.self_attn.q_proj.adapter!.rank, 4, key)
    free(first)
    free(second)
  }
})

test('a regular expression in an adapter is refused at once, whatever it would cost to try', (t) => {
  const model = whole()
  const keys = ['(([a-z_.0-9])+)+!', '(', '[', 'q_proj|k_proj', '.*', '', `${'a'.repeat(100_000)}!`]
  for (const key of keys)
    for (const field of ['rank_pattern', 'alpha_pattern']) {
      const dir = scratch(t)
      cpSync(folder, dir, { recursive: true })
      const config = JSON.parse(readFileSync(join(dir, 'adapter_config.json'), 'utf8'))
      writeFileSync(join(dir, 'adapter_config.json'), JSON.stringify({ ...config, [field]: { [key]: 8 } }))
      refuses(() => loadAdapter(model, dir), new RegExp(`${field}: expected names of layers`))
    }
  assert.ok(linears(model).every(([, l]) => !l.lora_A))
  free(model)
})

test('modules that train whole travel in the same file and come back', (t) => {
  const dir = scratch(t)
  const first = whole()
  addLora(first, (path) => path.includes('q_proj'), { rank: 2, alpha: 4, seed: 3 })
  saveAdapter(dir, first, 'language_model.', { modules_to_save: ['embed_tokens', 'lm_head'] })
  const names = [...readHeader(join(dir, 'adapter_model.safetensors')).tensors.keys()]
  assert.ok(names.includes('base_model.model.model.embed_tokens.weight'))
  assert.ok(names.includes('base_model.model.lm_head.weight'))
  const second = new Whole()
  initRandom(second, { seed: 9, std: 0.1 })
  loadAdapter(second, dir)
  assert.deepEqual(second.language_model.lm_head.weight.array(), first.language_model.lm_head.weight.array())
  assert.deepEqual(
    second.language_model.model.embed_tokens.weight.array(),
    first.language_model.model.embed_tokens.weight.array(),
  )
  free(first)
  free(second)
})

test('target modules select exactly the adapted layers: ends of names, or whole paths where ends would take more', () => {
  const all = whole()
  addLora(all, (path) => path.includes('.layers.'), { rank: 2, alpha: 4, seed: 3 })
  assert.deepEqual(adapterSettings(all, 'language_model.').target_modules, [
    'mlp.down_proj',
    'mlp.gate_proj',
    'mlp.up_proj',
    'self_attn.k_proj',
    'self_attn.o_proj',
    'self_attn.q_proj',
    'self_attn.v_proj',
  ])
  const some = whole()
  addLora(some, (path) => path.includes('.layers.1.self_attn.q'), { rank: 2, alpha: 4, seed: 3 })
  assert.deepEqual(adapterSettings(some, 'language_model.').target_modules, ['model.layers.1.self_attn.q_proj'])
  free(all)
  free(some)
})

test('an adapter that does not fit is refused whole, and the model stays without adapters', (t) => {
  const model = whole()
  const damaged = (
    edit: (all: ReturnType<typeof readAll>) => void,
    config = readFileSync(join(folder, 'adapter_config.json'), 'utf8'),
  ) => {
    const dir = scratch(t)
    const all = readAll(join(folder, 'adapter_model.safetensors'))
    edit(all)
    writeSafetensors(
      join(dir, 'adapter_model.safetensors'),
      Array.from(all, ([name, e]) => ({ name, ...e })),
    )
    writeFileSync(join(dir, 'adapter_config.json'), config)
    return dir
  }
  const b = 'base_model.model.model.layers.0.mlp.up_proj.lora_B.weight'
  refuses(
    () =>
      loadAdapter(
        model,
        damaged((all) => all.delete(b)),
      ),
    /1 missing: language_model\.model\.layers\.0\.mlp\.up_proj\.lora_B\.weight/,
  )
  const turned = damaged((all) => all.set(b, { ...all.get(b)!, shape: [8, 176] }))
  refuses(() => loadAdapter(model, turned), /1 misshapen: .*up_proj\.lora_B\.weight \[8, 176\] instead of \[176, 8\]/)
  const strange = damaged((all) => all.set('base_model.model.model.layers.7.x.lora_A.weight', all.get(b)!))
  refuses(() => loadAdapter(model, strange), /adapter tensors that fit the model/)
  const dora = JSON.stringify({
    ...JSON.parse(readFileSync(join(folder, 'adapter_config.json'), 'utf8')),
    use_dora: true,
  })
  refuses(
    () =>
      loadAdapter(
        model,
        damaged(() => {}, dora),
      ),
    /use_dora/,
  )
  refuses(
    () =>
      loadAdapter(
        model,
        damaged((all) => all.clear()),
      ),
    /adapter/,
  )
  assert.ok(linears(model).every(([, l]) => !l.lora_A))
  refuses(() => saveAdapter(scratch(t), model, 'language_model.'), /expected layers with LoRA below it, got none/)
  loadAdapter(model, folder)
  refuses(() => loadAdapter(model, folder), /expected a layer without LoRA/)
  free(model)
})

test('alpha_pattern alone changes the scale of its layers, and of no others', (t) => {
  const dir = scratch(t)
  const model = whole()
  cpSync(join(folder, 'adapter_model.safetensors'), join(dir, 'adapter_model.safetensors'))
  const config = JSON.parse(readFileSync(join(folder, 'adapter_config.json'), 'utf8'))
  writeFileSync(join(dir, 'adapter_config.json'), JSON.stringify({ ...config, alpha_pattern: { q_proj: 40 } }))
  const state = loadAdapter(model, dir)
  const [{ self_attn }] = model.language_model.model.layers as [Layer]
  assert.equal(state.scale, 2)
  assert.deepEqual([self_attn.q_proj.adapter!.alpha, self_attn.q_proj.adapter!.scale], [40, 5])
  assert.equal(self_attn.v_proj.adapter!.scale, 2)
  free(model)
})
