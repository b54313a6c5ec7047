// Comparison of recomputed numbers with a reference's: rows of a table, one a tensor, or one a case over all its fields.
import type { CheckRow } from '../core/index.ts'
import { type DType, type Tensor, tensor } from '../tensor/index.ts'
import { device } from './device.ts'

export interface Limit {
  abs?: number
  /** Of the largest magnitude of the tensor. */
  rel?: number
  words: string
}

const usual: Limit = { rel: 1e-4, words: '1e-4 of the largest magnitude' }

/** Numbers against a stored tensor: worst absolute difference, and relative to the largest magnitude. */
export function compareNumbers(name: string, got: ArrayLike<number>, want: Tensor, limit: Limit): CheckRow {
  const expected = want.numbers()
  if (got.length !== expected.length) return sizes(name, got.length, expected.length, limit.words)
  let worst = 0
  let at = 0
  let largest = 0
  for (let i = 0; i < expected.length; i++) {
    const d = Math.abs(got[i]! - expected[i]!)
    largest = Math.max(largest, Math.abs(expected[i]!))
    if (!(d <= worst)) {
      worst = d
      at = i
    }
    if (Number.isNaN(d)) break
  }
  const rel = worst / Math.max(largest, 1e-30)
  const pass = (limit.abs !== undefined && worst <= limit.abs) || (limit.rel !== undefined && rel <= limit.rel)
  const detail = `element ${at}: ${got[at]} against ${expected[at]}`
  return { name, abs: worst, rel, limit: limit.words, pass, detail }
}

export function compareTensor(name: string, got: Tensor, want: Tensor, limit: Limit = usual): CheckRow {
  if (got.numel !== want.numel) return sizes(name, `[${got.shape}]`, `[${want.shape}]`, limit.words)
  return compareNumbers(name, got.numbers(), want, limit)
}

/** Ids and pixels: equal or not. */
export function compareIds(name: string, got: ArrayLike<number>, want: ArrayLike<number>): CheckRow {
  if (got.length !== want.length) return sizes(name, got.length, want.length, 'equal')
  let different = 0
  let first = -1
  for (let i = 0; i < want.length; i++) {
    if (got[i] === want[i]) continue
    different++
    if (first < 0) first = i
  }
  const row = { name, abs: different, rel: different / Math.max(1, want.length), limit: 'equal' }
  if (different === 0) return { ...row, pass: true }
  return { ...row, pass: false, detail: `${different} differ, first at ${first}: ${got[first]} against ${want[first]}` }
}

/** Norm of a weight's gradient; a weight without one has norm 0. */
export function compareGradNorm(weightName: string, weight: Tensor | undefined, want: number): CheckRow {
  const [name, limit] = [`grad_norms.${weightName}`, '1e-3 relative norm']
  if (!weight) return failedRow(name, limit, 'not in the model')
  const grad = weight.grad()
  const norm = grad ? Math.sqrt(grad.to('float64').square().sum().item()) : 0
  const abs = Math.abs(norm - want)
  const rel = abs / Math.max(Math.abs(want), 1e-12)
  return { name, abs, rel, limit, pass: rel <= 1e-3 || abs <= 1e-6, detail: `${norm} against ${want}` }
}

/** A row that cannot be computed, or whose quantity is missing. */
export function failedRow(name: string, limit: string, detail: string): CheckRow {
  return { name, abs: Number.NaN, rel: Number.NaN, limit, pass: false, detail }
}

function sizes(name: string, got: unknown, want: unknown, limit: string): CheckRow {
  return failedRow(name, limit, `size ${got}, expected ${want}`)
}

/** Equal or not: the fields of `want`, as far as `got` has them. */
export function compareFields(name: string, got: object, want: object): CheckRow {
  const differences = Object.entries(want).flatMap(([key, value]) => {
    const [a, b] = [JSON.stringify((got as Record<string, unknown>)[key]), JSON.stringify(value)]
    return a === b || a === undefined ? [] : [`${key}: expected ${b}, got ${a}`]
  })
  if (differences.length > 0) return failedRow(name, 'equal', differences.join('; '))
  return { name, abs: Number.NaN, rel: Number.NaN, limit: 'equal', pass: true }
}

export type Json = number | string | boolean | null | readonly Json[] | { readonly [key: string]: Json }
export type JsonObject = { readonly [key: string]: Json }

/** What a reference computed from an input. */
export interface GoldenCase {
  id: string
  name: string
  kind: string
  input: JsonObject
  expected: JsonObject
}

export type Precision = 'float64' | 'float32'

/** Within `abs` or within `rel` of the expected value, element by element. */
export interface Tolerance {
  abs: number
  rel: number
}

/** Collects the worst difference of a case over its fields. */
export class Comparison {
  readonly #name: string
  readonly #limit: Tolerance
  #abs = 0
  #rel = 0
  #worst = ''
  #share = 0
  readonly #wrong: string[] = []
  #count = 0

  constructor(name: string, limit: Tolerance) {
    this.#name = name
    this.#limit = limit
  }

  /** Numbers against numbers; null expects NaN or minus infinity. `where` limits it to positions that count. */
  numbers(field: string, got: ArrayLike<number>, expected: Json, where?: readonly number[]): void {
    const want = flatten(expected)
    if (want.length !== got.length) {
      this.#wrong.push(`${field}: ${got.length} values, expected ${want.length}`)
      return
    }
    want.forEach((value, i) => {
      if (where && where[i] === 0) return
      this.#one(`${field}[${i}]`, got[i]!, value)
    })
  }

  number(field: string, got: number, expected: Json | undefined): void {
    this.#one(field, got, expected === undefined ? null : (expected as number | null))
  }

  equal(field: string, got: unknown, expected: unknown): void {
    this.#count++
    const [a, b] = [JSON.stringify(got), JSON.stringify(expected)]
    if (a !== b) this.#wrong.push(`${field}: ${a}, expected ${b}`)
  }

  row(): CheckRow {
    const limit = `${this.#limit.abs} absolute or ${this.#limit.rel} relative`
    const row = { name: this.#name, abs: this.#abs, rel: this.#rel, limit }
    if (this.#wrong.length > 0) return { ...row, pass: false, detail: this.#wrong.slice(0, 3).join('; ') }
    return { ...row, pass: this.#count > 0, detail: this.#count > 0 ? this.#worst : 'nothing compared' }
  }

  #one(field: string, got: number, want: number | null): void {
    this.#count++
    if (want === null) {
      if (!Number.isNaN(got) && got !== Number.NEGATIVE_INFINITY) this.#wrong.push(`${field}: ${got}, expected none`)
      return
    }
    const abs = Math.abs(got - want)
    const rel = abs === 0 ? 0 : abs / Math.abs(want)
    const share = Math.min(abs / this.#limit.abs, rel / this.#limit.rel)
    if (!(share <= 1)) this.#wrong.push(`${field}: ${got}, expected ${want}`)
    if (!(share > this.#share)) return
    this.#share = share
    this.#abs = abs
    this.#rel = rel
    this.#worst = field
  }
}

export function flatten(value: Json): (number | null)[] {
  if (Array.isArray(value)) return (value as readonly Json[]).flatMap(flatten)
  return [value as number | null]
}

/** A tensor of nested numbers from a file. */
export function load(value: Json, dtype: DType): Tensor {
  return tensor(value as Parameters<typeof tensor>[0], { dtype, device: device() })
}

export function loadOr(value: Json | undefined, dtype: DType): Tensor | null {
  return value === undefined || value === null ? null : load(value, dtype)
}
