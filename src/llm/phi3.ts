// Phi-3: packed projections, rows ordered q | k | v and gate | up; no biases.
import { Linear, Module } from '../nn/index.ts'
import type { Tensor } from '../tensor/index.ts'
import { attend, type LlmContext, splitHeads } from './attention.ts'
import { CausalLM } from './causal-lm.ts'
import type { LlmConfig } from './config.ts'

class Attention extends Module {
  readonly o_proj: Linear // [S, H*D]
  readonly qkv_proj: Linear // [(H + 2K) * D, S]
  readonly #cfg: LlmConfig
  readonly #layer: number

  constructor(cfg: LlmConfig, layer: number) {
    super()
    const { hidden_size: S, head_dim: D, num_attention_heads: H, num_key_value_heads: K } = cfg
    this.o_proj = new Linear(H * D, S, { bias: false })
    this.qkv_proj = new Linear(S, (H + 2 * K) * D, { bias: false })
    this.#cfg = cfg
    this.#layer = layer
  }

  forward(x: Tensor, context: LlmContext): Tensor {
    const { num_attention_heads: H, num_key_value_heads: K, head_dim: D } = this.#cfg
    const [q, k, v] = this.qkv_proj.forward(x).split([H * D, K * D, K * D], { dim: -1 }) as [Tensor, Tensor, Tensor]
    return this.o_proj.forward(
      attend(this.#layer, splitHeads(q, H, D), splitHeads(k, K, D), splitHeads(v, K, D), context),
    )
  }

  get fused() {
    return { qkv: [this.qkv_proj], out: this.o_proj, queryNorm: null, keyNorm: null }
  }
}

class Mlp extends Module {
  readonly gate_up_proj: Linear // [2I, S]
  readonly down_proj: Linear // [S, I]

  constructor(cfg: LlmConfig) {
    super()
    this.gate_up_proj = new Linear(cfg.hidden_size, 2 * cfg.intermediate_size, { bias: false })
    this.down_proj = new Linear(cfg.intermediate_size, cfg.hidden_size, { bias: false })
  }

  forward(x: Tensor): Tensor {
    const [gate, up] = this.gate_up_proj.forward(x).chunk(2, { dim: -1 }) as [Tensor, Tensor]
    return this.down_proj.forward(up.mul(gate.silu()))
  }

  get fused() {
    return { gateUp: [this.gate_up_proj], down: this.down_proj }
  }
}

export class Phi3ForCausalLM extends CausalLM {
  constructor(cfg: LlmConfig) {
    super(cfg, { attention: (c, layer) => new Attention(c, layer), mlp: (c) => new Mlp(c) })
  }
}
