// Arrays in plain float64 loops, to compute what an op should give without the engine, and the check of one op against them.
import assert from 'node:assert/strict'
import { type DType, gradOf, type Tensor, tensor, tensorsIn, tidy } from '../../src/tensor/index.ts'

/** Row-major. */
export interface Nd {
  shape: readonly number[]
  data: number[]
}

export interface Input extends Nd {
  dtype: 'float' | 'int64' | 'bool'
}

export const count = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1)

export function indexOf(shape: readonly number[], flat: number): number[] {
  const out = new Array<number>(shape.length)
  for (let d = shape.length - 1; d >= 0; d--) {
    out[d] = flat % shape[d]!
    flat = Math.floor(flat / shape[d]!)
  }
  return out
}

export function nd(shape: readonly number[], value: (index: number[], flat: number) => number): Nd {
  return { shape, data: Array.from({ length: count(shape) }, (_, i) => value(indexOf(shape, i), i)) }
}

export const scalar = (value: number): Nd => ({ shape: [], data: [value] })

/** The element at an index; dimensions of size 1 and missing leading ones repeat. */
export function at(a: Nd, index: readonly number[]): number {
  let flat = 0
  const skip = index.length - a.shape.length
  for (let d = 0; d < a.shape.length; d++) flat = flat * a.shape[d]! + (a.shape[d] === 1 ? 0 : index[d + skip]!)
  return a.data[flat]!
}

export function broadcast(...shapes: (readonly number[])[]): number[] {
  const rank = Math.max(...shapes.map((s) => s.length))
  return Array.from({ length: rank }, (_, d) => {
    const sizes = shapes.map((s) => s[d - rank + s.length] ?? 1)
    return sizes.find((n) => n !== 1) ?? 1
  })
}

/** Element by element, with broadcasting. */
export function zip(f: (...values: number[]) => number, ...arrays: Nd[]): Nd {
  const shape = broadcast(...arrays.map((a) => a.shape))
  return nd(shape, (index) => f(...arrays.map((a) => at(a, index))))
}

/** f of the values along the dimensions, in row-major order; null: all of them. */
export function reduce(a: Nd, dims: number | number[] | null, f: (values: number[]) => number, keepdim = false): Nd {
  const rank = a.shape.length
  const list = dims === null ? a.shape.map((_, i) => i) : [dims].flat().map((d) => (d < 0 ? d + rank : d))
  const kept = a.shape.map((n, d) => (list.includes(d) ? 1 : n))
  const groups = Array.from({ length: count(kept) }, () => [] as number[])
  const place: Nd = { shape: kept, data: groups.map((_, i) => i) }
  a.data.forEach((v, i) => {
    groups[at(place, indexOf(a.shape, i))]!.push(v)
  })
  const shape = keepdim ? kept : a.shape.filter((_, d) => !list.includes(d))
  return { shape, data: groups.map(f) }
}

/** Same shape: f sees each line along the dimension and gives its new values. */
export function lines(a: Nd, dim: number, f: (values: number[]) => number[]): Nd {
  const d = dim < 0 ? dim + a.shape.length : dim
  const rows = reduce(a, d, () => 0, true)
  const out = new Map<string, number[]>()
  return nd(a.shape, (index) => {
    const base = index.map((v, i) => (i === d ? 0 : v))
    const key = base.join()
    if (!out.has(key)) {
      const line = Array.from({ length: a.shape[d]! }, (_, k) =>
        at(
          a,
          base.map((v, i) => (i === d ? k : v)),
        ),
      )
      out.set(key, f(line))
    }
    assert.ok(rows.data.length >= out.size)
    return out.get(key)![index[d]!]!
  })
}

export const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0)

let seed = 1
function random(): number {
  seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff
  return seed / 0x7fffffff
}

/** Float input that takes part in the gradient check: distinct values in [low, high], never near `avoid`. */
export function real(shape: readonly number[], low = -2, high = 2, avoid: readonly number[] = []): Input {
  const draw = (): number => {
    const v = low + (high - low) * random()
    return avoid.some((x) => Math.abs(v - x) < 0.02) ? draw() : v
  }
  return { shape, data: Array.from({ length: count(shape) }, draw), dtype: 'float' }
}
export function ints(shape: readonly number[], data: number[]): Input {
  return { shape, data, dtype: 'int64' }
}
export function bools(shape: readonly number[], data: number[]): Input {
  return { shape, data, dtype: 'bool' }
}

/** Rows take up to four inputs; one that names fewer parameters fits too. */
type Lambda<T, R> = (a: T, b: T, c: T, d: T) => R
const apply = <T, R>(f: Lambda<T, R>, inputs: readonly T[]): R => (f as (...all: T[]) => R)(...inputs)

export interface OpCase {
  /** The line of ops.list this row proves; a second row of the same op adds a note after a space. */
  name: string
  inputs: Input[]
  run: Lambda<Tensor, unknown>
  expected: Lambda<Nd, Nd | number | (Nd | number)[]>
  /** false: forward only (integer results, steps, or the derivative is not defined here). */
  grad?: boolean
  /** float64 only: an op without a float32 or with too few digits there. */
  wide?: boolean
  /** Relative, in float64; where the loops or the op itself compute in fewer digits. */
  tolerance?: number
}

export function op(
  name: string,
  inputs: Input[],
  run: OpCase['run'],
  expected: OpCase['expected'],
  more: Partial<OpCase> = {},
): OpCase {
  return { name, inputs, run, expected, ...more }
}

function put(input: Input, float: DType): Tensor {
  const dtype = input.dtype === 'float' ? float : input.dtype
  return tensor(
    dtype === 'int64' ? BigInt64Array.from(input.data, BigInt) : Float64Array.from(input.data),
    input.shape,
    {
      dtype,
    },
  )
}

function wanted(row: OpCase, inputs: readonly Nd[]): Nd[] {
  const out = apply(row.expected, inputs)
  return (Array.isArray(out) ? out : [out]).map((v) => (typeof v === 'number' ? scalar(v) : v))
}

function close(got: readonly number[], want: readonly number[], tolerance: number, what: string): void {
  assert.equal(got.length, want.length, `${what}: number of elements`)
  got.forEach((g, i) => {
    const w = want[i]!
    const same = Object.is(g, w) || g === w || Math.abs(g - w) <= tolerance * (1 + Math.abs(w))
    assert.ok(same, `${what}: element ${i} is ${g}, expected ${w}`)
  })
}

function checkForward(row: OpCase, float: DType, tolerance: number): void {
  const want = wanted(row, row.inputs)
  const got = tensorsIn(
    apply(
      row.run,
      row.inputs.map((input) => put(input, float)),
    ),
  )
  assert.equal(got.length, want.length, `${row.name}: number of results`)
  got.forEach((t, i) => {
    assert.deepEqual([...t.shape], [...want[i]!.shape], `${row.name} (${float}): shape of result ${i}`)
    close(t.numbers(), want[i]!.data, tolerance, `${row.name} (${float}) result ${i}`)
  })
}

/** Weighted sum of every result: one number whose derivative touches each element differently. */
const weight = (i: number) => Math.sin(1 + 0.7 * i)
function total(results: readonly Nd[]): number {
  return sum(results.flatMap((r, k) => r.data.map((v, i) => v * weight(i + 13 * k))))
}

function differences(row: OpCase, which: number, useful: readonly boolean[]): number[] {
  const h = 1e-5
  const loss = (data: number[]) => {
    const inputs = row.inputs.map((input, i) => (i === which ? { ...input, data } : input))
    return total(wanted(row, inputs).map((r, k) => (useful[k] ? r : { shape: [0], data: [] })))
  }
  const { data } = row.inputs[which]!
  return data.map((v, i) => (loss(data.with(i, v + h)) - loss(data.with(i, v - h))) / (2 * h))
}

function checkGradient(row: OpCase): void {
  const inputs = row.inputs.map((input) => put(input, 'float64'))
  const floats = inputs.filter((_, i) => row.inputs[i]!.dtype === 'float')
  for (const t of floats) t.requiresGrad_()
  const results = tensorsIn(apply(row.run, inputs))
  const useful = results.map((t) => t.requiresGrad)
  const outs = results.filter((_, i) => useful[i])
  assert.ok(outs.length > 0, `${row.name}: has a gradient`)
  const gradOutputs = results
    .map((t, k) =>
      tensor(
        Float64Array.from({ length: t.numel }, (_, i) => weight(i + 13 * k)),
        t.shape,
      ),
    )
    .filter((_, i) => useful[i])
  const grads = gradOf(outs, floats, { gradOutputs })
  let at = 0
  row.inputs.forEach((input, i) => {
    if (input.dtype !== 'float') return
    const want = differences(row, i, useful)
    const grad = grads[at++]
    close(grad ? grad.numbers() : want.map(() => 0), want, 2e-6, `${row.name}: gradient of input ${i}`)
  })
}

/** Forward in float64 and float32 against the loops, gradients against central differences of the loops. */
export function checkOp(row: OpCase): void {
  tidy(() => {
    checkForward(row, 'float64', row.tolerance ?? 1e-10)
    if (!row.wide) checkForward(row, 'float32', 2e-5)
    if (row.grad !== false) checkGradient(row)
  })
}
