// The tape of checkpoints and custom functions. libtorch's graph ends at a segment's results and begins again at its inputs; backward
// walks the segments in TypeScript, so that no JavaScript ever runs inside libtorch's backward (on CUDA that is another thread).
import { Mismatch } from '../core/index.ts'
import { buffer, native } from '../engine/index.ts'
import { keep } from './scope.ts'
import type { Tensor } from './tensor.ts'

/** A checkpoint, which is run again, or a custom function, which has its own derivative. */
export interface Segment {
  kind: 'segment'
  rerun: (inputs: readonly Tensor[]) => readonly Tensor[]
  /** Given saved inputs and the outputs' gradients, the inputs' gradients; absent for a checkpoint. */
  vjp?: (inputs: readonly Tensor[], grads: readonly (Tensor | null)[]) => readonly (Tensor | null)[]
  inputs: readonly Tensor[]
  /** The bridges whose leaves are among the inputs. */
  bridges: readonly Bridge[]
  outs: readonly Tensor[]
  /** Intermediates that the derivative needs, freed with the segment. */
  saved: readonly Tensor[]
  random: Tensor[] | null
}

/** Where libtorch's graph was cut in front of a segment: the segment takes `leaf`, whose gradient continues into `original`. */
export interface Bridge {
  kind: 'bridge'
  original: Tensor
  leaf: Tensor
  /** Handle under which the caller knows the original. */
  key: number
}

export type Entry = Segment | Bridge

/** A kept handle of the same tensor: the tape's own, whatever the scopes around it do. */
export function own(t: Tensor): Tensor {
  return keep(t.alias())
}

/** Handles, graphs and saved values that hold a tensor. */
function owners(t: Tensor): number {
  buffer[0] = t.handle
  native().useCount()
  return buffer[0]!
}

const used = 'a checkpoint or custom function of this graph was already run backwards, or its tape was cleared'

/** Entries in the order they were recorded. Those that a backward did not reach stay for the backward of another root. */
export class Tape {
  #entries: Entry[] = []
  readonly #bridgeAt = new Map<number, Bridge>()

  get length(): number {
    return this.#entries.length
  }

  get entries(): readonly Entry[] {
    return this.#entries
  }

  /** Records a segment after its inputs. libtorch's graph is cut at an input once per tape: segments that take it share the leaf. */
  record(segment: Omit<Segment, 'kind' | 'bridges'>, bridges: readonly Bridge[]): void {
    this.#entries.push({ ...segment, kind: 'segment', bridges })
  }

  /** The input as a segment keeps it, and the bridge to it where its graph was cut. */
  cut(x: Tensor): { input: Tensor; bridge: Bridge | null } {
    if (!x.requiresGrad || x.isLeaf) return { input: own(x), bridge: null }
    let bridge = this.#bridgeAt.get(x.handle)
    if (!bridge) {
      bridge = { kind: 'bridge', original: own(x), leaf: keep(x.detach()).requiresGrad_(), key: x.handle }
      this.#entries.push(bridge)
      this.#bridgeAt.set(x.handle, bridge)
    }
    return { input: own(bridge.leaf), bridge }
  }

  /** Whether a segment that is still on the tape takes the bridge. */
  isTaken(bridge: Bridge): boolean {
    return this.#entries.some((e) => e.kind === 'segment' && e.bridges.includes(bridge))
  }

  /** Frees entries. Whatever else still holds their results cannot be differentiated any more, and says so when it is tried. */
  drop(entries: readonly Entry[]): void {
    const gone = new Set(entries)
    this.#entries = this.#entries.filter((entry) => !gone.has(entry))
    for (const entry of entries) {
      clearGrad(entry)
      if (entry.kind === 'bridge') this.#bridgeAt.delete(entry.key)
      for (const t of entry.kind === 'bridge' ? [entry.leaf] : entry.outs) refuse(t)
      for (const t of tensorsOf(entry)) t.dispose()
    }
  }

  clear(): void {
    this.drop([...this.#entries].reverse())
  }

  /** Drops what nothing but the tape holds: no root can ask for it. Later entries first, they hold earlier ones. */
  collect(): void {
    for (const entry of [...this.#entries].reverse()) {
      const results = entry.kind === 'bridge' ? [entry.leaf] : entry.outs
      if (results.every((t) => owners(t) === 1)) this.drop([entry])
    }
  }
}

function tensorsOf(entry: Entry): readonly Tensor[] {
  return entry.kind === 'bridge'
    ? [entry.original, entry.leaf]
    : [...entry.outs, ...entry.inputs, ...entry.saved.filter((t) => t.alive), ...(entry.random ?? [])]
}

function refuse(t: Tensor): void {
  buffer[0] = t.handle
  native().refuse(used)
}

export function clearGrad(entry: Entry): void {
  for (const t of entry.kind === 'bridge' ? [entry.leaf] : entry.outs) t.setGrad(null)
}

export function writeHandles(at: number, list: readonly (Tensor | null)[]): number {
  let next = at
  buffer[next++] = list.length
  for (const t of list) buffer[next++] = t ? t.handle : -1
  return next
}

/** libtorch's own backward. */
export function nativeBackward(roots: readonly Tensor[], grads: readonly (Tensor | null)[], retain: boolean): void {
  buffer[0] = retain ? 1 : 0
  writeHandles(writeHandles(1, roots), grads)
  try {
    native().backward()
  } catch (error) {
    if (!(error instanceof Error) || !error.message.includes(used)) throw error
    throw new Mismatch(
      {
        where: 'backward',
        expected: 'a graph whose checkpoints and custom functions are still on the tape',
        got: used,
        hint: 'give the first of two backwards through them retainGraph, or add the losses and go back once',
      },
      { cause: error },
    )
  }
}

/** Whether backwards from the two lists pass an operation in common, whose saved values the first must then leave. */
export function shareGraph(some: readonly Tensor[], others: readonly Tensor[]): boolean {
  if (some.length === 0 || others.length === 0) return false
  writeHandles(writeHandles(0, some), others)
  native().shareGraph()
  return buffer[0] !== 0
}

/** For each leaf whether a backward from the roots reaches it. */
export function reaches(roots: readonly Tensor[], leaves: readonly Tensor[]): boolean[] {
  writeHandles(writeHandles(0, roots), leaves)
  native().reaches()
  return leaves.map((_, i) => buffer[i] !== 0)
}
