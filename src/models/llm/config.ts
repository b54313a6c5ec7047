import { Mismatch } from '../../core/index.ts'

/** llm_config of a checkpoint; keys as upstream spells them. */
export interface LlmConfig {
  architectures: string[]
  hidden_size: number
  num_hidden_layers: number
  num_attention_heads: number
  num_key_value_heads: number
  head_dim: number
  intermediate_size: number
  vocab_size: number
  rms_norm_eps: number
  rope_theta: number
  max_position_embeddings: number
  tie_word_embeddings: boolean
  /** Biases of the q, k, v projections. */
  attention_bias: boolean
}

const needed = ['hidden_size', 'num_hidden_layers', 'num_attention_heads', 'intermediate_size', 'vocab_size'] as const

export function readLlmConfig(raw: Record<string, unknown>, where: string): LlmConfig {
  const architectures = raw.architectures
  if (!Array.isArray(architectures) || typeof architectures[0] !== 'string') {
    throw new Mismatch({
      where,
      field: 'llm_config.architectures',
      expected: 'a list with the class name',
      got: architectures ?? 'nothing',
    })
  }
  for (const key of needed) positive(raw, key, where)
  const heads = raw.num_attention_heads as number
  const hidden = raw.hidden_size as number
  checkRope(raw, where)
  return {
    architectures: architectures as string[],
    hidden_size: hidden,
    num_hidden_layers: raw.num_hidden_layers as number,
    num_attention_heads: heads,
    num_key_value_heads: (raw.num_key_value_heads as number | undefined) ?? heads,
    head_dim: (raw.head_dim as number | undefined) ?? hidden / heads,
    intermediate_size: raw.intermediate_size as number,
    vocab_size: raw.vocab_size as number,
    rms_norm_eps: (raw.rms_norm_eps as number | undefined) ?? 1e-6,
    rope_theta: (raw.rope_theta as number | undefined) ?? 10000,
    max_position_embeddings: (raw.max_position_embeddings as number | undefined) ?? 32768,
    tie_word_embeddings: raw.tie_word_embeddings === true,
    attention_bias: (raw.attention_bias as boolean | undefined) ?? architectures[0] === 'Qwen2ForCausalLM',
  }
}

function positive(raw: Record<string, unknown>, key: string, where: string): void {
  const value = raw[key]
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 1) {
    throw new Mismatch({
      where,
      field: `llm_config.${key}`,
      expected: 'a whole number from 1',
      got: value ?? 'nothing',
    })
  }
}

/** "dynamic" scaling changes nothing up to max_position_embeddings, which generation never exceeds; others would be wrong. */
function checkRope(raw: Record<string, unknown>, where: string): void {
  const scaling = raw.rope_scaling as { type?: string; rope_type?: string } | null | undefined
  const type = scaling?.rope_type ?? scaling?.type
  if (type !== undefined && !['dynamic', 'default', 'mrope'].includes(type)) {
    throw new Mismatch({
      where,
      field: 'llm_config.rope_scaling.type',
      expected: 'none, default or dynamic',
      got: type,
    })
  }
}
