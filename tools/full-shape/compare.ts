// Compares our outputs with the reference: the largest difference in float32, and the error of both in bfloat16 against the reference in
// float32.
import { join } from 'node:path'
import { readAll } from '../../src/checkpoint/index.ts'
import { aligned, exponential } from '../../src/cli/table.ts'
import { tensor } from '../../src/tensor/index.ts'
import { compareNumbers } from '../../src/verify/compare.ts'

interface Row {
  name: string
  elements: number
  /** Largest difference over the largest magnitude, float32. */
  float32: number
  /** Root mean square of the error over that of the values, bfloat16 against the reference in float32. */
  ours: number | null
  reference: number | null
  pass: boolean
}

/** Maximum difference in float32, relative to the largest magnitude. */
const limit = 1e-4
/** Maximum of our error / the reference's error in bfloat16. */
const maxErrorRatio = 1.25

type Values = Map<string, Float32Array>
type Pair = { own: Values; theirs: Values }

function read(path: string): Values {
  return new Map(
    Array.from(readAll(path), ([name, { data }]) => [name, new Float32Array(new Uint8Array(data).buffer)] as const),
  )
}

/** Compares the files `ours-*` and `reference-*` of a folder. */
export function compareParts(dir: string, dtypes: readonly string[]): Row[] {
  const [exact, rounded] = dtypes.map((dtype) => ({
    own: read(join(dir, `ours-${dtype}.safetensors`)),
    theirs: read(join(dir, `reference-${dtype}.safetensors`)),
  })) as [Pair, Pair?]
  const names = [...new Set([...exact.theirs.keys(), ...exact.own.keys()])]
  return names.map((name) => {
    const of = (values?: Values) => values?.get(name) ?? new Float32Array()
    const want = of(exact.theirs)
    const { rel: float32 } = compareNumbers(name, of(exact.own), tensor(want), { rel: limit, words: '' })
    const [ours, reference] = rounded ? [rms(of(rounded.own), want), rms(of(rounded.theirs), want)] : [null, null]
    const pass = float32 <= limit && (ours === null || ours <= maxErrorRatio * reference!)
    return { name, elements: want.length, float32, ours, reference, pass }
  })
}

function rms(a: Float32Array, want: Float32Array): number {
  if (a.length !== want.length) return Number.NaN
  let [error, size] = [0, 0]
  for (let i = 0; i < a.length; i++) {
    error += (a[i]! - want[i]!) ** 2
    size += want[i]! ** 2
  }
  return Math.sqrt(error / size)
}

export function table(rows: readonly Row[]): string {
  const head = ['quantity', 'elements', 'float32: largest difference', 'bfloat16: ours', 'bfloat16: reference', '']
  const body = rows.map(({ name, elements, float32, ours, reference, pass }) => {
    const errors = [float32, ours, reference].map((error) => exponential(error ?? Number.NaN))
    return [name, String(elements), ...errors, pass ? 'ok' : 'FAIL']
  })
  return aligned([head, ...body], { right: [1, 2, 3, 4] })
}
