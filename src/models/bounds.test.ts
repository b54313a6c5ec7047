import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Mismatch } from '../core/index.ts'
import { parseSa2VAConfig } from './sa2va/config.ts'

const folder = new URL('../../tests/fixtures/golden/sa2va-tiny/', import.meta.url)

type Json = Record<string, unknown>

function config(): Json {
  return JSON.parse(readFileSync(new URL('config.json', folder), 'utf8')) as Json
}

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
      const block = part === null ? raw : { ...(raw[part] as Json) }
      block[key] = value
      if (part !== null) raw[part] = block
      const named = (error: unknown) => error instanceof Mismatch && error.message.includes(key)
      assert.throws(() => parseSa2VAConfig(raw), named, `${part}.${key} = ${value}`)
    }
  }
})
