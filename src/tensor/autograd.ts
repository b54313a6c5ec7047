// Gradients: libtorch's backward, with checkpoints and custom functions on a tape (tape.ts) between its pieces.
import { Mismatch } from '../core/index.ts'
import { buffer, native } from '../engine/index.ts'
import { isFloating } from './dtype.ts'
import { generatorState, restoreGenerators } from './generator.ts'
import { endLoans } from './lent-memory.ts'
import { keep, tensorsIn, tidy } from './scope.ts'
import {
  type Bridge,
  clearGrad,
  type Entry,
  nativeBackward,
  own,
  reaches,
  type Segment,
  shareGraph,
  Tape,
  writeHandles,
} from './tape.ts'
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

/** Runs `fn` without gradient and frees every tensor it created except those it returns. */
export function tidyNoGrad<R>(fn: Parameters<typeof tidy<R>>[0]): R {
  return noGrad(() => tidy<R>(fn))
}

/** Records gradients inside `fn`. */
export function enableGrad<R>(fn: () => R): R {
  return withGradMode(true, fn)
}

/** Skips autograd, including its tracking of views and in-place writes: for functions with a custom derivative. */
export function untracked<R>(fn: () => R): R {
  buffer[0] = 1
  native().untracked()
  try {
    return fn()
  } finally {
    buffer[0] = 0
    native().untracked()
  }
}

/** The tape that is being recorded; recomputing a checkpoint uses a separate one. */
let tape = new Tape()

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
  const outs = record(rerun, () => ({ outs: forward(), saved: [] }), inputs, undefined)
  return (single.value ? outs[0] : outs) as R
}

function listOf(value: Tensor | readonly Tensor[]): readonly Tensor[] {
  return value instanceof Tensor ? [value] : value
}

function record(
  rerun: Segment['rerun'],
  forward: () => { outs: readonly Tensor[]; saved: readonly Tensor[] },
  inputs: readonly Tensor[],
  vjp: Segment['vjp'],
): readonly Tensor[] {
  const cuts = inputs.map((x) => tape.cut(x))
  const random = vjp ? null : generatorState()
  // separate tensors: what `fn` hands through, an input or a constant, must not come to require a gradient
  const { outs, saved } = tidyNoGrad(() => {
    const result = forward()
    return { outs: result.outs.map((t) => t.detach()), saved: result.saved }
  })
  for (const out of outs) if (isFloating(out.dtype)) out.requiresGrad_()
  for (const t of saved) keep(t)
  const bridges = cuts.flatMap(({ bridge }) => bridge ?? [])
  tape.record({ rerun, vjp, inputs: cuts.map(({ input }) => input), outs: outs.map(own), saved, random }, bridges)
  return outs
}

/**
 * A function with its own derivative: `forward` runs without gradient, `vjp` gets the inputs and the output's gradient and
 * returns one gradient (or null) per input. Runs while backward() walks the tape.
 */
export function customFunction<A extends readonly Tensor[]>(
  forward: (...inputs: A) => Tensor,
  vjp: (inputs: A, gradOut: Tensor) => readonly (Tensor | null)[],
): (...inputs: A) => Tensor {
  return savingFunction<A, null>(
    (...inputs) => ({ out: forward(...inputs), saved: null }),
    (inputs, _, gradOut) => vjp(inputs, gradOut),
  )
}

/**
 * The same, with intermediates that `forward` hands to `vjp`: tensors created by `forward`, in a value of any form. The tape frees them when
 * it is done with the function; `vjp` may free those earlier that it has used up, if no graph is retained.
 */
export function savingFunction<A extends readonly Tensor[], S>(
  forward: (...inputs: A) => { out: Tensor; saved: S },
  vjp: (inputs: A, saved: S, gradOut: Tensor) => readonly (Tensor | null)[],
): (...inputs: A) => Tensor {
  return (...inputs) => {
    if (!gradEnabled()) return forward(...inputs).out
    let held: S | undefined
    const run = () => {
      const { out, saved } = forward(...inputs)
      held = saved
      return { outs: [out], saved: tensorsIn(saved) }
    }
    const back: Segment['vjp'] = (leaves, grads) =>
      grads[0] ? vjp(leaves as unknown as A, held as S, grads[0]) : inputs.map(() => null)
    return record(() => [], run, inputs, back)[0]!
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
      hint: 'it was computed under noGrad(), detached, or from constants only',
    })
  }
  const here = generatorState()
  try {
    sweep(tape, [root], [options.gradient ?? null], options.retainGraph ?? false)
    if (!options.retainGraph) tape.collect()
  } catch (error) {
    tape.clear()
    throw error
  } finally {
    restoreGenerators(here)
    for (const t of here) t.dispose()
  }
}

/**
 * One pass of libtorch's backward, then the tape in reverse. Entries that get a gradient belong to the roots and are used up, unless
 * `retain`; the others stay. Later entries never get a gradient from earlier ones, so one walk meets all.
 */
function sweep(over: Tape, roots: readonly Tensor[], grads: readonly (Tensor | null)[], retain: boolean): void {
  const entries = [...over.entries]
  nativeBackward(roots, grads, retain || shareGraph(roots, originals(entries)))
  while (entries.length > 0) {
    const reached = takeLast(entries).filter(hasGrad)
    if (reached.length === 0) continue
    tidy(() => {
      if (reached[0]!.kind === 'segment') replay(reached[0]!)
      else cross(over, reached as Bridge[], retain, entries)
    })
    if (retain) reached.forEach(clearGrad)
    else release(over, reached)
  }
}

/** The last segment, or the last run of bridges, which one pass crosses together. */
function takeLast(entries: Entry[]): Entry[] {
  const taken = [entries.pop()!]
  if (taken[0]!.kind === 'segment') return taken
  while (entries.at(-1)?.kind === 'bridge') taken.push(entries.pop()!)
  return taken
}

function hasGrad(entry: Entry): boolean {
  return tidy(() =>
    (entry.kind === 'bridge' ? [entry.leaf] : entry.outs).some((t) => t.requiresGrad && t.grad() !== null),
  )
}

/** A bridge that segments of other roots still take stays, without the gradient that has gone over it. */
function release(over: Tape, done: readonly Entry[]): void {
  const stays = (e: Entry) => e.kind === 'bridge' && over.isTaken(e)
  const kept = done.filter(stays)
  kept.forEach(clearGrad)
  over.drop(done.filter((e) => !kept.includes(e)))
}

const originals = (entries: readonly Entry[]) => entries.flatMap((e) => (e.kind === 'bridge' ? [e.original] : []))

/** Forgets checkpoint segments of a forward pass that no backward() will follow, and what it keeps in lent memory. */
export function clearTape(): void {
  tape.clear()
  endLoans()
}

export function tapeLength(): number {
  return tape.length
}

function replay(segment: Segment): void {
  const grads = segment.outs.map((out) => (out.requiresGrad ? out.grad() : null))
  if (segment.vjp) {
    applyVjp(segment, grads)
    return
  }
  restoreGenerators(segment.random!)
  const outer = tape
  const inner = new Tape() // checkpoints and custom functions inside the segment
  tape = inner
  try {
    const outs = enableGrad(() => segment.rerun(segment.inputs))
    const used = outs.map((out, i) => [out, grads[i]] as const).filter(([out, g]) => g && out.requiresGrad)
    const [roots, rootGrads] = [used.map((u) => u[0]), used.map((u) => u[1]!)]
    if (used.length > 0) sweep(inner, roots, rootGrads, false)
  } finally {
    inner.clear()
    tape = outer
  }
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

/** The leaf's gradient has separate memory: a derivative may give one tensor for two inputs, and gradients are scaled in place. */
function accumulate(leaf: Tensor, g: Tensor): void {
  const had = leaf.grad()
  leaf.setGrad(noGrad(() => (had ? had.add(g) : g.detach().clone())))
}

/** Saved values are left where a bridge that comes later, or that other roots take, passes them again. */
function cross(over: Tape, bridges: readonly Bridge[], retain: boolean, later: readonly Entry[]): void {
  const roots = bridges.map((b) => b.original)
  const again = retain || bridges.some((b) => over.isTaken(b)) || shareGraph(roots, originals(later))
  const grads = bridges.map((b) => b.leaf.grad())
  nativeBackward(roots, grads, again)
}

/** Gradients of outputs with respect to inputs, returned instead of accumulated; null if an input is not used. Not through a tape. */
export function gradOf(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: { gradOutputs?: readonly Tensor[]; retainGraph?: boolean; createGraph?: boolean } = {},
): (Tensor | null)[] {
  requireNoTape(outputs, inputs)
  buffer[0] = options.retainGraph ? 1 : 0
  buffer[1] = options.createGraph ? 1 : 0
  let at = writeHandles(2, outputs)
  at = writeHandles(at, inputs)
  writeHandles(at, options.gradOutputs ?? outputs.map(() => null))
  native().gradOf()
  const handles = Array.from(buffer.subarray(0, inputs.length))
  return handles.map((h) => (h === -1 ? null : tensorOfHandle(h)))
}

/** The graph before a checkpoint or a custom function is not libtorch's: what comes before it would come out as null. */
function requireNoTape(outputs: readonly Tensor[], inputs: readonly Tensor[]): void {
  const results = tape.entries.flatMap((e) => (e.kind === 'segment' ? e.outs : []))
  if (results.length === 0) return
  const wanted = reaches(inputs, results)
  if (!reaches(outputs, results).some((reached, i) => reached && !wanted[i])) return
  throw new Mismatch({
    where: 'gradOf',
    expected: 'a graph without checkpoints and custom functions between outputs and inputs',
    got: 'one of them on the way',
    hint: 'use backward(), or leave checkpointing off',
  })
}
