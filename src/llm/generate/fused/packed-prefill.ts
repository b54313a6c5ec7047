// Reading prompts on a device that decodes with the custom kernels: tokens packed without padding, every layer in few launches. What prompts of
// one image have in common is read once. T tokens, B prompts, S hidden, H query and K key/value heads, D head size.
import { TrainingKernels } from '../../../kernels/index.ts'
import {
  cat,
  empty,
  flashAttention,
  hasFlashAttention,
  int64Tensor,
  type Tensor,
  tidy,
  tidyNoGrad,
  windowOf,
} from '../../../tensor/index.ts'
import type { Decoder } from '../../model.ts'
import { allInputsOf, type PromptedModel, type PromptIds, positionsOf } from '../../prompted-model.ts'
import { attentionCalls, type Packing, packingOf, startsOf } from '../../score/by-hand/attention-calls.ts'
import type { Elementwise, HeadLayout } from '../../score/by-hand/elementwise.ts'
import { kernelElementwise } from '../../score/by-hand/elementwise-kernels.ts'
import type { PassContext } from '../../score/by-hand/layer.ts'
import { PackedCache } from './packed-cache.ts'
import { type Group, type KnownRows, knownPrefixes } from './prefixes.ts'
import { currentWeights, type LayerWeights, multiply, notFused, shapeOf } from './weights.ts'

export interface PackedPrompts {
  cache: PackedCache
  /** [B] columns of the cache that each prompt takes, from the first on. */
  lengths: number[]
  /** States of each prompt's last token, [B, S]. */
  last: Tensor
}

/** Null if torch's ops must read the prompts. */
export function packedPrefill<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  groups: readonly Group[],
): PackedPrompts | null {
  const { decoder, placement } = model
  if (!hasFlashAttention(placement.device) || notFused(decoder)) return null
  const kernels = TrainingKernels.of(shapeOf(decoder), placement.device)
  return kernels && readPacked(model, prompts, groups, kernelElementwise(kernels))
}

/** The same by the given functions between products, on any device, where weights lie packed. */
export function readPacked<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  groups: readonly Group[],
  elementwise: Elementwise,
): PackedPrompts | null {
  const { decoder } = model
  if (decoder.module.parts.layers.some(({ fused }) => !fused || fused.attention.queryNorm)) return null
  return tidyNoGrad(() => {
    const inputs = allInputsOf(model, prompts)
    if (inputs.some(({ additions }) => additions.length > 0)) return null
    const known = knownPrefixes.find(model, prompts, groups)
    const plan = planOf(prompts, groups, known)
    const x = cat(plan.stretches.map(({ b, from, count }) => inputs[b]!.embeddings.squeeze(0).narrow(0, from, count)))
    const table = decoder.rotation(packedPositions(model, prompts, plan), x)
    const heads = headsOf(decoder)
    const rows = roomForRows(decoder, heads, known, x.size(0))
    const calls = attentionCalls(plan.packing, x.device)
    const states = readLayers(decoder, x, { elementwise, table, known: knownTokens(known), heads, calls, rows })
    if (!known) knownPrefixes.keep(model, plan.shared, rows)
    const last = decoder.finish(states.indexSelect(0, index(plan.last, x.device)))
    return { cache: new PackedCache(rows, plan.rowsOf, heads), lengths: prompts.map((p) => p.ids.length), last }
  })
}

/** Tokens of a prompt that are read, and the row of the first of them. */
interface Stretch {
  b: number
  from: number
  count: number
}

interface Plan {
  packing: Packing
  /** In the order in which they are packed. */
  stretches: readonly Stretch[]
  /** Row of each prompt's last token among those read. */
  last: readonly number[]
  /** Rows of keys and values of each prompt, known ones before those read. */
  rowsOf: readonly (readonly number[])[]
  /** The first prompt of each group with the rows that the group shares. */
  shared: readonly { prompt: PromptIds; start: number; length: number }[]
}

function range(from: number, count: number): number[] {
  const out: number[] = []
  for (let i = 0; i < count; i++) out.push(from + i) // Array.from takes ten times as long
  return out
}
const index = (values: readonly number[], device: string) => int64Tensor(values, { device })

function planOf(prompts: readonly PromptIds[], groups: readonly Group[], known: KnownRows | null): Plan {
  const prefixes = known?.lengths ?? groups.map((g) => g.prefix)
  const lengths = groups.map(({ members }, g) => ({
    prompt: prefixes[g]!,
    read: members.map((b) => prompts[b]!.ids.length - prefixes[g]!),
  }))
  const packing = known ? afterKnown(lengths) : packingOf(lengths)
  const order = groups.flatMap(({ members }, g) => members.map((b) => ({ b, g })))
  const [last, rowsOf]: [number[], number[][]] = [[], []]
  const tails = order.map(({ b, g }, i) => {
    const [from, start] = [prefixes[g]!, packing.readStarts[i]!]
    const count = prompts[b]!.ids.length - from
    last[b] = start + count - 1
    rowsOf[b] = [...range(packing.promptStarts[g]!, from), ...range(knownTokens(known) + start, count)]
    return { row: start, b, from, count }
  })
  const heads = known
    ? []
    : groups.map(({ members }, g) => ({ row: packing.promptStarts[g]!, b: members[0]!, from: 0, count: prefixes[g]! }))
  return {
    ...{ packing, last, rowsOf },
    stretches: [...heads, ...tails].sort((a, b) => a.row - b.row),
    shared: groups.map(({ members }, g) => {
      return { prompt: prompts[members[0]!]!, start: packing.promptStarts[g]!, length: prefixes[g]! }
    }),
  }
}

const knownTokens = (known: KnownRows | null) => known?.lengths.reduce((a, b) => a + b, 0) ?? 0

/** Only what comes after prompts whose keys are known: what it sees of itself, and what it sees of them. */
function afterKnown(lengths: readonly { prompt: number; read: readonly number[] }[]): Packing {
  const prompts = startsOf(lengths.map((l) => l.prompt))
  const reads = startsOf(lengths.flatMap((l) => l.read))
  const groups = startsOf(lengths.map((l) => startsOf(l.read).at(-1)!))
  const [all, seen] = [[0, reads.at(-1)!] as const, [0, prompts.at(-1)!] as const]
  return {
    tokens: all[1],
    shared: true,
    promptStarts: prompts.slice(0, -1),
    readStarts: reads.slice(0, -1),
    order: [...lengths.keys()],
    calls: [
      { queries: all, keys: all, queryStarts: reads, keyStarts: reads, causal: true },
      { queries: all, keys: seen, queryStarts: groups, keyStarts: prompts, causal: false },
    ],
  }
}

/** [1, T], or [axes, 1, T] */
function packedPositions<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  { stretches, packing: { tokens } }: Plan,
): Tensor {
  const stand = prompts.map((prompt) => positionsOf(model, prompt).axes)
  const axes = stand[0]!.length
  const flat = new Int32Array(axes * tokens)
  let at = 0
  for (let axis = 0; axis < axes; axis++)
    for (const { b, from, count } of stretches) {
      flat.set(stand[b]![axis]!.subarray(from, from + count), at)
      at += count
    }
  return int64Tensor(flat, axes === 1 ? [1, tokens] : [axes, 1, tokens], { device: model.placement.device })
}

const headsOf = ({ cfg }: Decoder): HeadLayout => {
  return { queries: cfg.num_attention_heads, keys: cfg.num_key_value_heads, dim: cfg.head_dim }
}

/** For keys and values of all layers, known ones in place: [L, N, 2K D] */
function roomForRows({ cfg, placement }: Decoder, heads: HeadLayout, known: KnownRows | null, read: number): Tensor {
  const N = knownTokens(known) + read
  const rows = empty([cfg.num_hidden_layers, N, 2 * heads.keys * heads.dim], placement)
  if (known) tidy(() => void rows.narrow(1, 0, N - read).copy_(known.rows))
  return rows
}

interface Pass extends Pick<PassContext, 'elementwise' | 'calls' | 'table' | 'heads'> {
  rows: Tensor // [L, N, 2K D], filled layer by layer
  /** Rows that are there before those read. */
  known: number
}

/** Packed embeddings [T, S] -> the states after all layers. */
function readLayers(decoder: Decoder, x: Tensor, pass: Pass): Tensor {
  const { layers } = currentWeights(decoder)
  const eps = decoder.cfg.rms_norm_eps
  let states: { x: Tensor; y: Tensor | null } = { x, y: null }
  layers.forEach((layer, i) => {
    const next = tidy(() => readLayer(layer, states, eps, i, pass))
    for (const t of states.y ? [states.x, states.y] : []) t.dispose()
    states = next
  })
  return states.x.add(states.y!)
}

function readLayer(w: LayerWeights, { x, y }: { x: Tensor; y: Tensor | null }, eps: number, i: number, pass: Pass) {
  const { elementwise, table, heads } = pass
  const before = elementwise.addNorm(x, y, { weight: w.inputNorm, eps })
  const qkv = multiply(before.normed, w, 'qkv')
  elementwise.rotate(qkv, heads, table)
  const attended = attend(i, qkv, pass)
  const middle = elementwise.addNorm(before.sum, multiply(attended, w, 'out'), { weight: w.outputNorm, eps })
  const gateUp = multiply(middle.normed, w, 'gateUp')
  const inner = elementwise.swiglu(gateUp, gateUp.size(1) / 2)
  return { x: middle.sum, y: multiply(inner, w, 'down') }
}

/** What prompts see of themselves; what comes after them sees itself and them. Calls of the same queries are joined. */
function attend(layer: number, qkv: Tensor, { elementwise, calls, known, heads, rows }: Pass): Tensor {
  const { queries: H, keys: K, dim: D } = heads
  const [T, wide] = qkv.shape as [number, number]
  const [N, W] = [rows.size(1), rows.size(2)]
  const first = layer * N * W
  const own = windowOf(qkv, [T, W], [wide, 1], H * D)
  windowOf(rows, [T, W], [W, 1], first + known * W).copy_(own)
  const made = calls.map((call, i) => {
    const [[from, count], [start, n]] = [call.queries, call.keys]
    const at = first + (known > 0 && i === 0 ? known + start : start) * W // after known rows the second call is over them
    const q = windowOf(qkv, [count, H, D], [wide, D, 1], from * wide)
    const keys = (column: number) => windowOf(rows, [n, K, D], [W, D, 1], at + column)
    return flashAttention(q, keys(0), keys(K * D), call)
  })
  const [whole, part] = made
  if (part) elementwise.join(whole!, part)
  return whole!.out.flatten({ startDim: 1 })
}
