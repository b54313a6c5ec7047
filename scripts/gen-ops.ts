// `npm run gen-ops`: writes src/tensor/ops.gen.ts from src/tensor/ops.list and the schemas of the loaded libtorch.
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { type ArgPlan, camel, isPositional, type OpPlan, planOf } from '../src/engine/index.ts'

const listPath = new URL('../src/tensor/ops.list', import.meta.url)
const outPath = new URL('../src/tensor/ops.gen.ts', import.meta.url)

interface Overload {
  key: string
  plan: OpPlan
}

function readList(): { base: string; overloads: Overload[] }[] {
  const lines = readFileSync(listPath, 'utf8').split('\n')
  return lines
    .filter((line) => line.trim() !== '' && !line.startsWith('#'))
    .map((line) => {
      const [base, rest] = line.split(':') as [string, string]
      const overloads = rest
        .trim()
        .split(/\s+/)
        .map((o) => {
          const key = o === '-' ? base : `${base}.${o}`
          const plan = planOf(key)
          if (!plan) throw new Error(`ops.list: ${key} is not an op of this libtorch`)
          return { key, plan }
        })
      return { base, overloads }
    })
}

const isReceiver = (arg: ArgPlan | undefined) =>
  arg !== undefined && arg.kind === 'T' && (arg.name === 'self' || arg.name === 'input')

function typeOf(arg: ArgPlan): string {
  const optional = /[tifbsrdglp]/.test(arg.kind)
  const kind = optional ? arg.kind.toUpperCase() : arg.kind
  const plain: Record<string, string> = {
    T: 'Tensor',
    I: arg.name === 'dtype' ? 'DType' : arg.name === 'memory_format' ? 'MemoryFormat' : 'number',
    F: 'number',
    B: 'boolean',
    S: 'Scalar',
    R: 'string',
    D: 'string',
    G: 'GeneratorHandle',
    L: arg.fixed > 0 ? 'number | readonly number[]' : 'readonly number[]',
    P: 'readonly number[]',
    O: 'readonly boolean[]',
    Q: 'readonly Scalar[]',
    X: 'readonly Tensor[]',
    x: 'readonly (Tensor | null)[]',
  }
  const t = plain[kind]
  if (!t) throw new Error(`${arg.name}: kind ${arg.kind}`)
  return optional ? `${t} | null` : t
}

const hidden = new Set(['layout', 'pin_memory'])

function optionsType(plan: OpPlan): string {
  const options = plan.args.filter((a) => !isPositional(a) && !hidden.has(a.name) && a.kind !== '?')
  if (options.length === 0) return ''
  const required = options.some((a) => !a.hasDefault)
  const fields = options.map((a) => `${camel(a.name)}${a.hasDefault ? '?' : ''}: ${typeOf(a)}`).join('; ')
  return `options${required ? '' : '?'}: { ${fields} }`
}

function returnType(plan: OpPlan): string {
  const one = (r: { kind: string }) =>
    r.kind === 'X' ? 'Tensor[]' : r.kind === 'B' ? 'boolean' : r.kind === 'S' ? 'number' : 'Tensor'
  if (plan.returns.length === 0) return 'void'
  if (plan.returns.length === 1) return one(plan.returns[0]!)
  if (plan.returns.every((r) => r.name !== ''))
    return `{ ${plan.returns.map((r) => `${camel(r.name)}: ${one(r)}`).join('; ')} }`
  return `[${plan.returns.map(one).join(', ')}]`
}

const rename: Record<string, string> = { default: 'default_', in: 'in_', function: 'function_', end: 'end' }
const paramName = (arg: ArgPlan) => rename[arg.name] ?? camel(arg.name)

function params(plan: OpPlan, method: boolean): string[] {
  const positional = plan.args.filter(isPositional).slice(method ? 1 : 0)
  const list = positional.map((a) => `${paramName(a)}: ${typeOf(a)}`)
  const options = optionsType(plan)
  return options ? [...list, options] : list
}

function test(arg: ArgPlan, name: string): string {
  const optional = /[tifbsrdglp]/.test(arg.kind)
  return optional ? `(${testOf(arg, name)} || ${name} === null)` : testOf(arg, name)
}

function testOf(arg: ArgPlan, name: string): string {
  const kind = arg.kind.toUpperCase()
  if (kind === 'T') return `${name} instanceof Handle`
  if (kind === 'X') return `Array.isArray(${name}) && ${name}[0] instanceof Handle`
  if (kind === 'L')
    return arg.fixed > 0 ? `(typeof ${name} === 'number' || Array.isArray(${name}))` : `Array.isArray(${name})`
  if (kind === 'S')
    return `(typeof ${name} === 'number' || typeof ${name} === 'boolean' || typeof ${name} === 'bigint')`
  if (kind === 'I' || kind === 'F') return `typeof ${name} === 'number'`
  if (kind === 'R') return `typeof ${name} === 'string'`
  if (kind === 'G') return `(${name} as { generator?: unknown } | undefined)?.generator !== undefined`
  return `${name} !== undefined`
}

const fn = (key: string) => `f_${key.replace(/\W/g, '_')}`

function declare(key: string): string {
  const name = fn(key)
  return `let ${name}: OpFunction = (...a) => {\n  ${name} = op('${key}')\n  return ${name}(...a)\n}`
}

/** An overload with a required option (rounding mode) is selected by that option, the others by the types of their arguments. */
function condition(plan: OpPlan, names: string[], method: boolean): string {
  const positional = plan.args.filter(isPositional).slice(method ? 1 : 0)
  const tests = positional.map((a, i) => test(a, names[i]!))
  for (const a of plan.args.filter((x) => x.kwargOnly && !x.hasDefault)) {
    tests.push(
      `(${names[positional.length] ?? names.at(-1)} as Record<string, unknown> | undefined)?.${camel(a.name)} !== undefined`,
    )
  }
  return tests.join(' && ') || 'true'
}

function emit(base: string, overloads: Overload[], method: boolean): string {
  const name = camel(base)
  const head = method ? '  ' : 'export function '
  if (overloads.length === 1) {
    const { key, plan } = overloads[0]!
    const list = params(plan, method)
    const args = [...(method ? ['this'] : []), ...list.map((p) => p.replace(/\??:.*$/s, ''))]
    const type = returnType(plan)
    const call = `${fn(key)}(${args.join(', ')})`
    return `${head}${name}(${list.join(', ')}): ${type} {\n  ${type === 'void' ? call : `return ${call} as ${type}`}\n}`
  }
  const ordered = [...overloads].sort((a, b) => rankOf(b.plan) - rankOf(a.plan))
  const signatures = overloads.map(
    ({ plan }) => `${head}${name}(${params(plan, method).join(', ')}): ${returnType(plan)}`,
  )
  const widest = Math.max(...overloads.map(({ plan }) => params(plan, method).length))
  const names = Array.from({ length: widest }, (_, i) => `a${i}`)
  const body = ordered.map(({ key, plan }, i) => {
    const count = plan.args.filter(isPositional).length - (method ? 1 : 0)
    const given = [...(method ? ['this'] : []), ...names.slice(0, Math.min(count + 1, names.length))]
    const call = `return ${fn(key)}(${given.join(', ')}) as never`
    return i === ordered.length - 1 ? `  ${call}` : `  if (${condition(plan, names, method)}) ${call}`
  })
  const impl = `${head}${name}(${names.map((n) => `${n}?: unknown`).join(', ')}): unknown {\n${body.join('\n')}\n}`
  return [...signatures, impl].join('\n')
}

/** More required arguments first, so that `sum(dim)` is tried before `sum()`; required options before none. */
function rankOf(plan: OpPlan): number {
  const positional = plan.args.filter(isPositional)
  const required = plan.args.filter((a) => a.kwargOnly && !a.hasDefault).length
  return required * 100 + positional.length * 10 + positional.filter((a) => a.kind === 'T').length
}

function generate(): string {
  const all = readList()
  const methods = all.filter((o) => isReceiver(o.overloads[0]!.plan.args[0]))
  const functions = all.filter((o) => !isReceiver(o.overloads[0]!.plan.args[0]))
  return [
    '// Written by `npm run gen-ops` from ops.list. Names follow ATen: snake_case becomes camelCase, arguments without a default are',
    "// positional, the others come in one options object. PyTorch's documentation is the documentation.",
    "import { type DType, type GeneratorHandle, Handle, op, type OpFunction } from '../engine/index.ts'",
    "import type { Tensor } from './tensor.ts'",
    "import type { MemoryFormat, Scalar } from './dtype.ts'",
    '',
    ...all.flatMap((o) => o.overloads.map((v) => declare(v.key))),
    '',
    '/** Methods of Tensor, one for each op of ops.list that has a `self`. */',
    'export class TensorOps extends Handle {',
    ...methods.map((o) => emit(o.base, o.overloads, true)),
    '}',
    '',
    ...functions.map((o) => emit(o.base, o.overloads, false)),
    '',
  ].join('\n')
}

const text = generate()
writeFileSync(outPath, text)
execFileSync('npx', ['biome', 'check', '--write', outPath.pathname], { stdio: 'inherit' })
