import { Mismatch } from '../core/index.ts'
import { numpyNames } from './numpy.ts'
import { type Fail, PickleMachine, type PickleOptions, type PyCall, PyGlobal } from './pickle-machine.ts'
import { ops } from './pickle-ops.ts'

const stop = 0x2e
const maxDepth = 1000

/** Reads one pickle to the end of its bytes. Dicts are Maps, lists and tuples arrays, sets Sets, bytes Uint8Arrays. */
export function unpickle(bytes: Uint8Array, options: PickleOptions): unknown {
  const machine = new PickleMachine(bytes, options)
  for (let code = machine.nextOp(); code !== stop; code = machine.nextOp()) {
    const op = ops[code]
    if (!op) return machine.fail('a pickle opcode', `0x${code.toString(16)}`)
    machine.enter(op[0])
    op[1](machine)
  }
  machine.enter('STOP')
  const value = machine.pop()
  if (machine.left > 0) machine.fail('the end of the file', `${machine.left} more bytes`)
  checkNesting(value, options.where)
  return value
}

/** A plain pickle of data (protocols 0 to 5) as ordinary JavaScript values: dicts with text keys become objects, others
 * Maps; sets become lists; whole numbers outside 2^53 are bigints; numpy arrays are `NumpyArray`s. Nothing is run. */
export function readPickle(bytes: Uint8Array, where = 'pickle'): unknown {
  return plainOf(unpickle(bytes, { where, find: (name) => dataNames.get(name) }), new Map())
}

// Names that only make data.
const builtins: Record<string, PyCall> = {
  set: (args, fail) => new Set(listOf(args, fail)),
  frozenset: (args, fail) => new Set(listOf(args, fail)),
  list: (args, fail) => listOf(args, fail),
  tuple: (args, fail) => listOf(args, fail),
  bytes: bytesOf,
  bytearray: bytesOf,
}

export const dataNames: ReadonlyMap<string, PyCall | null> = new Map<string, PyCall | null>([
  ...Object.entries(builtins).flatMap(([name, call]): [string, PyCall][] => [
    [`builtins.${name}`, call],
    [`__builtin__.${name}`, call],
  ]),
  ['collections.OrderedDict', orderedDict],
  ['_codecs.encode', encode],
  ...numpyNames,
])

function listOf(args: readonly unknown[], fail: Fail): unknown[] {
  if (args.length === 0) return []
  const [items] = args
  if (args.length > 1 || !(Array.isArray(items) || items instanceof Set))
    return fail('one list', `${args.length} values`)
  return [...items]
}

/** bytes() or bytes(text, 'latin-1'): how protocols below 3 spell byte strings. */
function bytesOf(args: readonly unknown[], fail: Fail): Uint8Array {
  if (args.length === 0) return new Uint8Array(0)
  return args[0] instanceof Uint8Array ? args[0].slice() : encode(args, fail)
}

function encode(args: readonly unknown[], fail: Fail): Uint8Array {
  const [text, encoding] = args
  const known = encoding === 'latin1' || encoding === 'latin-1'
  if (typeof text !== 'string' || !known) return fail('text and latin1', String(encoding))
  if (/[^\u0000-\u00ff]/.test(text)) return fail('Latin-1 text', 'other characters')
  return new Uint8Array(Buffer.from(text, 'latin1'))
}

function orderedDict(args: readonly unknown[], fail: Fail): Map<unknown, unknown> {
  const dict = new Map<unknown, unknown>()
  for (const pair of listOf(args, fail)) {
    if (!Array.isArray(pair) || pair.length !== 2) return fail('pairs of key and value', typeof pair)
    dict.set(pair[0], pair[1])
  }
  return dict
}

/** Children of a container, else null. */
function childrenOf(value: unknown): Iterable<unknown> | null {
  if (Array.isArray(value) || value instanceof Set) return value
  return value instanceof Map ? [...value.keys(), ...value.values()] : null
}

/** Refuses values that contain themselves or nest deeper than callers may walk; without recursion. Shared
 * parts are visited once, and the depth kept for a part is that of its deepest child. */
function checkNesting(root: unknown, where: string): void {
  const depth = new Map<unknown, number>()
  const path: { value: unknown; rest: Iterator<unknown>; deepest: number }[] = []
  const open = new Set<unknown>()
  const refuse = (got: string) => new Mismatch({ where, expected: `nesting of at most ${maxDepth} levels`, got })
  const enter = (value: unknown): void => {
    const children = childrenOf(value)
    if (children === null) return
    if (open.has(value)) throw refuse('a value that contains itself')
    const known = depth.get(value)
    if (known !== undefined) {
      raise(known)
      return
    }
    open.add(value)
    path.push({ value, rest: children[Symbol.iterator](), deepest: 0 })
    if (path.length > maxDepth) throw refuse('more')
  }
  const raise = (below: number): void => {
    const parent = path.at(-1)
    if (parent) parent.deepest = Math.max(parent.deepest, below)
    if (below + path.length > maxDepth) throw refuse('more')
  }
  enter(root)
  for (let last = path.at(-1); last; last = path.at(-1)) {
    const next = last.rest.next()
    if (!next.done) enter(next.value)
    else {
      path.pop()
      open.delete(last.value)
      depth.set(last.value, last.deepest + 1)
      raise(last.deepest + 1)
    }
  }
}

/** Shared parts stay shared, so a small pickle cannot unfold into a large value. */
function plainOf(value: unknown, done: Map<unknown, unknown>): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof PyGlobal) return value.name
  if (!(Array.isArray(value) || value instanceof Map || value instanceof Set)) return value
  const known = done.get(value)
  if (known !== undefined) return known
  const plain = value instanceof Map ? plainDict(value, done) : Array.from(value, (item) => plainOf(item, done))
  done.set(value, plain)
  return plain
}

function plainDict(dict: ReadonlyMap<unknown, unknown>, done: Map<unknown, unknown>): unknown {
  for (const key of dict.keys()) {
    if (typeof key === 'string') continue
    return new Map(Array.from(dict, ([k, v]) => [plainOf(k, done), plainOf(v, done)]))
  }
  const out: Record<string, unknown> = {}
  for (const [key, value] of dict as ReadonlyMap<string, unknown>) {
    const plain = plainOf(value, done)
    // Assigning to __proto__ would set the prototype; defined, it stays data.
    if (key !== '__proto__') out[key] = plain
    else Object.defineProperty(out, key, { value: plain, enumerable: true, configurable: true, writable: true })
  }
  return out
}
