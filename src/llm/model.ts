// Language models with one interface: embeddings in, final-norm hidden states out. B rows, T tokens, S hidden, V vocabulary.
import { Mismatch } from '../core/index.ts'
import {
  cast,
  type Embedding,
  KVCache,
  Linear,
  type Module,
  type RMSNorm,
  Rope,
  type RopeTable,
  wide,
} from '../nn/index.ts'
import { arange, checkpoint, type DType, stack, type Tensor, tidy, zeros } from '../tensor/index.ts'
import type { LlmContext } from './attention.ts'
import type { FusedLayer } from './causal-lm.ts'
import type { LlmConfig } from './config.ts'
import { InternLM2ForCausalLM } from './internlm2.ts'
import { Phi3ForCausalLM } from './phi3.ts'
import { Qwen2ForCausalLM } from './qwen2.ts'

/** Device and dtype of the activations. */
export interface Placement {
  readonly device: string
  readonly dtype: DType
}

interface Parts {
  embedding: Embedding
  layers: readonly (Module & { forward(x: Tensor, context: LlmContext): Tensor; readonly fused?: FusedLayer })[]
  norm: RMSNorm
  head: Linear | Embedding
}

export type LanguageModule = Module & { readonly parts: Parts }

/** What LoRA adapts: every linear of the decoder layers; InternLM2's recipe includes the output head. */
export function loraTargets(architecture: string): (path: string) => boolean {
  const head = architecture === 'InternLM2ForCausalLM' ? /(^|\.)output$/ : /$^/
  return (path) => /(^|\.)layers\.\d+\./.test(path) || head.test(path)
}

export function buildLanguageModule(cfg: LlmConfig): LanguageModule {
  switch (cfg.architectures[0]) {
    case 'Qwen2ForCausalLM':
    case 'Qwen3ForCausalLM':
    case 'LlamaForCausalLM':
      return new Qwen2ForCausalLM(cfg)
    case 'InternLM2ForCausalLM':
      return new InternLM2ForCausalLM(cfg)
    case 'Phi3ForCausalLM':
      return new Phi3ForCausalLM(cfg)
    default: {
      const [field, expected] = ['llm_config.architectures', 'Qwen2, Qwen3, Llama, InternLM2 or Phi3 ForCausalLM']
      throw new Mismatch({ where: 'config.json', field, expected, got: cfg.architectures[0] })
    }
  }
}

export interface Pass extends Omit<LlmContext, 'rope'> {
  /** Tables [B or 1, 1, T, D] if the caller has them already; they replace `positions`. */
  rope?: RopeTable
  /** [B or 1, T], or [axes, B or 1, T] where the model has several axes; 0..T-1 when absent. */
  positions?: Tensor
  /** Added to the states [B, T, S] after layer 0, 1, ...: what a vision tower gives to the first layers besides its tokens. */
  additions?: readonly Tensor[]
  /** Recompute each layer in backward instead of storing its intermediates. */
  checkpointing?: boolean
}

/** On the CPU as what is added to the scores: the sum is faster than choosing by a boolean in every layer, and its backward costs nothing. */
function addedMask(mask: Tensor, { device, dtype }: Placement): Tensor {
  if (mask.dtype !== 'bool' || device !== 'cpu') return mask
  return zeros(mask.shape, { dtype }).maskedFill(mask.logicalNot(), Number.NEGATIVE_INFINITY)
}

/** Tables and mask are inputs, not a closure: backward recomputes the layer after the scope that created them has ended. */
function recomputed(layer: Parts['layers'][number], x: Tensor, context: LlmContext): Tensor {
  const { cos, sin } = context.rope
  const shared = context.mask ? [cos, sin, context.mask] : [cos, sin]
  return checkpoint(
    (...inputs: readonly Tensor[]) => {
      const [h, c, s, mask] = inputs as [Tensor, Tensor, Tensor, Tensor | undefined]
      return tidy(() => layer.forward(h, { ...context, rope: { cos: c, sin: s }, mask }))
    },
    x,
    ...shared,
  )
}

export interface DecoderOptions {
  /** The states given out are those before the final norm; scores are computed after it all the same. */
  statesBeforeNorm?: boolean
}

/** The decoder as functions over its module, which keeps the checkpoint's names. */
export class Decoder {
  readonly cfg: LlmConfig
  readonly module: LanguageModule
  readonly #rope: Rope
  #computeDtype: DType | undefined
  readonly #beforeNorm: boolean

  constructor(cfg: LlmConfig, module: LanguageModule, options: DecoderOptions = {}) {
    this.cfg = cfg
    this.module = module
    this.#rope = new Rope(cfg.head_dim, cfg.rope_theta, cfg.mrope_section, cfg.mrope_interleaved)
    this.#beforeNorm = options.statesBeforeNorm ?? false
  }

  /** Device and dtype of the activations: those of the opened weights, also if float32 masters train later. */
  get placement(): Placement {
    const { device, dtype } = this.module.parts.norm.weight
    return { device, dtype: this.#computeDtype ?? dtype }
  }

  /** Fixes the dtype of activations; whoever opens a model calls it before any weight becomes a float32 master. */
  computeIn(dtype: DType): void {
    this.#computeDtype = dtype
  }

  /** A key/value cache for this decoder; the caller owns it. */
  emptyCache(batch: number, capacity: number): KVCache {
    const { head_dim: dim, num_key_value_heads: heads, num_hidden_layers: layers } = this.cfg
    return new KVCache(layers, { batch, heads, capacity, dim }, this.placement)
  }

  embed(ids: Tensor): Tensor {
    const rows = this.module.parts.embedding.forward(ids)
    return this.#computeDtype && rows.dtype !== this.#computeDtype ? rows.to(this.#computeDtype) : rows
  }

  /** Whether the states given out are those before the final norm. */
  get givesRawStates(): boolean {
    return this.#beforeNorm
  }

  /** Cosine and sine of the first positions as `forward` rounds them, float32 [n, D / 2, 2]: where all axes of a position agree. */
  turns(n: number): Tensor {
    const { device, dtype } = this.placement
    return tidy(() => {
      const angles = this.#rope.angles(arange(0, n, { dtype: 'int64', device }))
      return stack([angles.cos(), angles.sin()], { dim: -1 }).to(dtype).to('float32')
    })
  }

  get headWeight(): Tensor {
    return this.module.parts.head.weight
  }

  /** Whether the head is a plain frozen matrix, so that its gradient can be taken in chunks. */
  get headIsPlain(): boolean {
    const { head } = this.module.parts
    return !(head instanceof Linear && head.lora_A) && !head.weight.requiresGrad
  }

  /** [B, T, S] -> hidden states [B, T, S], after the final norm unless the model gives out those before it. */
  forward(x: Tensor, pass: Pass = {}): Tensor {
    return tidy(() => {
      const mask = pass.mask && addedMask(pass.mask, x)
      const context: LlmContext = { ...pass, mask, rope: pass.rope ?? this.#tables(x, pass.positions) }
      let h = x
      this.module.parts.layers.forEach((layer, i) => {
        const added = pass.additions?.[i]
        const y = pass.checkpointing ? recomputed(layer, h, context) : tidy(() => layer.forward(h, context))
        h = added ? y.add(added) : y
      })
      return this.finish(h)
    })
  }

  #tables(x: Tensor, given: Tensor | undefined): RopeTable {
    const positions = given ?? arange(0, x.size(1), { dtype: 'int64', device: x.device }).unsqueeze(0)
    const { cos, sin } = this.#rope.table(positions, x)
    return { cos: cos.unsqueeze(1), sin: sin.unsqueeze(1) }
  }

  /** Rotation of one token a row and step, by its position [steps, R]: tables [steps, R, 1, 1, D], in the dtype of the activations. */
  stepRotations(positions: Tensor): RopeTable {
    return tidy(() => {
      const { cos, sin } = this.#rope.table(positions, this.placement)
      return { cos: cos.unsqueeze(2).unsqueeze(2), sin: sin.unsqueeze(2).unsqueeze(2) }
    })
  }

  /** Rotation of packed tokens: positions [1, T], or [axes, 1, T] -> tables [T, 1, D]. */
  rotation(positions: Tensor, like: Tensor): RopeTable {
    return tidy(() => {
      const { cos, sin } = this.#rope.table(positions, like) // [1, T, D]
      return { cos: cos.transpose(0, 1), sin: sin.transpose(0, 1) }
    })
  }

  /** The states after the layers -> those that `forward` gives. */
  finish(states: Tensor): Tensor {
    return this.#beforeNorm ? states : this.module.parts.norm.forward(states)
  }

  /** States as `forward` gives them -> what the head reads. */
  headInput(states: Tensor): Tensor {
    return this.#beforeNorm ? this.module.parts.norm.forward(states) : states
  }

  /** States as `forward` gives them [.., S] -> float32 logits [.., V]. */
  logits(states: Tensor): Tensor {
    return this.headScores(this.headInput(states))
  }

  /** Normed states [.., S] -> logits [.., V] in float32 or wider; the product is rounded to the weights' dtype first, as in the reference. */
  headScores(hidden: Tensor): Tensor {
    const { head } = this.module.parts
    const out = head instanceof Linear ? head.forward(hidden) : hidden.linear(cast(head.weight, hidden)) // tied: the embedding
    return wide(out)
  }
}
