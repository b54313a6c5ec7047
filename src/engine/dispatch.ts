// Ops by name: an encoder is compiled from each schema, writes the call's words into the shared buffer and reads the results.
import { Mismatch } from '../core/index.ts'
import type { ArgPlan, OpPlan } from './binding.ts'
import { buffer, native } from './load.ts'

/** What holds a tensor slot. The tensor room extends it; everything here needs the handle alone. */
export class Handle {
  readonly handle: number
  constructor(handle: number) {
    this.handle = handle
  }
}

/** A random generator with its own seed and state. */
export interface GeneratorHandle {
  readonly generator: number
}

export type OpFunction = (...args: unknown[]) => unknown

export const dtypeCodes = {
  uint8: 0,
  int8: 1,
  int16: 2,
  int32: 3,
  int64: 4,
  float16: 5,
  float32: 6,
  float64: 7,
  bool: 11,
  bfloat16: 15,
} as const
/** Element types. */
export type DType = keyof typeof dtypeCodes

const memoryFormats: Record<string, number> = { contiguous: 0, preserve: 1, channels_last: 2, channels_last_3d: 3 }
const devices: Record<string, number> = { cpu: 0, cuda: 1, meta: 14 }
const strings = new Map<string, number>()

let wrap: (handle: number) => unknown = (handle) => new Handle(handle)
/** The tensor room says how a handle becomes a tensor. */
export function wrapWith(make: (handle: number) => unknown): void {
  wrap = make
}

function show(value: unknown): string {
  if (value instanceof Handle) return 'a Tensor'
  if (Array.isArray(value)) return `[${value.slice(0, 6).map(show).join(', ')}${value.length > 6 ? ', ...' : ''}]`
  if (typeof value === 'number' || typeof value === 'bigint') return `${value}`
  if (typeof value === 'string') return JSON.stringify(value)
  return value === null ? 'null' : typeof value
}

function bad(op: string, arg: string, expected: string, got: unknown): never {
  const error = new Mismatch({ where: op, field: arg, expected, got: show(got) })
  Object.assign(error, { code: 'ERR_ARGUMENT', op })
  throw error
}

function integer(op: string, arg: string, v: unknown): number {
  if (typeof v === 'number' && Number.isSafeInteger(v)) return v
  if (typeof v === 'bigint' && v === BigInt.asIntN(54, v)) return Number(v)
  if (typeof v === 'string') {
    const code = arg === 'memory_format' ? memoryFormats[v] : dtypeCodes[v as DType]
    if (code !== undefined) return code
    bad(op, arg, Object.keys(arg === 'memory_format' ? memoryFormats : dtypeCodes).join(' | '), v)
  }
  if (typeof v === 'boolean') return v ? 1 : 0
  return bad(op, arg, 'an integer', v)
}

const knownDevices = new Map<string, number>()

export function deviceCode(device: string, where = 'device'): number {
  const known = knownDevices.get(device)
  if (known !== undefined) return known
  const [type, index] = device.split(':')
  const code = devices[type ?? '']
  if (code === undefined || (index !== undefined && !/^\d{1,2}$/.test(index)))
    bad(where, 'device', 'cpu, cuda or cuda:N', device)
  const word = code * 256 + (index === undefined ? 0 : Number(index) + 1)
  knownDevices.set(device, word)
  return word
}

function internString(text: string): number {
  let id = strings.get(text)
  if (id === undefined) {
    id = native().intern(text)
    strings.set(text, id)
  }
  return id
}

// Writers of one value each: return the next free word. D is the shared buffer.
type Writer = (D: Float64Array, p: number, v: unknown, op: string, arg: string, fixed: number) => number

function listOf(v: unknown, fixed: number, op: string, arg: string): ArrayLike<unknown> {
  if (fixed > 0 && (typeof v === 'number' || typeof v === 'boolean')) return new Array<unknown>(fixed).fill(v)
  if (!Array.isArray(v) && !ArrayBuffer.isView(v)) bad(op, arg, 'an array', v)
  const list = v as ArrayLike<unknown>
  if (list.length > 500_000) bad(op, arg, 'at most 500000 elements', list.length)
  // int[4] and int[6] are paddings; torch 1.13 reads that many without looking
  if (fixed >= 4 && list.length !== fixed) bad(op, arg, `${fixed} numbers`, v)
  return list
}

const writeScalar: Writer = (D, p, v, op, arg) => {
  if (typeof v === 'number') {
    const whole = Number.isInteger(v) && Math.abs(v) < 9007199254740992 && !Object.is(v, -0)
    D[p] = whole ? 0 : 1
    D[p + 1] = v
  } else if (typeof v === 'boolean') {
    D[p] = 2
    D[p + 1] = v ? 1 : 0
  } else if (typeof v === 'bigint') {
    D[p] = 0
    D[p + 1] = integer(op, arg, v)
  } else bad(op, arg, 'a number', v)
  return p + 2
}

function writeList(write: Writer): Writer {
  return (D, p, v, op, arg, fixed) => {
    const list = listOf(v, fixed, op, arg)
    if (p + 2 * list.length + 64 > D.length) bad(op, arg, 'arguments that fit the call buffer', `${list.length} more`)
    D[p++] = list.length
    for (let i = 0; i < list.length; i++) p = write(D, p, list[i], op, arg, 0)
    return p
  }
}

const writeTensor: Writer = (D, p, v, op, arg) => {
  if (!(v instanceof Handle)) bad(op, arg, 'a Tensor', v)
  D[p] = v.handle
  return p + 1
}
const writeInteger: Writer = (D, p, v, op, arg) => {
  D[p] = integer(op, arg, v)
  return p + 1
}
const writeFloat: Writer = (D, p, v, op, arg) => {
  if (typeof v !== 'number') bad(op, arg, 'a number', v)
  D[p] = v
  return p + 1
}
const writeBool: Writer = (D, p, v, op, arg) => {
  if (typeof v !== 'boolean') bad(op, arg, 'true or false', v)
  D[p] = v ? 1 : 0
  return p + 1
}

const writers: Record<string, Writer> = {
  T: writeTensor,
  I: writeInteger,
  F: writeFloat,
  B: writeBool,
  S: writeScalar,
  R: (D, p, v, op, arg) => {
    if (typeof v !== 'string') bad(op, arg, 'a string', v)
    D[p] = internString(v)
    return p + 1
  },
  D: (D, p, v, op, arg) => {
    if (typeof v !== 'string') bad(op, arg, 'cpu, cuda or cuda:N', v)
    D[p] = deviceCode(v, op)
    return p + 1
  },
  G: (D, p, v, op, arg) => {
    const id = (v as GeneratorHandle | null)?.generator
    if (typeof id !== 'number') bad(op, arg, 'a Generator', v)
    D[p] = id
    return p + 1
  },
  L: writeList(writeInteger),
  P: writeList(writeFloat),
  O: writeList(writeBool),
  Q: writeList(writeScalar),
  X: writeList(writeTensor),
  x: writeList((D, p, v, op, arg) => {
    if (v == null) {
      D[p] = -1
      return p + 1
    }
    return writeTensor(D, p, v, op, arg, 0)
  }),
}

export function camel(name: string): string {
  return name.replace(/(?<=[a-z0-9])_([a-z0-9])/g, (_, c: string) => c.toUpperCase())
}

/** Arguments a caller gives by position: no default, not keyword-only. The rest comes in the options object. */
export function isPositional(arg: ArgPlan): boolean {
  return arg.positional ?? (!arg.hasDefault && !arg.kwargOnly)
}

/** Torch 2 gave `dim` of these a default; it stays positional. */
const positionalDim = new Set(['std', 'var', 'std_mean', 'var_mean'].map((name) => `aten::${name}.correction`))
function settlePositions(plan: OpPlan | null): OpPlan | null {
  if (plan && positionalDim.has(plan.name)) plan.args.find((a) => a.name === 'dim')!.positional = true
  return plan
}

function encodeLine(arg: ArgPlan, i: number, value: string): string {
  const optional = /[tifbsrdglp]/.test(arg.kind)
  const kind = optional ? arg.kind.toUpperCase() : arg.kind
  const fast =
    kind === 'T'
      ? `if (v instanceof Handle) D[p++] = v.handle; else p = w${i}(D, p, v, name, ${JSON.stringify(arg.name)}, 0);`
      : `p = w${i}(D, p, v, name, ${JSON.stringify(arg.name)}, ${arg.fixed});`
  const body = optional ? `if (v == null) D[p++] = 0; else { D[p++] = 1; ${fast} }` : fast
  if (arg.hasDefault) return `v = ${value}; if (v === undefined) D[p++] = 0; else { D[p++] = 1; ${body} }`
  return `v = ${value}; ${body}`
}

function decodeLines(plan: OpPlan): string {
  const made = plan.returns
  const self = plan.args.findIndex((a) => a.name === 'self')
  // what is written and returned: the places of an `.out` overload, else self
  const places = plan.args
    .filter((a) => a.kwargOnly && !a.hasDefault && a.kind === 'T')
    .map((a) => `o.${camel(a.name)}`)
  const one = (kind: string) => {
    if (kind === '_') return places.shift() ?? `a${Math.max(0, self)}`
    if (kind === 'T') return '(D[q] === -1 ? (q++, null) : wrap(D[q++]))'
    if (kind === 'X')
      return '(() => { const n = D[q++], out = new Array(n); for (let i = 0; i < n; i++) out[i] = wrap(D[q++]); return out })()'
    if (kind === 'B') return '(D[q++] !== 0)'
    return 'D[q++]'
  }
  if (made.length === 0) return ''
  if (made.length === 1)
    return made[0]!.kind === 'T' ? 'return D[0] === -1 ? null : wrap(D[0])' : `let q = 0; return ${one(made[0]!.kind)}`
  const named = made.every((r) => r.name !== '')
  const parts = made.map((r) => (named ? `${camel(r.name)}: ${one(r.kind)}` : one(r.kind))).join(', ')
  return `let q = 0; return ${named ? `{ ${parts} }` : `[${parts}]`}`
}

const NONE = Object.freeze({})

/** new Function, since the encoder of a schema known at run time must cost no more than a hand-written one. */
function compile(plan: OpPlan): OpFunction {
  const unsupported = plan.args.find((a) => a.kind === '?' && !a.hasDefault)
  if (unsupported) bad(plan.name, unsupported.name, 'an argument type the engine supports', plan.schema)
  const positional = plan.args.filter(isPositional)
  const names = positional.map((_, i) => `a${i}`)
  const used = plan.args.map((a) => writers[/[tifbsrdglp]/.test(a.kind) ? a.kind.toUpperCase() : a.kind])
  const known = plan.args.filter((a) => !isPositional(a)).map((a) => camel(a.name))
  let at = 0
  const lines = plan.args.map((arg, i) =>
    arg.kind === '?' ? 'D[p++] = 0;' : encodeLine(arg, i, isPositional(arg) ? `a${at++}` : `o.${camel(arg.name)}`),
  )
  const source = `
    return function (${[...names, 'o'].join(', ')}) {
      if (o === undefined) o = NONE; else check(o);
      let p = 1, v;
      D[0] = ${plan.id};
      ${lines.join('\n      ')}
      exec();
      ${decodeLines(plan)}
    }`
  const check = (options: unknown) => checkOptions(plan.name, options, known)
  const scope: Record<string, unknown> = {
    D: buffer,
    Handle,
    NONE,
    name: plan.name,
    wrap: (h: number) => wrap(h),
    exec: native().exec,
    check,
  }
  used.forEach((w, i) => {
    scope[`w${i}`] = w
  })
  return new Function(...Object.keys(scope), source)(...Object.values(scope)) as OpFunction
}

function checkOptions(op: string, options: unknown, known: readonly string[]): void {
  if (options === null || typeof options !== 'object' || options instanceof Handle || Array.isArray(options)) {
    bad(op, 'options', known.length > 0 ? `an object with ${known.join(', ')}` : 'no further argument', options)
  }
  for (const key in options)
    if (!known.includes(key)) bad(op, key, `one of ${known.join(', ') || 'no options'}`, 'an unknown option')
}

const plans = new Map<string, OpPlan | null>()
const functions = new Map<string, OpFunction>()

export function planOf(name: string): OpPlan | null {
  let plan = plans.get(name)
  if (plan === undefined) {
    const full = name.includes('::') ? name : `aten::${name}`
    const dot = full.indexOf('.')
    plan = settlePositions(native().resolve(dot < 0 ? full : full.slice(0, dot), dot < 0 ? '' : full.slice(dot + 1)))
    plans.set(name, plan)
  }
  return plan
}

/** Whether this libtorch has the op; overload included, as in `add.Tensor`. */
export function hasOp(name: string): boolean {
  return planOf(name) !== null
}

/** The callable of one overload, compiled once: `op('add.Tensor')(a, b, { alpha: 2 })`. */
export function op(name: string): OpFunction {
  let f = functions.get(name)
  if (!f) {
    const plan = planOf(name)
    if (!plan) {
      const error = new Mismatch({
        where: 'libtorch',
        field: name,
        expected: 'an op of this libtorch',
        got: `none in ${native().info().version}`,
        hint: overloadHint(name),
      })
      throw Object.assign(error, { code: 'ERR_NO_OP' })
    }
    f = compile(plan)
    functions.set(name, f)
  }
  return f
}

let overloadTable: Map<string, string[]> | undefined
/** Names of all overloads of an op, '' for the plain one. */
export function overloadsOf(base: string): readonly string[] {
  if (!overloadTable) {
    overloadTable = new Map()
    for (const schema of native().schemas()) {
      const full = schema.slice(0, schema.indexOf('('))
      const dot = full.indexOf('.', full.indexOf('::'))
      const name = dot < 0 ? full : full.slice(0, dot)
      const list = overloadTable.get(name) ?? []
      list.push(dot < 0 ? '' : full.slice(dot + 1))
      overloadTable.set(name, list)
    }
  }
  return overloadTable.get(base.includes('::') ? base : `aten::${base}`) ?? []
}

function overloadHint(name: string): string {
  const base = name.split('.')[0]!
  const list = overloadsOf(base)
  return list.length > 0 ? `${base} has the overloads ${list.map((o) => o || '(plain)').join(', ')}` : ''
}
