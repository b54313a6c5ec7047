import { Mismatch } from '../core/index.ts'
import { camel, Handle, isPositional, type OpPlan, op, overloadsOf, planOf } from '../engine/index.ts'
import type { Tensor } from './tensor.ts'

function fits(kind: string, v: unknown): boolean {
  if (/[tifbsrdglp]/.test(kind)) return v === null || fits(kind.toUpperCase(), v)
  switch (kind) {
    case 'T':
      return v instanceof Handle
    case 'X':
      return Array.isArray(v) && v.every((t) => t instanceof Handle)
    case 'x':
      return Array.isArray(v) && v.every((t) => t === null || t instanceof Handle)
    case 'L':
    case 'P':
    case 'O':
    case 'Q':
      return (Array.isArray(v) || ArrayBuffer.isView(v)) && !((v as ArrayLike<unknown>)[0] instanceof Handle)
    case 'I':
      return typeof v === 'number' || typeof v === 'bigint' || typeof v === 'string'
    case 'F':
      return typeof v === 'number'
    case 'S':
      return typeof v === 'number' || typeof v === 'boolean' || typeof v === 'bigint'
    case 'B':
      return typeof v === 'boolean'
    case 'R':
    case 'D':
      return typeof v === 'string'
    case 'G':
      return typeof (v as { generator?: unknown } | null)?.generator === 'number'
    default:
      return false
  }
}

function isOptions(v: unknown): boolean {
  return v !== null && typeof v === 'object' && Object.getPrototypeOf(v) === Object.prototype
}

/** Positional values may continue into the arguments that have defaults, as in ATen's own order. */
function matches(plan: OpPlan, args: readonly unknown[]): boolean {
  const slots = plan.args.filter((a) => !a.kwargOnly)
  const least = plan.args.filter(isPositional).length
  if (args.length < least || args.length > slots.length) return false
  return args.every((v, i) => (slots[i]!.fixed > 0 && typeof v === 'number') || fits(slots[i]!.kind, v))
}

function choose(base: string, args: readonly unknown[], options: object | undefined): OpPlan {
  const plans = overloadsOf(base)
    .map((o) => planOf(o === '' ? base : `${base}.${o}`))
    .filter((p): p is OpPlan => p !== null && !p.args.some((a) => a.name === 'out'))
  const given = new Set(Object.keys(options ?? {}).map(camel))
  const takes = (p: OpPlan) => {
    const left = new Set(given)
    for (const a of p.args) if (!left.delete(camel(a.name)) && a.kwargOnly && !a.hasDefault) return false
    return left.size === 0
  }
  const fitting = plans.filter((p) => matches(p, args) && takes(p))
  fitting.sort((a, b) => required(b) - required(a))
  if (fitting.length > 0) return fitting[0]!
  const hint = plans.length > 0 ? plans.map((p) => p.schema).join('; ') : undefined
  const error = new Mismatch({
    where: `aten(${base})`,
    expected: plans.length > 0 ? 'arguments of one of its overloads' : 'an op of this libtorch',
    got: [...args.map(nameOf), ...given].join(', '),
    hint,
  })
  throw Object.assign(error, { code: plans.length > 0 ? 'ERR_ARGUMENT' : 'ERR_NO_OP' })
}

const required = (p: OpPlan) => p.args.filter((a) => !a.hasDefault).length
const nameOf = (v: unknown) =>
  v instanceof Handle ? 'Tensor' : Array.isArray(v) ? `array(${v.length})` : v === null ? 'null' : typeof v

/**
 * The untyped call of every op of libtorch: `aten('_upsample_bicubic2d_aa', x, [448, 448], false)`, with an overload as in
 * `aten('sum.dim_IntList', x, [0])` or chosen by the arguments. A trailing plain object names further arguments.
 */
export function aten(name: string, ...given: unknown[]): Tensor {
  const options = isOptions(given.at(-1)) ? (given.at(-1) as Record<string, unknown>) : undefined
  const args = options ? given.slice(0, -1) : given
  const plan = name.includes('.') ? planOf(name) : choose(name, args, options)
  if (!plan) return op(name)() as Tensor // throws with the overloads' names
  return callPlan(plan, args, options) as Tensor
}

function callPlan(plan: OpPlan, args: readonly unknown[], options: Record<string, unknown> | undefined): unknown {
  const slots = plan.args.filter((a) => !a.kwargOnly)
  const least = slots.filter(isPositional).length
  const named: Record<string, unknown> = {}
  args.slice(least).forEach((v, i) => {
    named[camel(slots[least + i]!.name)] = v
  })
  for (const [key, v] of Object.entries(options ?? {})) named[camel(key)] = v
  return op(plan.name)(...args.slice(0, least), named)
}
