// InternLM2: wqkv packs, for each key/value head, its group of query heads, then the key, then the value.
import { Embedding, Linear, Module, RMSNorm } from '../nn/index.ts'
import type { Tensor } from '../tensor/index.ts'
import { attend, type LlmContext } from './attention.ts'
import type { LlmConfig } from './config.ts'

class Attention extends Module {
  readonly wqkv: Linear // [(H + 2K) * D, S]
  readonly wo: Linear // [S, H*D]
  readonly #cfg: LlmConfig
  readonly #layer: number

  constructor(cfg: LlmConfig, layer: number) {
    super()
    const { hidden_size: S, head_dim: D, num_attention_heads: H, num_key_value_heads: K } = cfg
    this.wqkv = new Linear(S, (H + 2 * K) * D, { bias: cfg.attention_bias })
    this.wo = new Linear(H * D, S, { bias: cfg.output_bias })
    this.#cfg = cfg
    this.#layer = layer
  }

  forward(x: Tensor, context: LlmContext): Tensor {
    const { num_attention_heads: H, num_key_value_heads: K, head_dim: D } = this.#cfg
    const [B, T] = [x.size(0), x.size(1)]
    const G = H / K
    const packed = this.wqkv.forward(x).view([B, T, K, G + 2, D])
    const q = packed.slice({ dim: 3, end: G }).reshape([B, T, H, D]).transpose(1, 2)
    const k = packed.select(3, G).transpose(1, 2) // [B, K, T, D]
    const v = packed.select(3, G + 1).transpose(1, 2)
    return this.wo.forward(attend(this.#layer, q, k, v, context))
  }
}

class FeedForward extends Module {
  readonly w1: Linear // [I, S]
  readonly w3: Linear
  readonly w2: Linear // [S, I]

  constructor(cfg: LlmConfig) {
    super()
    this.w1 = new Linear(cfg.hidden_size, cfg.intermediate_size, { bias: false })
    this.w3 = new Linear(cfg.hidden_size, cfg.intermediate_size, { bias: false })
    this.w2 = new Linear(cfg.intermediate_size, cfg.hidden_size, { bias: false })
  }

  forward(x: Tensor): Tensor {
    return this.w2.forward(this.w1.forward(x).silu().mul(this.w3.forward(x)))
  }
}

class Layer extends Module {
  readonly attention: Attention
  readonly feed_forward: FeedForward
  readonly attention_norm: RMSNorm
  readonly ffn_norm: RMSNorm

  constructor(cfg: LlmConfig, layer: number) {
    super()
    this.attention = new Attention(cfg, layer)
    this.feed_forward = new FeedForward(cfg)
    this.attention_norm = new RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
    this.ffn_norm = new RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
  }

  forward(x: Tensor, context: LlmContext): Tensor {
    const h = x.add(this.attention.forward(this.attention_norm.forward(x), context))
    return h.add(this.feed_forward.forward(this.ffn_norm.forward(h)))
  }
}

class Trunk extends Module {
  readonly tok_embeddings: Embedding
  readonly layers: Layer[]
  readonly norm: RMSNorm

  constructor(cfg: LlmConfig) {
    super()
    this.tok_embeddings = new Embedding(cfg.vocab_size, cfg.hidden_size)
    this.layers = Array.from({ length: cfg.num_hidden_layers }, (_, i) => new Layer(cfg, i))
    this.norm = new RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
  }
}

export class InternLM2ForCausalLM extends Module {
  readonly model: Trunk
  readonly output?: Linear

  constructor(cfg: LlmConfig) {
    super()
    this.model = new Trunk(cfg)
    if (!cfg.tie_word_embeddings) this.output = new Linear(cfg.hidden_size, cfg.vocab_size, { bias: false })
  }

  get parts() {
    const { tok_embeddings: embedding, layers, norm } = this.model
    return { embedding, layers, norm, head: this.output ?? embedding }
  }
}
