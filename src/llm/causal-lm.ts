// The decoder Qwen2, Qwen3, Llama and Phi-3 share: names, norms, residuals. They differ in attention and feed-forward alone.
import { Embedding, Linear, Module, RMSNorm } from '../nn/index.ts'
import type { Tensor } from '../tensor/index.ts'
import type { LlmContext } from './attention.ts'
import type { LlmConfig } from './config.ts'

/** The parts of a layer that the custom kernels compute; linears in a list read the same input. */
export interface FusedLayer {
  inputNorm: RMSNorm
  attention: { qkv: readonly Linear[]; out: Linear; queryNorm: RMSNorm | null; keyNorm: RMSNorm | null }
  outputNorm: RMSNorm
  mlp: { gateUp: readonly Linear[]; down: Linear }
}

export interface Parts {
  attention: (
    cfg: LlmConfig,
    layer: number,
  ) => Module & { fused: FusedLayer['attention']; forward(x: Tensor, context: LlmContext): Tensor }
  mlp: (cfg: LlmConfig) => Module & { fused: FusedLayer['mlp']; forward(x: Tensor): Tensor }
}

export class CausalLayer extends Module {
  readonly input_layernorm: RMSNorm
  readonly self_attn: ReturnType<Parts['attention']>
  readonly post_attention_layernorm: RMSNorm
  readonly mlp: ReturnType<Parts['mlp']>

  constructor(cfg: LlmConfig, layer: number, parts: Parts) {
    super()
    this.input_layernorm = new RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
    this.self_attn = parts.attention(cfg, layer)
    this.post_attention_layernorm = new RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
    this.mlp = parts.mlp(cfg)
  }

  forward(x: Tensor, context: LlmContext): Tensor {
    const h = x.add(this.self_attn.forward(this.input_layernorm.forward(x), context))
    return h.add(this.mlp.forward(this.post_attention_layernorm.forward(h)))
  }

  get fused(): FusedLayer {
    const [attention, mlp] = [this.self_attn.fused, this.mlp.fused]
    return { inputNorm: this.input_layernorm, attention, outputNorm: this.post_attention_layernorm, mlp }
  }
}

export class Trunk extends Module {
  readonly embed_tokens: Embedding
  readonly layers: CausalLayer[]
  readonly norm: RMSNorm

  constructor(cfg: LlmConfig, parts: Parts) {
    super()
    this.embed_tokens = new Embedding(cfg.vocab_size, cfg.hidden_size)
    this.layers = Array.from({ length: cfg.num_hidden_layers }, (_, i) => new CausalLayer(cfg, i, parts))
    this.norm = new RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
  }
}

export class CausalLM extends Module {
  readonly model: Trunk
  readonly lm_head?: Linear

  constructor(cfg: LlmConfig, parts: Parts) {
    super()
    this.model = new Trunk(cfg, parts)
    if (!cfg.tie_word_embeddings) this.lm_head = new Linear(cfg.hidden_size, cfg.vocab_size, { bias: false })
  }

  get parts() {
    const { embed_tokens: embedding, layers, norm } = this.model
    return { embedding, layers, norm, head: this.lm_head ?? embedding }
  }
}
