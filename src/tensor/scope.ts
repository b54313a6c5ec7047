import { Mismatch } from '../core/index.ts'
import { buffer, native } from '../engine/index.ts'
import { origins, Tensor } from './tensor.ts'

/** A function that returns a promise does not compile here. */
type Sync<R> = R extends PromiseLike<unknown> ? never : unknown

/**
 * Frees every tensor created inside `fn` except those in what it returns, which move to the outer scope. Synchronous: an async
 * function does not compile, so no scope is open across an await.
 */
export function tidy<R>(fn: () => R & Sync<R>): R {
  native().scopeBegin()
  let kept: Tensor[] = []
  try {
    const result = fn()
    if ((result as unknown) instanceof Promise) {
      const [got, hint] = ['one that returned a promise', 'open scopes between awaits only']
      throw new Mismatch({ where: 'tidy', expected: 'a synchronous function', got, hint })
    }
    kept = tensorsIn(result)
    return result
  } finally {
    endScope(kept)
  }
}

function endScope(kept: readonly Tensor[]): void {
  if (kept.length + 1 > buffer.length) throw new Error(`a scope returns ${kept.length} tensors, more than fit`)
  buffer[0] = kept.length
  for (let i = 0; i < kept.length; i++) buffer[i + 1] = kept[i]!.handle
  native().scopeEnd()
  if (origins) forget()
}

function forget(): void {
  const live = new Set(native().liveHandles())
  for (const handle of origins!.keys()) if (!live.has(handle)) origins!.delete(handle)
}

/** Containers around a tensor that a scope returns. */
const maxDepth = 7

/** Tensors reachable in a value: itself, arrays, plain objects, Map and Set values. Throws if one is nested too deep to be kept. */
export function tensorsIn(value: unknown, out: Tensor[] = [], depth = 0, seen = new Set<object>()): Tensor[] {
  if (value instanceof Tensor) {
    if (depth > maxDepth) throw nestedTooDeep(depth)
    out.push(value)
  } else if (value !== null && typeof value === 'object' && !seen.has(value)) {
    seen.add(value)
    for (const item of itemsOf(value)) tensorsIn(item, out, depth + 1, seen)
  }
  return out
}

function itemsOf(value: object): Iterable<unknown> {
  if (Array.isArray(value) || value instanceof Set) return value
  if (value instanceof Map) return value.values()
  const prototype = Object.getPrototypeOf(value) as unknown
  return prototype === Object.prototype || prototype === null ? Object.values(value) : []
}

function nestedTooDeep(depth: number): Mismatch {
  const hint = 'return the tensor in fewer nested objects'
  return new Mismatch({ where: 'tidy', expected: `tensors at most ${maxDepth} levels deep`, got: depth, hint })
}

/** Takes a tensor out of every scope: parameters, moments, caches. Freed by dispose() alone. */
export function keep<T extends Tensor>(t: T): T {
  buffer[0] = t.handle
  native().keep()
  return t
}

/** Live tensors and their bytes. */
export interface Memory {
  tensors: number
  scopes: number
  slots: number
  created: number
  bytes: number
  peakBytes: number
  cachedBytes: number
}

/** Live tensors and bytes of host memory, exact. */
export function memory(): Memory {
  native().stats()
  const [tensors = 0, scopes = 0, slots = 0, created = 0, bytes = 0, peakBytes = 0, cachedBytes = 0] = buffer
  return { tensors, scopes, slots, created, bytes, peakBytes, cachedBytes }
}

export function resetPeak(): void {
  native().resetPeak()
}

export function emptyCache(): void {
  native().emptyCache()
}

/** Live tensors with the place each was created, in debug mode (ROUNDTRIP_DEBUG=tensors); without it the place is unknown. */
export function liveTensors(): { tensor: Tensor; madeAt: string }[] {
  const handles = native().liveHandles()
  return handles.map((handle) => ({ tensor: new Tensor(handle), madeAt: siteOf(handle) }))
}

const siteOf = (handle: number) => origins?.get(handle) ?? 'unknown (set ROUNDTRIP_DEBUG=tensors)'

/** Runs `fn` and throws when live tensors remain that were not there before, naming where they were created. */
export function expectNoLeak<R>(fn: () => R & Sync<R>): R {
  const before = new Set(native().liveHandles())
  const result = fn()
  const own = new Set(tensorsIn(result).map((t) => t.handle))
  const live = native().liveHandles()
  const leaked = live.filter((h) => !before.has(h) && !own.has(h))
  if (leaked.length === 0) return result
  const sites = leaked.slice(0, 5).map((h) => `${new Tensor(h)} created at ${siteOf(h)}`)
  throw new Error(`${leaked.length} tensors leaked:\n  ${sites.join('\n  ')}`)
}
