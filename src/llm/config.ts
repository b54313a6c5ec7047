import { Mismatch } from '../core/index.ts'
import { positiveNumber, type Site, switchAt } from './config-values.ts'

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
  /** Frequencies of each axis of a position (time, row, column); empty: positions have one axis. */
  mrope_section: readonly number[]
  /** The axes take turns over the frequencies instead of having a block each. */
  mrope_interleaved: boolean
  max_position_embeddings: number
  tie_word_embeddings: boolean
  /** Biases of the q, k, v projections (InternLM2: of wqkv and wo). */
  attention_bias: boolean
  /** Bias of the output projection of attention. */
  output_bias: boolean
  mlp_bias: boolean
}

interface Rope {
  rope_theta?: number
  mrope_section?: number[]
  mrope_interleaved?: boolean
}

/** Checked before use. */
interface Scaling extends Record<string, unknown> {
  type?: string
  rope_type?: string
  partial_rotary_factor?: number
}

/** Far above every model there is; a larger number is a damaged file, and building the model would take all memory. */
const largest: Readonly<Record<string, number>> = {
  hidden_size: 65_536,
  num_hidden_layers: 1024,
  num_attention_heads: 1024,
  num_key_value_heads: 1024,
  head_dim: 8192,
  intermediate_size: 1_048_576,
  vocab_size: 16_777_216,
  max_position_embeddings: 134_217_728,
}

const needed = ['hidden_size', 'num_hidden_layers', 'num_attention_heads', 'intermediate_size', 'vocab_size'] as const

/** `part` is the prefix of a key in errors: where the keys are in config.json. */
export function readLlmConfig(raw: Record<string, unknown>, where: string, part = 'llm_config.'): LlmConfig {
  const site = { where, part }
  const architectures = raw.architectures
  if (!Array.isArray(architectures) || typeof architectures[0] !== 'string') {
    const got = architectures ?? 'nothing'
    throw new Mismatch({ where, field: `${part}architectures`, expected: 'a list with the class name', got })
  }
  const architecture = architectures[0] as string
  for (const key of needed) positive(raw, key, site)
  for (const key of ['num_key_value_heads', 'head_dim', 'max_position_embeddings']) {
    if (raw[key] !== undefined && raw[key] !== null) positive(raw, key, site)
  }
  for (const key of ['rms_norm_eps', 'rope_theta']) positiveNumber(raw, key, 1, site)
  if (raw.sliding_window != null) positive(raw, 'sliding_window', site)
  checkActivation(raw, site)
  checkRope(raw, site)
  const cfg = {
    ...sizes(raw, architecture),
    ...switches(raw, architecture, site),
    architectures: architectures as string[],
  }
  checkHeads(cfg, site)
  return cfg
}

/** Defaults are those of the classes: Qwen3 has heads of 128 whatever its width, Phi-3 an eps of 1e-5. */
function sizes(raw: Record<string, unknown>, architecture: string) {
  const number = (key: string, usual: number) => (raw[key] as number | null | undefined) ?? usual
  const heads = raw.num_attention_heads as number
  const hidden = raw.hidden_size as number
  const rope = (raw.rope_parameters ?? raw.rope_scaling) as Rope | null | undefined
  return {
    hidden_size: hidden,
    num_hidden_layers: raw.num_hidden_layers as number,
    num_attention_heads: heads,
    num_key_value_heads: number('num_key_value_heads', heads),
    head_dim: number('head_dim', architecture === 'Qwen3ForCausalLM' ? 128 : hidden / heads),
    intermediate_size: raw.intermediate_size as number,
    vocab_size: raw.vocab_size as number,
    rms_norm_eps: number('rms_norm_eps', architecture === 'Phi3ForCausalLM' ? 1e-5 : 1e-6),
    rope_theta: number('rope_theta', rope?.rope_theta ?? 10000),
    mrope_section: rope?.mrope_section ?? [],
    mrope_interleaved: rope?.mrope_interleaved ?? false,
    max_position_embeddings: longest(raw),
  }
}

/** A sliding window changes nothing for sequences inside it, so it becomes the longest sequence. */
function longest(raw: Record<string, unknown>): number {
  const most = (raw.max_position_embeddings as number | undefined) ?? 32768
  const window = raw.use_sliding_window === false ? null : (raw.sliding_window as number | null | undefined)
  const isPhi3 = (raw.architectures as string[])[0] === 'Phi3ForCausalLM'
  return raw.use_sliding_window === undefined && !isPhi3 ? most : Math.min(most, window ?? most)
}

function switches(raw: Record<string, unknown>, architecture: string, site: Site) {
  const isQwen2 = architecture === 'Qwen2ForCausalLM'
  const on = (key: string) => switchAt(raw, key, false, site)
  const bias = on(architecture === 'InternLM2ForCausalLM' ? 'bias' : 'attention_bias')
  return {
    tie_word_embeddings: on('tie_word_embeddings'),
    attention_bias: isQwen2 || bias,
    output_bias: !isQwen2 && bias,
    mlp_bias: on('mlp_bias'),
  }
}

function checkHeads(cfg: LlmConfig, { where, part }: Site): void {
  const { num_attention_heads: H, num_key_value_heads: K, head_dim: D } = cfg
  const field = `${part}num_key_value_heads`
  if (!Number.isInteger(K) || K < 1 || H % K !== 0)
    throw new Mismatch({ where, field, expected: `a divisor of ${H}`, got: K })
  if (!Number.isInteger(D) || D % 2 !== 0)
    throw new Mismatch({ where, field: `${part}head_dim`, expected: 'an even whole number', got: D })
}

function checkActivation(raw: Record<string, unknown>, { where, part }: Site): void {
  const act = raw.hidden_act ?? 'silu'
  if (act === 'silu' || act === 'swish') return
  throw new Mismatch({ where, field: `${part}hidden_act`, expected: 'silu', got: act })
}

function positive(raw: Record<string, unknown>, key: string, { where, part }: Site): void {
  const value = raw[key]
  const most = largest[key] ?? Number.MAX_SAFE_INTEGER
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= most) return
  const expected = (value as number) > most ? `at most ${most}` : 'a whole number from 1'
  throw new Mismatch({ where, field: `${part}${key}`, expected, got: value ?? 'nothing' })
}

/** "dynamic" scaling changes nothing up to max_position_embeddings, which generation never exceeds; others would be wrong. */
function checkRope(raw: Record<string, unknown>, site: Site): void {
  for (const field of ['rope_scaling', 'rope_parameters']) checkScaling(raw, field, site)
}

function checkScaling(raw: Record<string, unknown>, field: string, { where, part }: Site): void {
  const scaling = raw[field] as Scaling | null | undefined
  if (scaling != null && (typeof scaling !== 'object' || Array.isArray(scaling)))
    throw new Mismatch({ where, field: `${part}${field}`, expected: 'an object', got: scaling })
  if (scaling) positiveNumber(scaling, 'rope_theta', 1, { where, part: `${part}${field}.` })
  const sections = scaling?.mrope_section ?? []
  if (!Array.isArray(sections)) {
    const got = JSON.stringify(sections)
    throw new Mismatch({ where, field: `${part}${field}.mrope_section`, expected: 'a list of numbers', got })
  }
  const type = scaling?.rope_type ?? scaling?.type
  if (type !== undefined && !['dynamic', 'default', 'mrope'].includes(type))
    throw new Mismatch({ where, field: `${part}${field}.type`, expected: 'none, default or dynamic', got: type })
  const share = raw.partial_rotary_factor ?? scaling?.partial_rotary_factor ?? 1
  if (share === 1) return
  throw new Mismatch({ where, field: `${part}partial_rotary_factor`, expected: '1', got: share })
}
