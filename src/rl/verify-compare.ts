// Comparison of recomputed numbers with a reference's: one CheckRow for each case and precision.
import type { CheckRow } from '../core/index.ts'
import { type DType, type Tensor, tensor } from '../tensor/index.ts'

export type Json = number | string | boolean | null | readonly Json[] | { readonly [key: string]: Json }
export type JsonObject = { readonly [key: string]: Json }
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
    const { abs, rel } = this.#limit
    const pass = this.#wrong.length === 0 && this.#count > 0
    const detail = this.#wrong.length > 0 ? this.#wrong.slice(0, 3).join('; ') : this.#worst
    const limit = `${abs} absolute or ${rel} relative`
    return {
      name: this.#name,
      abs: this.#abs,
      rel: this.#rel,
      limit,
      pass,
      detail: this.#count > 0 ? detail : 'nothing compared',
    }
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
  return tensor(value as Parameters<typeof tensor>[0], { dtype })
}

export function loadOr(value: Json | undefined, dtype: DType): Tensor | null {
  return value === undefined || value === null ? null : load(value, dtype)
}
