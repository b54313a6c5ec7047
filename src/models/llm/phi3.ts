// Phi-3: packed projections, rows ordered q | k | v and gate | up; no biases.
import { Embedding, Linear, Module, RMSNorm } from '../../nn/index.ts'
import type { Tensor } from '../../tensor/index.ts'
import { attend, type LlmContext, splitHeads } from './attention.ts'
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
}

class Layer extends Module {
  readonly self_attn: Attention
  readonly mlp: Mlp
  readonly input_layernorm: RMSNorm
  readonly post_attention_layernorm: RMSNorm

  constructor(cfg: LlmConfig, layer: number) {
    super()
    this.self_attn = new Attention(cfg, layer)
    this.mlp = new Mlp(cfg)
    this.input_layernorm = new RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
    this.post_attention_layernorm = new RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
  }

  forward(x: Tensor, context: LlmContext): Tensor {
    const h = x.add(this.self_attn.forward(this.input_layernorm.forward(x), context))
    return h.add(this.mlp.forward(this.post_attention_layernorm.forward(h)))
  }
}

class Trunk extends Module {
  readonly embed_tokens: Embedding
  readonly layers: Layer[]
  readonly norm: RMSNorm

  constructor(cfg: LlmConfig) {
    super()
    this.embed_tokens = new Embedding(cfg.vocab_size, cfg.hidden_size)
    this.layers = Array.from({ length: cfg.num_hidden_layers }, (_, i) => new Layer(cfg, i))
    this.norm = new RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
  }
}

export class Phi3ForCausalLM extends Module {
  readonly model: Trunk
  readonly lm_head?: Linear

  constructor(cfg: LlmConfig) {
    super()
    this.model = new Trunk(cfg)
    if (!cfg.tie_word_embeddings) this.lm_head = new Linear(cfg.hidden_size, cfg.vocab_size, { bias: false })
  }

  get parts() {
    return {
      embedding: this.model.embed_tokens,
      layers: this.model.layers,
      norm: this.model.norm,
      head: this.lm_head ?? this.model.embed_tokens,
    }
  }
}
