// The decoder's layers as one function with a hand-written derivative. It covers Qwen2 and Llama layers in training: frozen weights,
// the same projections adapted in every layer, and all that read one input or none. All other cases run op by op.

import { assert } from '../../../core/index.ts'
import { TrainingKernels } from '../../../kernels/index.ts'
import type { AdapterState, Linear, RMSNorm, RopeTable } from '../../../nn/index.ts'
import {
  borrow,
  empty,
  gradEnabled,
  hasFlashAttention,
  type Loan,
  savingFunction,
  type Tensor,
  tensorsIn,
  tidy,
  untracked,
} from '../../../tensor/index.ts'
import type { CausalLayer } from '../../causal-lm.ts'
import { decodePool } from '../../generate/recorded/pool.ts'
import type { Decoder } from '../../model.ts'
import { Attention, GatedMlp } from '../../qwen2.ts'
import { type AttentionCall, attentionCalls, type Packing } from './attention-calls.ts'
import { atenElementwise, type Elementwise } from './elementwise.ts'
import { kernelElementwise } from './elementwise-kernels.ts'
import { TrainingHead } from './head.ts'
import { layerBackward, layerForward, type PassContext, type Saved, type States, type TrainingLayer } from './layer.ts'
import { type LayerStacks, loadAdapters, mastersOf, type Stack, type StackSet, stackSet } from './stacks.ts'

/** The linear layers of one decoder layer, by what they read. */
type Projections = Record<keyof LayerStacks, readonly Linear[]>

function projectionsOf(layer: CausalLayer): Projections | null {
  const { self_attn: a, mlp: m } = layer
  if (!(a instanceof Attention) || !(m instanceof GatedMlp) || a.q_norm || a.k_norm) return null
  return { qkv: [a.q_proj, a.k_proj, a.v_proj], o: [a.o_proj], gateUp: [m.gate_proj, m.up_proj], down: [m.down_proj] }
}

/** The adapters' shared switch, where these layers are covered: nothing but adapters trains, and all of them are alike. */
function sharedAdapter(decoder: Decoder): AdapterState | null {
  const { dtype } = decoder.placement
  const layers = decoder.module.parts.layers as readonly CausalLayer[]
  const projections = layers.map((layer) => ('self_attn' in layer ? projectionsOf(layer) : null))
  let shared: AdapterState | undefined
  const isFrozen = (t: Tensor | undefined) => !t || (!t.requiresGrad && t.dtype === dtype)
  for (const [i, all] of projections.entries()) {
    if (!all) return null
    const { input_layernorm: before, post_attention_layernorm: middle } = layers[i]!
    if (!isFrozen(before.weight) || !isFrozen(middle.weight)) return null
    for (const name of Object.keys(all) as (keyof Projections)[])
      for (const { weight, bias, adapter: state, lora_A, lora_B } of all[name]) {
        if (!isFrozen(weight) || !isFrozen(bias)) return null
        if (!lora_A !== !projections[0]![name][0]!.lora_A) return null
        if (!lora_A) continue
        shared ??= state
        if (!state || state !== shared || !lora_B || state.dropout > 0) return null
      }
    if ([...all.o, ...all.gateUp, ...all.down].some((l) => l.bias)) return null
  }
  return shared ?? null
}

/** Up to so many tokens every layer keeps all: there is little to save. */
const fewTokens = 2048
/** Bytes that layers keep beside their inputs, all of them together, but for lent memory. */
const maxKeptBytes = 3.75 * 2 ** 30

/** Values of a token that a layer may keep beside its inputs. */
interface Widths {
  qkv: number
  gateUp: number
}

/**
 * Layers that keep more than their inputs, also if memory is not to be saved: those whose gate and up are in lent memory, and half of the
 * others, which costs a twelfth more time for a fifth less memory, or fewer.
 */
export function numWholeLayers(layers: number, tokens: number, { qkv, gateUp }: Widths, lent: number): number {
  const most = tokens > fewTokens ? Math.floor((layers - lent) / 2) : layers - lent
  const left = maxKeptBytes - 2 * tokens * qkv * lent
  return lent + Math.max(0, Math.min(most, Math.floor(left / (2 * tokens * (qkv + gateUp)))))
}

const prepared = new WeakMap<Decoder, TrainingLayers>()

export interface LayerPass {
  /** Makes [T, S] packed as `packing` says, once the adapters are on their way to where the pass reads them; null: there is no pass. */
  input: () => Tensor | null
  /** [T], or [axes, T]: positions of the packed tokens. */
  positions: Tensor
  packing: Packing
  recompute: boolean
}

export class TrainingLayers {
  readonly #decoder: Decoder
  readonly #layers: readonly TrainingLayer[]
  readonly #stacks: readonly StackSet[]
  readonly #adapter: AdapterState
  readonly #elementwise: Elementwise
  readonly #head: TrainingHead | null
  /** How often adapters were put into the stacks. */
  #loads = 0

  private constructor(decoder: Decoder, adapter: AdapterState) {
    decodePool.clear(decoder) // recorded steps read the weights where they were
    this.#decoder = decoder
    this.#adapter = adapter
    const layers = decoder.module.parts.layers as readonly CausalLayer[]
    const projections = layers.map((layer) => projectionsOf(layer)!)
    const setOf = (name: keyof LayerStacks) =>
      stackSet(
        projections.map((all) => all[name]),
        projections[0]![name][0]!.lora_A ? adapter.rank : 0,
      )
    const sets = { qkv: setOf('qkv'), o: setOf('o'), gateUp: setOf('gateUp'), down: setOf('down') }
    const stacksOf = (i: number): LayerStacks => {
      const of = (name: keyof LayerStacks) => sets[name].stacks[i]!
      return { qkv: of('qkv'), o: of('o'), gateUp: of('gateUp'), down: of('down') }
    }
    this.#layers = layers.map((layer, i) => ({
      stacks: stacksOf(i),
      inputNorm: normOf(layer.input_layernorm),
      middleNorm: normOf(layer.post_attention_layernorm),
    }))
    const kernels = kernelsOf(decoder)
    this.#elementwise = kernels ? kernelElementwise(kernels) : atenElementwise
    this.#head = kernels && decoder.headIsPlain ? new TrainingHead(decoder.module.parts.head, kernels) : null
    this.#stacks = Object.values(sets)
  }

  /** The layers of a decoder; null if the pass must use libtorch's derivative: without kernels that is faster, unless `anywhere`. */
  static of(decoder: Decoder, anywhere = false): TrainingLayers | null {
    const layers = TrainingLayers.open(decoder, anywhere)
    if (!layers) return null
    return layers.#holds() ? layers : null
  }

  /**
   * Moves the decoder's weights into stacks, once; null if the layers are not covered. Call it before anything captures the addresses
   * of the weights, and while the adapters are enabled: merged weights are not the layers' own.
   */
  static open(decoder: Decoder, anywhere = false): TrainingLayers | null {
    if (!anywhere && !kernelsOf(decoder)) return null
    const known = prepared.get(decoder)
    if (known) return known
    const adapter = sharedAdapter(decoder)
    if (!adapter?.enabled || adapter.rank % 8 !== 0) return null
    const layers = new TrainingLayers(decoder, adapter)
    prepared.set(decoder, layers)
    return layers
  }

  /** Whether the weights are still those the stacks were made of, and train as they did. */
  #holds(): boolean {
    const records = gradEnabled()
    if (this.#adapter.dropout > 0 || (records && !this.#adapter.enabled)) return false
    const holds = (stack: Stack) => stack.inPlace && stack.trainsAdapters(this.#adapter, records)
    return this.#stacks.every(({ stacks }) => stacks.every(holds))
  }

  /** Scores states by kernels; null: op by op. */
  get head(): TrainingHead | null {
    return this.#head?.inPlace ? this.#head : null
  }

  /** Frees a decoder's stacks; the layers keep their weights. */
  static release(decoder: Decoder): void {
    const layers = prepared.get(decoder)
    if (layers) for (const owner of [...layers.#stacks.flatMap(({ stacks }) => stacks), layers.#head]) owner?.dispose()
    prepared.delete(decoder)
  }

  /** Packed embeddings [T, S] -> states before the final norm [T, S]. */
  forward({ input, positions, packing, recompute }: LayerPass): Tensor | null {
    const adapter = this.#adapter.enabled ? this.#adapter : null
    const keeps = !gradEnabled() ? 'none' : recompute ? 'inputs' : 'all'
    const masters = mastersOf(this.#stacks)
    let loaded = -1
    const load = () => {
      if (!adapter || this.#loads === loaded) return // nobody else's values came between
      loadAdapters(this.#stacks, masters, adapter)
      loaded = ++this.#loads
    }
    const { cfg } = this.#decoder
    const heads = { queries: cfg.num_attention_heads, keys: cfg.num_key_value_heads, dim: cfg.head_dim }
    const intermediate = cfg.intermediate_size
    const fixed = { elementwise: this.#elementwise, heads, intermediate, adapter, keeps } as const
    const run = savingFunction<[Tensor], Kept>(
      (h) =>
        untracked(() =>
          tidy(() => {
            const table = this.#decoder.rotation(positions, h)
            const placed = { table, calls: attentionCalls(packing, h.device) }
            const loan = keeps === 'none' ? null : borrow(h)
            const { out, layers } = this.#run(h, { ...fixed, ...placed, tokens: packing.tokens }, loan)
            return { out, saved: keeps === 'none' ? null : { ...placed, layers, loan } }
          }),
        ),
      ([h], kept, grad) =>
        untracked(() => {
          load()
          const { layers, loan, ...placed } = kept!
          assert(loan?.holds ?? true, 'nobody samples between a pass and its backward')
          const out = this.#back(h, layers, grad, { ...fixed, ...placed, tokens: packing.tokens })
          loan?.end()
          return [out]
        }),
    )
    untracked(load)
    const x = input()
    return x && run(x)
  }

  #run(x: Tensor, context: PassContext, loan: Loan | null): { out: Tensor; layers: Saved[] } {
    return tidy(() => {
      const layers: Saved[] = []
      let states: States = { x, y: null }
      const { rows, parts, rank } = this.#layers[0]!.stacks.gateUp
      const gateUp = [context.tokens, rows + (context.adapter ? parts.length * rank : 0)] as const
      const lent = Math.min(this.#layers.length, loan?.roomFor(gateUp) ?? 0)
      const [whole, others] = [this.#numWhole(context.tokens, lent) - lent, this.#layers.length - lent]
      const upTo = (i: number) => Math.floor((i * whole) / others) // of those after the ones in lent memory
      for (const [i, layer] of this.#layers.entries()) {
        const place = i < lent ? loan!.take(gateUp) : null
        const light = context.keeps === 'all' && !place && upTo(i - lent) === upTo(i - lent + 1)
        const of = light ? { ...context, keeps: 'inputs' as const } : context
        const { states: next, saved } = layerForward(layer, states, of, place)
        if (saved) layers.push(saved)
        states.y?.dispose()
        if (!saved && states.y) states.x.dispose()
        states = next
      }
      return { out: states.x.add(states.y!.narrow(1, 0, x.size(1))), layers }
    })
  }

  #numWhole(tokens: number, lent: number): number {
    const { qkv, gateUp } = this.#layers[0]!.stacks
    const widths = { qkv: qkv.weight.size(0), gateUp: gateUp.weight.size(0) }
    return numWholeLayers(this.#layers.length, tokens, widths, lent)
  }

  #back(x: Tensor, saved: readonly Saved[], grad: Tensor, context: PassContext): Tensor {
    return tidy(() => {
      const [T, S] = x.shape as [number, number]
      let ahead = empty([T, S + this.#layers[0]!.stacks.down.rank], { dtype: x.dtype, device: x.device })
      ahead.narrow(1, 0, S).copy_(grad)
      for (let i = this.#layers.length - 1; i >= 0; i--) {
        const before = layerBackward(this.#layers[i]!, saved[i]!, saved[i]!.x ?? x, ahead, context)
        ahead.dispose()
        ahead = before
        for (const t of tensorsIn(saved[i])) t.dispose()
      }
      return ahead.narrow(1, 0, S).contiguous()
    })
  }
}

/** What a pass keeps for backward. */
type Kept = { table: RopeTable; calls: readonly AttentionCall[]; layers: readonly Saved[]; loan: Loan | null } | null

/** Kernels for the decoder's shape in bfloat16; null if there are none. */
function kernelsOf({ placement, cfg }: Decoder): TrainingKernels | null {
  if (placement.dtype !== 'bfloat16' || !hasFlashAttention(placement.device)) return null
  const shape = { hidden: cfg.hidden_size, inner: cfg.intermediate_size, heads: cfg.num_attention_heads }
  return TrainingKernels.of({ ...shape, groups: cfg.num_key_value_heads, dim: cfg.head_dim }, placement.device)
}

const normOf = (norm: RMSNorm) => ({ weight: norm.weight, eps: norm.eps })
