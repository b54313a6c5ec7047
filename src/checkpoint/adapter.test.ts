import assert from 'node:assert/strict'
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { writeAdapter } from '../../tests/support/adapter.ts'
import { golden, refuses, scratch } from '../../tests/support/checkpoint.ts'
import { adapterConfigText, fromFileName, languageModelNames, matchNames, readAdapter, toFileName } from './adapter.ts'
import { readAll, readHeader } from './safetensors.ts'

const lora = 'language_model.model.layers.0.self_attn.q_proj.lora_A.default.weight'
const filed = 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight'

const inMemory = { ...languageModelNames, adapter: 'default' }

test('names in memory and in the file map to each other', () => {
  assert.equal(toFileName(lora, inMemory), filed)
  assert.equal(fromFileName(filed, inMemory), lora)
  const bare = languageModelNames
  assert.equal(toFileName(lora.replace('.default', ''), bare), filed)
  assert.equal(fromFileName(filed, bare), lora.replace('.default', ''))
  const saved = 'language_model.model.embed_tokens.weight'
  assert.equal(toFileName(saved, inMemory), 'base_model.model.model.embed_tokens.weight')
  const embedding = 'language_model.model.embed_tokens.lora_embedding_A.default'
  assert.equal(toFileName(embedding, inMemory), 'base_model.model.model.embed_tokens.lora_embedding_A')
  assert.equal(fromFileName(toFileName(embedding, inMemory), inMemory), embedding)
  refuses(
    () => toFileName('mlp1.0.weight', inMemory),
    /mlp1\.0\.weight: expected a name that begins with language_model\./,
  )
  refuses(() => fromFileName('x', inMemory), /begins with base_model\.model\./)
})

test('every name of the golden adapter maps to the name PEFT has in memory, and back', () => {
  const files = [...readHeader(golden('lora-tiny/adapter_model.safetensors')).tensors.keys()]
  const names = { ours: 'after.base_model.model.', file: 'base_model.model.', adapter: 'default' }
  const memory = [...readHeader(golden('lora-tiny/golden.safetensors')).tensors.keys()].filter((n) =>
    n.startsWith('after.'),
  )
  assert.deepEqual(files.map((name) => fromFileName(name, names)).sort(), memory.sort())
  for (const name of files) assert.equal(toFileName(fromFileName(name, names), names), name)
})

test('the prefix an adapter was trained for is found from the names alone', () => {
  const files = [...readHeader(golden('lora-tiny/adapter_model.safetensors')).tensors.keys()]
  for (const names of [
    languageModelNames,
    { ...languageModelNames, ours: '' },
    { ...languageModelNames, adapter: null },
  ]) {
    const ours = new Set(files.map((name) => fromFileName(name, names)))
    assert.deepEqual(matchNames(files, ours), names)
  }
  refuses(() => matchNames(files, new Set(['other'])), /fit the model under one prefix, got 42 tensors/)
  refuses(() => matchNames([], new Set(['other'])), /0 tensors/)
})

test('the golden adapter reads, and written again both files are the same bytes', (t) => {
  const dir = scratch(t)
  const { config, weights } = readAdapter(golden('lora-tiny'))
  assert.deepEqual([config.r, config.lora_alpha, config.lora_dropout, weights.names.length], [8, 16, 0.05, 42])
  const { r, lora_alpha, lora_dropout, target_modules } = config
  const entries = Array.from(readAll(golden('lora-tiny/adapter_model.safetensors')), ([name, tensor]) => ({
    name: fromFileName(name, languageModelNames),
    ...tensor,
  }))
  writeAdapter(dir, { r, lora_alpha, lora_dropout, target_modules }, entries)
  for (const name of ['adapter_config.json', 'adapter_model.safetensors']) {
    assert.ok(readFileSync(join(dir, name)).equals(readFileSync(golden(`lora-tiny/${name}`))), name)
  }
})

test('unknown keys of other PEFT versions are kept, adapters we cannot apply are refused by field', (t) => {
  const dir = scratch(t)
  const settings = { r: 4, lora_alpha: 8, target_modules: ['q_proj'] }
  const write = (extra: object) =>
    writeFileSync(join(dir, 'adapter_config.json'), adapterConfigText({ ...settings, ...extra }))
  copyFileSync(golden('lora-tiny/adapter_model.safetensors'), join(dir, 'adapter_model.safetensors'))
  write({ a_key_of_the_future: { x: 1 } })
  assert.deepEqual(readAdapter(dir).config['a_key_of_the_future'], { x: 1 })
  write({ peft_type: 'IA3' })
  refuses(() => readAdapter(dir), /adapter_config\.json: .*peft_type/)
  write({ use_dora: true, r: 0 })
  refuses(() => readAdapter(dir), /r: .*use_dora/)
  refuses(() => readAdapter(join(dir, 'no')), /adapter_config\.json/)
})
