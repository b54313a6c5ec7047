// 10,000 calls over ops.list with arguments that may fit or not; run as a separate process by engine-fuzz.test.ts.
// argv: seed, number of calls. Prints the call before a crash could swallow it when ROUNDTRIP_FUZZ_TRACE is set.
import { readFileSync, writeSync } from 'node:fs'
import { stream } from '../../src/core/index.ts'
import { type ArgPlan, camel, isPositional, type OpPlan, op, planOf } from '../../src/engine/index.ts'
import {
  type DType,
  Generator,
  gradEnabled,
  memory,
  ones,
  type Tensor,
  tensor,
  tidy,
  zeros,
} from '../../src/tensor/index.ts'

const [seed, calls] = process.argv.slice(2).map(Number) as [number, number]
const random = stream(seed, 'fuzz')
const trace = process.env.ROUNDTRIP_FUZZ_TRACE !== undefined

const below = (n: number) => Math.floor(random.uniform() * n)
const pick = <T>(items: readonly T[]): T => items[below(items.length)]!

const dtypes: DType[] = [
  'float32',
  'float32',
  'float32',
  'float64',
  'int64',
  'int64',
  'bool',
  'bfloat16',
  'int32',
  'uint8',
  'float16',
]
const shapes = [
  [],
  [1],
  [3],
  [0],
  [2, 3],
  [3, 2],
  [3, 3],
  [2, 0, 3],
  [2, 3, 4],
  [1, 3, 1],
  [1, 2, 4, 4],
  [2, 2, 3, 3],
  [1, 1, 2, 2, 2],
]
const generator = new Generator(1)

function someTensor(): Tensor {
  const shape = pick(shapes)
  const dtype = pick(dtypes)
  const n = shape.reduce((a, b) => a * b, 1)
  const values = Float64Array.from({ length: n }, () => below(7) - 2)
  let t = tensor(values, shape, { dtype })
  if (shape.length > 1 && below(3) === 0) t = t.transpose(0, -1)
  if (below(12) === 0) t = zeros(shape, { dtype, device: 'meta' })
  if (below(40) === 0) t.dispose()
  if (below(4) === 0 && (dtype === 'float32' || dtype === 'float64') && t.alive) t.requiresGrad_()
  return t
}

const integer = () => pick([0, 1, 2, 3, -1, -2, 5, 17, -9, 2 ** 31, -(2 ** 40)])
const float = () => pick([0, 1, -1, 0.5, 2.5, Number.NaN, Number.POSITIVE_INFINITY, 1e-30, 1e300])
const list = <T>(make: () => T) => Array.from({ length: below(5) }, make)
const wrong = () =>
  pick<unknown>([
    null,
    undefined,
    'x',
    {},
    [],
    Number.NaN,
    true,
    1.5,
    12n,
    () => 1,
    Symbol.iterator,
    [[1]],
    new Float32Array(2),
  ])

const makers: Record<string, () => unknown> = {
  T: someTensor,
  I: integer,
  F: float,
  B: () => below(2) === 1,
  S: () => pick<unknown>([integer(), float(), true]),
  R: () => pick(['floor', 'trunc', 'none', 'tanh', 'ij', 'linear', 'ab,bc->ac', '...i->i', '->', '']),
  D: () => pick(['cpu', 'meta', 'cuda', 'tpu']),
  G: () => generator,
  L: () => list(() => pick([0, 1, 2, 3, -1, 4, 9])),
  P: () => list(float),
  O: () => list(() => below(2) === 1),
  Q: () => list(float),
  X: () => list(someTensor),
  x: () => list(() => (below(3) === 0 ? null : someTensor())),
}

function argument(arg: ArgPlan): unknown {
  if (below(25) === 0) return wrong()
  if (arg.name === 'dtype') return pick(dtypes)
  const optional = /[tifbsrdglp]/.test(arg.kind)
  if (optional && below(3) === 0) return null
  if (arg.kind === 'L' && arg.fixed > 0 && below(3) === 0) return integer()
  // sizes stay small: memory is tested elsewhere
  if (
    arg.kind === 'I' &&
    /^(n|m|steps|num_samples|num_classes|minlength|high|k|chunks|sections|num_groups|groups)$/.test(arg.name)
  )
    return below(40) - 2
  return (makers[optional ? arg.kind.toUpperCase() : arg.kind] ?? wrong)()
}

function plans(): OpPlan[] {
  const lines = readFileSync(new URL('../../src/tensor/ops.list', import.meta.url), 'utf8').split('\n')
  return lines
    .filter((line) => line !== '' && !line.startsWith('#'))
    .flatMap((line) => {
      const [base, overloads] = line.split(': ') as [string, string]
      return overloads.split(' ').map((o) => planOf(o === '-' ? base : `${base}.${o}`)!)
    })
}

function show(v: unknown): string {
  return Array.isArray(v)
    ? `[${v.map(show)}]`
    : typeof v === 'symbol'
      ? 'symbol'
      : typeof v === 'object' && v !== null && !('handle' in v)
        ? JSON.stringify(v)
        : String(v)
}

const counts = { passed: 0, refused: 0 }
const codes = new Map<string, number>()
const all = plans()
for (let i = 0; i < calls; i++) {
  const plan = all[i % all.length]!
  tidy(() => {
    const positional = plan.args.filter(isPositional).map(argument)
    const options: Record<string, unknown> = {}
    for (const a of plan.args)
      if (!isPositional(a) && (!a.hasDefault || below(3) === 0)) options[camel(a.name)] = argument(a)
    if (below(60) === 0) options['surprise'] = 1
    const sizes = ['arange', 'linspace', 'full', 'repeat'].some((n) => plan.name.startsWith(`aten::${n}`))
    if (sizes)
      positional.forEach((v, k) => {
        if (typeof v === 'number' && Math.abs(v) > 1000) positional[k] = 40
      })
    if (sizes && typeof options['step'] === 'number' && Math.abs(options['step']) < 0.1) options['step'] = 0.1
    if (trace)
      writeSync(
        2,
        `${i} ${plan.name} (${positional.map(show).join('; ')}) ${Object.entries(options).map(([k, v]) => `${k}=${show(v)}`)}\n`,
      )
    try {
      op(plan.name)(...positional, options)
      counts.passed++
    } catch (error) {
      if (!(error instanceof Error)) throw error
      const code = (error as Error & { code?: string }).code ?? `${error.name}: ${error.message}`
      codes.set(code, (codes.get(code) ?? 0) + 1)
      counts.refused++
    }
  })
}
const sane = tidy(() => ones([2]).add(1).sum().item()) === 4 && gradEnabled() && memory().tensors === 0
process.stdout.write(
  `${JSON.stringify({ ...counts, sane, tensors: memory().tensors, codes: Object.fromEntries(codes) })}\n`,
)
