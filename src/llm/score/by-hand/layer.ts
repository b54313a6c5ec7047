// One decoder layer with a custom forward and backward: frozen weights get no gradient, adapters' gradients are added to their float32
// weights directly, and only intermediates that are expensive to recompute are kept. T tokens, S hidden, I intermediate, r rank.
import type { AdapterState, RopeTable } from '../../../nn/index.ts'
import {
  type Attended,
  cat,
  flashAttention,
  flashAttentionBackward,
  type Product,
  products,
  sideBySide,
  type Tensor,
  tidy,
  windowOf,
} from '../../../tensor/index.ts'
import type { AttentionCall, Span } from './attention-calls.ts'
import type { Elementwise, HeadLayout, Norm, PlacedGrads } from './elementwise.ts'
import { AdapterGrads } from './gradients.ts'
import type { LayerStacks, Stack } from './stacks.ts'

export interface TrainingLayer {
  readonly stacks: LayerStacks
  readonly inputNorm: Norm
  readonly middleNorm: Norm
}

/** What is kept for backward: nothing, all that is needed, or all but queries, keys and values, and gate and up unless they have a place. */
export type Keeps = 'none' | 'all' | 'inputs'

/** What all layers of a pass have in common. */
export interface PassContext {
  readonly elementwise: Elementwise
  readonly heads: HeadLayout
  readonly intermediate: number
  readonly tokens: number
  readonly calls: readonly AttentionCall[]
  readonly table: RopeTable
  /** Null: the adapters take no part. */
  readonly adapter: AdapterState | null
  readonly keeps: Keeps
}

/** Kept for backward. */
export interface Saved {
  /** The layer's input; null in the first layer, where it is the input of the pass. */
  x: Tensor | null
  qkv: Tensor | null
  attended: Tensor // [T, H D]
  logSumExps: readonly Tensor[]
  randoms: readonly (readonly Tensor[])[]
  middle: Tensor
  gateUp: Tensor | null
  /** s A x of the output and the down projection: [T, r] */
  downOfO: Tensor
  downOfDown: Tensor
}

/** y [T, rows + n r] of a stack: with adapters their t = s A x in the columns after. `place`: for y of layers without bias. */
function stacked(stack: Stack, x: Tensor, adapter: AdapterState | null, place: Tensor | null = null): Tensor {
  const [weight, bias] = adapter ? [stack.weight, stack.bias] : [stack.base, stack.baseBias]
  const factors = { a: { of: x }, b: { of: weight, transposed: true } }
  const whole: Product = place ? { ...factors, out: { of: place } } : { ...factors, bias }
  const y = place ?? 0
  const ups = (adapter ? stack.blocks : []).map(
    ({ rows, downs, up }): Product => ({
      ...{ a: { of: y, columns: downs }, b: { of: up, transposed: true } },
      ...{ out: { of: y, columns: rows }, add: true },
    }),
  )
  const [made] = products([whole, ...ups])
  return place ?? made!
}

const columns = (x: Tensor, [from, count]: Span) => x.narrow(1, from, count)

/** The states before a layer are x + the first columns of y; so are those it returns. */
export interface States {
  x: Tensor
  y: Tensor | null
}

export function layerForward(
  layer: TrainingLayer,
  { x, y }: States,
  c: PassContext,
  placeOfGateUp: Tensor | null,
): { states: States; saved: Saved | null } {
  return tidy(() => {
    const { elementwise, adapter } = c
    const { qkv: ofQkv, o, down } = layer.stacks
    const before = elementwise.addNorm(x, y, layer.inputNorm)
    const qkv = rotated(ofQkv, before.normed, c)
    before.normed.dispose() // freed before the largest tensors are allocated
    const attention = tidy(() => attend(qkv, c))
    const branch = stacked(o, attention.attended, adapter)
    const middle = elementwise.addNorm(before.sum, branch, layer.middleNorm)
    const keeps = c.keeps !== 'none'
    const tail = (t: Tensor, stack: Stack) => columns(t, tails(stack)).contiguous()
    const downOfO = keeps ? tail(branch, o) : null
    branch.dispose()
    const gateUp = stacked(layer.stacks.gateUp, middle.normed, adapter, placeOfGateUp)
    middle.normed.dispose()
    const out = stacked(down, elementwise.swiglu(gateUp, c.intermediate), adapter)
    const states = { x: middle.sum, y: out }
    if (!downOfO) return { states, saved: null }
    const saved: Saved = {
      ...attention,
      ...{ x: y ? before.sum : null, middle: middle.sum },
      ...{ qkv: c.keeps === 'all' ? qkv : null, gateUp: c.keeps === 'all' ? gateUp : placeOfGateUp },
      ...{ downOfO, downOfDown: tail(out, down) },
    }
    return { states, saved }
  })
}

/** Rotated queries and keys, values, and their t after them. */
function rotated(stack: Stack, normed: Tensor, c: PassContext): Tensor {
  const qkv = stacked(stack, normed, c.adapter)
  c.elementwise.rotate(qkv, c.heads, c.table)
  return qkv
}

/** Rows of the heads in a matrix from a column on: [count, n, D]. */
function headRows(x: Tensor, [from, count]: Span, column: number, n: number, dim: number): Tensor {
  const width = x.size(1)
  return windowOf(x, [count, n, dim], [width, dim, 1], from * width + column)
}

/** Queries, keys and values of each call. */
function headsOf(qkv: Tensor, { heads: { queries: H, keys: K, dim: D }, calls }: PassContext) {
  const take = (rows: Span, head: number, n: number) => headRows(qkv, rows, head * D, n, D)
  return calls.map((p) => {
    if (!p.twice) return [take(p.queries, 0, H), take(p.keys, H, K), take(p.keys, H + K, K)] as const
    const keys = columns(qkv.narrow(0, ...p.keys), [H * D, 2 * K * D])
    const both = cat([keys, keys])
    const rows = [0, both.size(0)] as const
    return [take(p.queries, 0, H), headRows(both, rows, 0, K, D), headRows(both, rows, K * D, K, D)] as const
  })
}

/** The gradient of keys that came twice. */
function folded(grad: Tensor, { keys: [, count], twice }: AttentionCall): Tensor {
  return twice ? grad.narrow(0, 0, count).add_(grad.narrow(0, count, count)) : grad
}

/** Two calls fill a GPU better than one after the other. */
function eachCall<R>(device: string, { calls }: PassContext, fn: (call: AttentionCall, i: number) => R): R[] {
  const [first, second] = calls
  return second
    ? sideBySide(
        device,
        () => fn(first!, 0),
        () => fn(second, 1),
      )
    : calls.map(fn)
}

function attend(qkv: Tensor, c: PassContext): Pick<Saved, 'attended' | 'logSumExps' | 'randoms'> {
  const heads = headsOf(qkv, c)
  const made = eachCall(qkv.device, c, (call, i) => flashAttention(...heads[i]!, call))
  const [whole, ofPrompt] = made as [Attended, Attended?]
  if (ofPrompt) c.elementwise.join(whole, ofPrompt)
  const attended = whole.out.flatten({ startDim: 1 })
  return { attended, logSumExps: made.map((m) => m.logSumExp), randoms: made.map((m) => m.random) }
}

/** Gradient of the rotated queries, keys and values -> of the columns before: [T, rows + n r]. */
function attendBackward(grad: Tensor, qkv: Tensor, saved: Saved, extra: number, c: PassContext): Tensor {
  const { queries, dim } = c.heads
  const heads = headsOf(qkv, c)
  const made = eachCall(grad.device, c, (call, i) => {
    const rows = (t: Tensor) => headRows(t, call.queries, 0, queries, dim)
    const whole = { out: rows(saved.attended), logSumExp: saved.logSumExps[i]!, random: saved.randoms[i]! }
    return flashAttentionBackward(rows(grad), heads[i]!, whole, call)
  })
  const placed = c.calls.map((call, i): PlacedGrads => {
    const { query, key, value } = made[i]!
    return { ...call, grads: { query, key: folded(key, call), value: folded(value, call) } }
  })
  return c.elementwise.rotateBackward(c.tokens, placed, c.heads, c.table, extra)
}

/** Gradient of a stack's outputs [T, rows + n r], whose last columns are written here -> gradient of its input. */
function ofInput(stack: Stack, grad: Tensor): Product[] {
  const part = (span: Span) => ({ of: grad, columns: span })
  const downs = stack.blocks.map(({ rows, downs, up }) => ({ a: part(rows), b: { of: up }, out: part(downs) }))
  return [...downs, { a: { of: grad }, b: { of: stack.weight } }]
}

/** Columns of a tensor from one on. */
interface Columns {
  readonly of: Tensor
  readonly from: number
}

/**
 * Gradients of a stack's adapters. `t`: columns that are s A x, n r of them, in its own tensor or where `between` writes: B's products come
 * before `between`, A's after. Gives the results of `between`.
 */
function adapterGrads(
  stack: Stack,
  grad: Tensor,
  t: Columns,
  input: Tensor,
  into: AdapterGrads,
  between: readonly Product[] = [],
): Tensor[] {
  const { parts, rank } = stack
  if (rank === 0) return products(between)
  const across = (span: Span) => ({ of: grad, columns: span, transposed: true })
  const ofUps = parts.map(({ start, rows, down }): Product => {
    return { a: across([start, rows]), b: { of: t.of, columns: [t.from + down, rank] }, wide: true }
  })
  const ofDowns: Product = { a: across(tails(stack)), b: { of: input }, wide: true, scale: into.scale } // [n r, in]
  const made = products([...ofUps, ...between, ofDowns])
  const [ups, downs] = [made.splice(0, parts.length), made.pop()!]
  parts.forEach(({ linear, down }, i) => {
    into.add(linear, parts.length === 1 ? downs : downs.narrow(0, down, rank), ups[i]!)
  })
  return made
}

/** Backward of a stack: the gradient of its input. */
function stackBackward(stack: Stack, grad: Tensor, t: Columns, input: Tensor, into: AdapterGrads): Tensor {
  return adapterGrads(stack, grad, t, input, into, ofInput(stack, grad))[0]!
}

const tails = (stack: Stack): Span => [stack.rows, stack.parts.length * stack.rank]

/** `grad` [T, S + r] of the states after the layer, its last columns free -> the same of the states before it. */
export function layerBackward(layer: TrainingLayer, saved: Saved, x: Tensor, grad: Tensor, c: PassContext): Tensor {
  const of = { ...layer, saved, c, grads: new AdapterGrads(c.adapter!) }
  const ofMiddle = feedForwardBackward(of, grad)
  const ofInput = attentionBackward(of, x, ofMiddle)
  ofMiddle.dispose()
  return ofInput
}

type Backward = TrainingLayer & { saved: Saved; c: PassContext; grads: AdapterGrads }

function feedForwardBackward({ stacks, middleNorm, saved, c, grads }: Backward, grad: Tensor): Tensor {
  return tidy(() => {
    const { elementwise } = c
    const { gateUp, down, o } = stacks
    const { normed } = elementwise.addNorm(saved.middle, null, middleNorm)
    const opened = saved.gateUp ?? stacked(gateUp, normed, c.adapter)
    const ofActivation = products(ofInput(down, grad))[0]!
    const activation = elementwise.swigluBackward(ofActivation, opened, c.intermediate)
    if (activation !== ofActivation) ofActivation.dispose() // the largest tensors of a pass: each is freed as early as possible
    adapterGrads(down, grad, { of: saved.downOfDown, from: 0 }, activation, grads)
    activation.dispose()
    // `opened` is the gradient now, but for t after it
    const ofNormed = stackBackward(gateUp, opened, { of: opened, from: gateUp.rows }, normed, grads)
    grads.hand()
    return elementwise.normBackward(ofNormed, saved.middle, middleNorm, grad, o.rank)
  })
}

function attentionBackward({ stacks, inputNorm, saved, c, grads }: Backward, x: Tensor, grad: Tensor): Tensor {
  return tidy(() => {
    const { elementwise } = c
    const { qkv, o, down } = stacks
    const { normed } = elementwise.addNorm(x, null, inputNorm)
    const turned = saved.qkv ?? rotated(qkv, normed, c)
    const ofAttended = stackBackward(o, grad, { of: saved.downOfO, from: 0 }, saved.attended, grads)
    const ofQkv = attendBackward(ofAttended, turned, saved, qkv.parts.length * qkv.rank, c)
    const ofNormed = stackBackward(qkv, ofQkv, { of: turned, from: qkv.rows }, normed, grads)
    grads.hand()
    return elementwise.normBackward(ofNormed, x, inputNorm, grad, down.rank)
  })
}
