import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { type JsonObject, Mismatch } from '../core/index.ts'
import { modelSizes } from './model-sizes.ts'
import { parseSa2VAConfig } from './sa2va/config.ts'

const golden = new URL('../../tests/fixtures/golden/', import.meta.url)

function config(set = 'sa2va-tiny'): JsonObject {
  return JSON.parse(readFileSync(new URL(`${set}/config.json`, golden), 'utf8')) as JsonObject
}

/** Every place of a config, as the keys that lead there. */
function* places(at: JsonObject, before: string[] = []): Generator<string[]> {
  for (const [key, value] of Object.entries(at)) {
    yield [...before, key]
    if (value !== null && typeof value === 'object') yield* places(value as JsonObject, [...before, key])
  }
}

/** A copy with another value at a place; undefined takes the key away. */
function changed(raw: JsonObject, place: readonly string[], value: unknown): JsonObject {
  const copy = structuredClone(raw)
  const at = place.slice(0, -1).reduce((block, key) => block[key] as JsonObject, copy)
  if (value === undefined) delete at[place.at(-1)!]
  else at[place.at(-1)!] = value
  return copy
}

const wrong = [null, 'x', -1, 1.5, [], {}, 1e9, undefined]

for (const set of ['sa2va-tiny', 'sa2va-qwen2_5_vl-tiny', 'sa2va-qwen3vl-tiny'])
  test(`${set}: any value at any place of config.json builds a model or is refused with a clear message`, () => {
    const raw = config(set)
    for (const place of places(raw))
      for (const value of wrong)
        try {
          modelSizes(changed(raw, place, value))
        } catch (error) {
          const at = `${place.join('.')} = ${JSON.stringify(value)}`
          assert.ok(error instanceof Mismatch, `${at}: ${error}`)
          assert.match(error.message, /^config\.json/, at)
        }
  })

test('a value of the wrong type is refused by its name, wherever it decides what is computed', () => {
  const read: [string, string[]][] = [
    ['sa2va-tiny', ['select_layer', 'downsample_ratio', 'ps_version', 'use_thumbnail', 'max_dynamic_patch']],
    ['sa2va-tiny', ['vision_config.norm_type', 'vision_config.qkv_bias', 'vision_config.qk_normalization']],
    ['sa2va-tiny', ['vision_config.layer_norm_eps', 'vision_config.num_attention_heads']],
    ['sa2va-tiny', ['llm_config.rope_theta', 'llm_config.rms_norm_eps', 'llm_config.tie_word_embeddings']],
    ['sa2va-qwen3vl-tiny', ['text_config.rope_scaling', 'text_config.attention_bias', 'text_config.head_dim']],
    ['sa2va-qwen3vl-tiny', ['text_config.rope_scaling.mrope_section', 'vision_config.deepstack_visual_indexes']],
    ['sa2va-qwen2_5_vl-tiny', ['vision_config.fullatt_block_indexes', 'vision_config.window_size', 'image_token_id']],
    ['sa2va-qwen2_5_vl-tiny', ['grounding_encoder_config.stages', 'grounding_encoder_config.window_spec']],
  ]
  for (const [set, fields] of read)
    for (const field of fields) {
      const named = (error: unknown) => error instanceof Mismatch && error.message.includes(field.split('.').at(-1)!)
      assert.throws(() => modelSizes(changed(config(set), field.split('.'), 'x')), named, `${set} ${field}`)
    }
})

test('sizes far above every model are refused before anything is built', () => {
  assert.ok(parseSa2VAConfig(config()))
  const places: [string | null, string][] = [
    ['llm_config', 'num_hidden_layers'],
    ['llm_config', 'hidden_size'],
    ['llm_config', 'vocab_size'],
    ['llm_config', 'intermediate_size'],
    ['llm_config', 'num_attention_heads'],
    ['llm_config', 'max_position_embeddings'],
    ['vision_config', 'num_hidden_layers'],
    ['vision_config', 'image_size'],
    ['grounding_encoder_config', 'embed_dim'],
    ['grounding_encoder_config', 'decoder_depth'],
    [null, 'max_dynamic_patch'],
    [null, 'force_image_size'],
  ]
  for (const [part, key] of places) {
    for (const value of [1e9, Number.MAX_VALUE, -1, 0.5, '7']) {
      const raw = config()
      const block = part === null ? raw : { ...(raw[part] as JsonObject) }
      block[key] = value
      if (part !== null) raw[part] = block
      const named = (error: unknown) => error instanceof Mismatch && error.message.includes(key)
      assert.throws(() => parseSa2VAConfig(raw), named, `${part}.${key} = ${value}`)
    }
  }
})
