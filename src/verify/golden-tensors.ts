// The files of a golden set: golden.json, and its tensors by name with the rows of a comparison with them.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights, readTensors } from '../checkpoint/index.ts'
import { type CheckRow, Mismatch } from '../core/index.ts'
import type { Module } from '../nn/index.ts'
import type { Tensor } from '../tensor/index.ts'
import { compareIds, compareNumbers, compareTensor, type Limit } from './compare.ts'
import { device } from './device.ts'

/** golden.json of a set, trusted to have the fields of `T`. */
export function readGolden<T>(dir: string): T {
  return JSON.parse(readFileSync(join(dir, 'golden.json'), 'utf8')) as T
}

export class GoldenTensors {
  readonly #stored: ReadonlyMap<string, Tensor>

  constructor(path: string) {
    this.#stored = readTensors(openWeights(path), device())
  }

  has(name: string): boolean {
    return this.#stored.has(name)
  }

  names(prefix = ''): string[] {
    return [...this.#stored.keys()].filter((name) => name.startsWith(prefix))
  }

  get(name: string): Tensor {
    const t = this.#stored.get(name)
    if (!t) throw new Mismatch({ where: 'golden.safetensors', field: name, expected: 'a tensor', got: 'none' })
    return t
  }

  numbers(name: string): number[] {
    return this.get(name).numbers()
  }

  tensor(name: string, got: Tensor, limit?: Limit): CheckRow {
    return compareTensor(name, got, this.get(name), limit)
  }

  values(name: string, got: ArrayLike<number>, limit: Limit): CheckRow {
    return compareNumbers(name, got, this.get(name), limit)
  }

  ids(name: string, got: ArrayLike<number>): CheckRow {
    return compareIds(name, got, this.numbers(name))
  }

  /** A row if the set has a tensor of this name: sets of different models have different quantities. */
  optional(name: string, row: (name: string) => CheckRow): CheckRow[] {
    return this.has(name) ? [row(name)] : []
  }

  dispose(): void {
    for (const t of this.#stored.values()) t.dispose()
  }
}

/** Rows of a set; its tensors and the weights of `module` are freed afterwards. */
export function withGolden(path: string, module: Module, rowsOf: (want: GoldenTensors) => CheckRow[]): CheckRow[] {
  const want = new GoldenTensors(path)
  try {
    return rowsOf(want)
  } finally {
    want.dispose()
    for (const t of module.parameters().values()) t.dispose()
  }
}
