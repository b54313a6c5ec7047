// Gradients. Checkpointing and custom functions run on a tape of segments in TypeScript, so that no JavaScript ever runs inside
// libtorch's backward (on CUDA that is another thread).
import { Mismatch } from '../core/index.ts'
import { buffer, native } from '../engine/index.ts'
import { generatorState, restoreGenerators } from './generator.ts'
import { keep, tidy } from './scope.ts'
import { Tensor, tensorOfHandle } from './tensor.ts'

function setGradMode(on: boolean): boolean {
  buffer[0] = on ? 1 : 0
  native().gradMode()
  return buffer[0] !== 0
}

export function gradEnabled(): boolean {
  const was = setGradMode(true)
  setGradMode(was)
  return was
}

function withGradMode<R>(on: boolean, fn: () => R): R {
  const was = setGradMode(on)
  try {
    return fn()
  } finally {
    setGradMode(was)
  }
}

/** No gradient is recorded inside. */
export function noGrad<R>(fn: () => R): R {
  return withGradMode(false, fn)
}

export function enableGrad<R>(fn: () => R): R {
  return withGradMode(true, fn)
}

interface Segment {
  kind: 'segment'
  rerun: (inputs: readonly Tensor[]) => readonly Tensor[]
  /** Given saved inputs and the outputs' gradients, the inputs' gradients; absent for a checkpoint. */
  vjp?: (inputs: readonly Tensor[], grads: readonly (Tensor | null)[]) => readonly (Tensor | null)[]
  inputs: readonly Tensor[]
  outs: readonly Tensor[]
  random: Tensor[] | null
}
interface Bridge {
  kind: 'bridge'
  original: Tensor
  leaf: Tensor
}

let tape: (Segment | Bridge)[] = []
const leafOf = new Map<number, Tensor>()

/** A kept handle of the same tensor: the tape's own, whatever the scopes around it do. */
function own(t: Tensor): Tensor {
  return keep(t.alias())
}

/** Cuts the graph at x once per tape: later segments that take the same x share the leaf. */
function cut(x: Tensor): Tensor {
  if (!x.requiresGrad || x.isLeaf) return own(x)
  const known = leafOf.get(x.handle)
  if (known?.alive) return own(known)
  const leaf = keep(x.detach()).requiresGrad_()
  tape.push({ kind: 'bridge', original: own(x), leaf })
  leafOf.set(x.handle, leaf)
  return own(leaf)
}

/**
 * Runs `fn` without storing its intermediates; backward() runs it again. Random numbers drawn inside are drawn the same again.
 * `fn` may use parameters by closure; every other tensor that needs a gradient must be an input.
 */
export function checkpoint<A extends readonly Tensor[], R extends Tensor | readonly Tensor[]>(
  fn: (...inputs: A) => R,
  ...inputs: A
): R {
  if (!gradEnabled()) return fn(...inputs)
  const rerun = (leaves: readonly Tensor[]) => listOf(fn(...(leaves as unknown as A)))
  const single: { value: boolean } = { value: false }
  const forward = () => {
    const result = fn(...inputs)
    single.value = result instanceof Tensor
    return listOf(result)
  }
  const outs = record(rerun, forward, inputs, undefined)
  return (single.value ? outs[0] : outs) as R
}

function listOf(value: Tensor | readonly Tensor[]): readonly Tensor[] {
  return value instanceof Tensor ? [value] : value
}

function record(
  rerun: Segment['rerun'],
  forward: () => readonly Tensor[],
  inputs: readonly Tensor[],
  vjp: Segment['vjp'],
): readonly Tensor[] {
  const leaves = inputs.map(cut)
  const random = vjp ? null : generatorState()
  const outs = noGrad(() => tidy(() => forward().map((t) => t.alias())))
  for (const out of outs) if (isDifferentiable(out)) out.requiresGrad_()
  tape.push({ kind: 'segment', rerun, vjp, inputs: leaves, outs: outs.map(own), random })
  return outs
}

function isDifferentiable(t: Tensor): boolean {
  return t.dtype === 'float32' || t.dtype === 'float64' || t.dtype === 'bfloat16' || t.dtype === 'float16'
}

/**
 * A function with its own derivative: `forward` runs without gradient, `vjp` gets the inputs and the output's gradient and
 * returns one gradient (or null) per input. Runs while backward() walks the tape.
 */
export function customFunction<A extends readonly Tensor[]>(
  forward: (...inputs: A) => Tensor,
  vjp: (inputs: A, gradOut: Tensor) => readonly (Tensor | null)[],
): (...inputs: A) => Tensor {
  return (...inputs) => {
    if (!gradEnabled()) return forward(...inputs)
    const back: Segment['vjp'] = (saved, grads) =>
      grads[0] ? vjp(saved as unknown as A, grads[0]) : inputs.map(() => null)
    return record(
      () => [],
      () => [forward(...inputs)],
      inputs,
      back,
    )[0]!
  }
}

export interface BackwardOptions {
  /** Gradient of the result with respect to the root; 1 for a scalar root. */
  gradient?: Tensor
  retainGraph?: boolean
}

/** Accumulates gradients into the leaves; then walks the tape of checkpoints and custom functions backwards. */
export function backward(root: Tensor, options: BackwardOptions = {}): void {
  if (!root.requiresGrad) {
    throw new Mismatch({
      where: 'backward',
      expected: 'a tensor that depends on a parameter with requiresGrad',
      got: `${root} without a gradient graph`,
      hint: 'it was made under noGrad(), detached, or from constants only',
    })
  }
  const here = generatorState()
  try {
    sweep([root], [options.gradient ?? null], takeTape(), options.retainGraph ?? false)
  } finally {
    restoreGenerators(here)
    for (const t of here) t.dispose()
  }
}

function takeTape(): (Segment | Bridge)[] {
  const entries = tape
  tape = []
  leafOf.clear()
  return entries
}

/** One pass of libtorch's backward, then the entries of the tape in reverse; with `retain` they stay for the next pass. */
function sweep(
  roots: readonly Tensor[],
  grads: readonly (Tensor | null)[],
  entries: (Segment | Bridge)[],
  retain: boolean,
): void {
  const walk = retain ? [...entries] : entries
  try {
    nativeBackward(roots, grads, retain || entries.some((e) => e.kind === 'bridge'))
    while (walk.length > 0) unwind(walk, retain)
  } catch (error) {
    dropTape([...entries, ...takeTape()])
    throw error
  }
  clearGrads(entries)
  if (retain) tape = entries
}

function clearGrads(entries: readonly (Segment | Bridge)[]): void {
  for (const e of entries) for (const t of e.kind === 'bridge' ? [e.leaf] : e.outs) t.setGrad(null)
}

/** Forgets checkpoint segments of a forward pass that no backward() will follow. */
export function clearTape(): void {
  dropTape(takeTape())
}

export function tapeLength(): number {
  return tape.length
}

/** Takes the last segment, or the last run of bridges, off the list; frees it unless it is needed again. */
function unwind(entries: (Segment | Bridge)[], retain: boolean): void {
  const last = entries.at(-1)!
  const done = [last]
  if (last.kind === 'segment') tidy(() => replay(last))
  else {
    while (entries.at(-1 - done.length)?.kind === 'bridge') done.push(entries.at(-1 - done.length)!)
    tidy(() => cross(done as Bridge[]))
  }
  entries.length -= done.length
  if (!retain) dropTape(done)
}

function replay(segment: Segment): void {
  const grads = segment.outs.map((out) => (out.requiresGrad ? out.grad() : null))
  if (grads.every((g) => g === null)) return
  if (segment.vjp) {
    applyVjp(segment, grads)
    return
  }
  restoreGenerators(segment.random!)
  const outs = enableGrad(() => segment.rerun(segment.inputs))
  const inner = takeTape() // checkpoints and custom functions inside the segment
  const used = outs.map((out, i) => [out, grads[i]] as const).filter(([out, g]) => g && out.requiresGrad)
  if (used.length === 0) dropTape(inner)
  else
    sweep(
      used.map((u) => u[0]),
      used.map((u) => u[1]!),
      inner,
      false,
    )
}

function applyVjp(segment: Segment, grads: readonly (Tensor | null)[]): void {
  const result = noGrad(() => segment.vjp!(segment.inputs, grads))
  segment.inputs.forEach((input, i) => {
    const g = result[i]
    if (!g || !input.requiresGrad) return
    const [expected, got] = [input, g].map((t) => `${t.dtype} [${t.shape}] on ${t.device}`) as [string, string]
    if (got !== expected)
      throw new Mismatch({ where: 'customFunction', field: `gradient of input ${i}`, expected, got })
    accumulate(input, g)
  })
}

function accumulate(leaf: Tensor, g: Tensor): void {
  const had = leaf.grad()
  leaf.setGrad(noGrad(() => (had ? had.add(g) : g.detach())))
}

function cross(bridges: readonly Bridge[]): void {
  const live = bridges.map((b) => [b.original, b.leaf.grad()] as const).filter((pair) => pair[1] !== null)
  if (live.length > 0)
    nativeBackward(
      live.map((l) => l[0]),
      live.map((l) => l[1]!),
      true,
    )
}

function dropTape(entries: readonly (Segment | Bridge)[]): void {
  clearGrads(entries)
  for (const e of entries) {
    const held = e.kind === 'bridge' ? [e.original, e.leaf] : [...e.outs, ...e.inputs, ...(e.random ?? [])]
    for (const t of held) t.dispose()
  }
}

function writeHandles(at: number, list: readonly (Tensor | null)[]): number {
  buffer[at++] = list.length
  for (const t of list) buffer[at++] = t ? t.handle : -1
  return at
}

function nativeBackward(roots: readonly Tensor[], grads: readonly (Tensor | null)[], retain: boolean): void {
  buffer[0] = retain ? 1 : 0
  writeHandles(writeHandles(1, roots), grads)
  native().backward()
}

/** Gradients of outputs with respect to inputs, returned instead of accumulated; null where an input is not used. */
export function gradOf(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: { gradOutputs?: readonly Tensor[]; retainGraph?: boolean; createGraph?: boolean } = {},
): (Tensor | null)[] {
  buffer[0] = options.retainGraph ? 1 : 0
  buffer[1] = options.createGraph ? 1 : 0
  let at = writeHandles(2, outputs)
  at = writeHandles(at, inputs)
  writeHandles(at, options.gradOutputs ?? outputs.map(() => null))
  native().gradOf()
  const handles = Array.from(buffer.subarray(0, inputs.length))
  return handles.map((h) => (h === -1 ? null : tensorOfHandle(h)))
}
