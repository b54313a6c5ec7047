// Qwen2, Qwen3 and Llama: one layout. Unusual: Qwen2 has biases on q, k, v only (the others, where configured, on o too); Qwen3 normalises q and k per head before rotation.
import { Linear, Module, type Packing, RMSNorm } from '../nn/index.ts'
import type { Tensor } from '../tensor/index.ts'
import { attend, type LlmContext, splitHeads } from './attention.ts'
import { CausalLM, type Parts } from './causal-lm.ts'
import type { LlmConfig } from './config.ts'

export class Attention extends Module implements Packing {
  readonly q_proj: Linear // [H*D, S]
  readonly k_proj: Linear // [K*D, S]
  readonly v_proj: Linear
  readonly o_proj: Linear // [S, H*D]
  readonly q_norm?: RMSNorm
  readonly k_norm?: RMSNorm
  readonly #cfg: LlmConfig
  readonly #layer: number

  constructor(cfg: LlmConfig, layer: number) {
    super()
    const { hidden_size: S, head_dim: D } = cfg
    const bias = cfg.attention_bias
    this.q_proj = new Linear(S, cfg.num_attention_heads * D, { bias })
    this.k_proj = new Linear(S, cfg.num_key_value_heads * D, { bias })
    this.v_proj = new Linear(S, cfg.num_key_value_heads * D, { bias })
    this.o_proj = new Linear(cfg.num_attention_heads * D, S, { bias: cfg.output_bias })
    if (cfg.architectures[0] === 'Qwen3ForCausalLM') {
      this.q_norm = new RMSNorm(D, cfg.rms_norm_eps)
      this.k_norm = new RMSNorm(D, cfg.rms_norm_eps)
    }
    this.#cfg = cfg
    this.#layer = layer
  }

  forward(x: Tensor, context: LlmContext): Tensor {
    const { num_attention_heads: H, num_key_value_heads: K, head_dim: D } = this.#cfg
    let q = splitHeads(this.q_proj.forward(x), H, D)
    let k = splitHeads(this.k_proj.forward(x), K, D)
    const v = splitHeads(this.v_proj.forward(x), K, D)
    if (this.q_norm && this.k_norm) {
      q = this.q_norm.forward(q)
      k = this.k_norm.forward(k)
    }
    return this.o_proj.forward(attend(this.#layer, q, k, v, context))
  }

  get fused() {
    const [queryNorm, keyNorm] = [this.q_norm ?? null, this.k_norm ?? null]
    return { qkv: [this.q_proj, this.k_proj, this.v_proj], out: this.o_proj, queryNorm, keyNorm }
  }

  packs() {
    return [this.fused.qkv]
  }
}

/** down(silu(gate(x)) * up(x)) */
export class GatedMlp extends Module implements Packing {
  readonly gate_proj: Linear // [I, S]
  readonly up_proj: Linear
  readonly down_proj: Linear // [S, I]

  constructor(
    { hidden_size: S, intermediate_size: I }: Pick<LlmConfig, 'hidden_size' | 'intermediate_size'>,
    bias: boolean,
  ) {
    super()
    this.gate_proj = new Linear(S, I, { bias })
    this.up_proj = new Linear(S, I, { bias })
    this.down_proj = new Linear(I, S, { bias })
  }

  forward(x: Tensor): Tensor {
    return this.down_proj.forward(this.gate_proj.forward(x).silu().mul(this.up_proj.forward(x)))
  }

  get fused() {
    return { gateUp: [this.gate_proj, this.up_proj], down: this.down_proj }
  }

  packs() {
    return [this.fused.gateUp]
  }
}

/** What a layer of Qwen2, Qwen3 or Llama is made of. */
export const qwenParts: Parts = {
  attention: (cfg, layer) => new Attention(cfg, layer),
  mlp: (cfg) => new GatedMlp(cfg, cfg.mlp_bias),
}

export class Qwen2ForCausalLM extends CausalLM {
  constructor(cfg: LlmConfig) {
    super(cfg, qwenParts)
  }
}
