// Our numbers against those of the public Python code. A difference is that to Python's float64; what float32 may differ by is what
// Python's own float32 differs by, a few times, and a few roundings: no number here comes from a machine.
import { readAll } from '../checkpoint/index.ts'
import type { CheckRow } from '../core/index.ts'
import type { Quantities } from './own-quantities.ts'

export interface CertificateRow extends Pick<CheckRow, 'name' | 'pass' | 'detail'> {
  /** Largest difference to Python in float64. */
  difference: number
  tolerance: number
  /** Largest difference of Python's own float32. */
  pythonError: number
  dtypes: { own: string; python: string }
}

export type Reference = ReadonlyMap<string, Float64Array>

export function readReference(path: string): Reference {
  return new Map(Array.from(readAll(path), ([name, { data }]) => [name, new Float64Array(data.slice().buffer)]))
}

/** Of float32. */
const epsilon = 2 ** -23
/** Two roundings of the same sum differ by a small factor, in the largest of many elements. */
const factor = 4
const dtypes = { own: 'float32', python: 'float32, float64' }

interface Spread {
  difference: number
  own: number
  largest: number
  /** Why there is no number. */
  problem?: string
}

/** Differences of a quantity to Python's float64, ours and Python's. */
function spreadOf(name: string, got: ArrayLike<number> | undefined, python: Reference): Spread {
  const [same, exact] = [python.get(`float32/${name}`), python.get(`float64/${name}`)]
  const sizes = [got, same, exact].map((values) => values?.length ?? 0)
  const spread: Spread = { difference: 0, own: 0, largest: 0 }
  if (!got || !same || !exact || new Set(sizes).size > 1)
    return { ...spread, difference: Number.NaN, problem: `${sizes[0]} numbers here, ${sizes[2]} in Python` }
  for (let i = 0; i < exact.length; i++) {
    spread.difference = larger(spread.difference, Math.abs(got[i]! - exact[i]!))
    spread.own = larger(spread.own, Math.abs(same[i]! - exact[i]!))
    spread.largest = larger(spread.largest, Math.abs(exact[i]!))
  }
  return spread
}

/** NaN stays. */
const larger = (a: number, b: number) => (a >= b || Number.isNaN(a) ? a : b)

function rowOf(name: string, spread: Spread, own = spread.own, largest = spread.largest): CertificateRow {
  const tolerance = factor * (own + epsilon * largest)
  const { difference, problem } = spread
  const row = { name, difference, tolerance, pythonError: spread.own, dtypes, pass: difference <= tolerance }
  return problem ? { ...row, detail: problem } : row
}

/** How near to failing; a row without a number comes first. */
const strain = ({ difference, tolerance }: CertificateRow) => (difference === 0 ? 0 : difference / tolerance)
const worstOf = (rows: readonly CertificateRow[]) =>
  rows.reduce((a, b) => (Number.isNaN(strain(a)) || strain(a) >= strain(b) ? a : b))

export interface Comparison {
  rows: CertificateRow[]
  /** The first part of the model whose output differs. */
  firstDifference?: string
}

export function compareWithPython(own: Quantities, python: Reference): Comparison {
  const logps = spreadOf('logps', own.logps, python)
  const states = stateRows(own, python)
  const plain = (label: string, name: string) => rowOf(label, spreadOf(name, own[name], python))
  // a mean of log-probabilities may be off by as much as the largest of them
  const mean = (label: string, name: string, scale = 0) => {
    const spread = spreadOf(name, own[name], python)
    return rowOf(label, spread, Math.max(spread.own, logps.own), Math.max(spread.largest, scale))
  }
  const rows = [
    { ...worstOf(states), name: `hidden states (${states.length} parts)` },
    plain('logits', 'logits'),
    plain('log-probabilities', 'logps'),
    mean('loss', 'loss'),
    ...gradientRow('gradient of the adapters', 'grad.', own, python),
    ...(own.generated ? [generatedRow(own.generated, python, plain('logits', 'logits').tolerance)] : []),
    ...(own['grpo.loss'] ? [mean('GRPO loss (TRL)', 'grpo.loss', 1)] : []),
    ...gradientRow('GRPO gradient (TRL)', 'grpo.grad.', own, python),
  ]
  const first = states.find((row) => !row.pass)?.name
  const head = rows.some((row) => row.name === 'logits' && !row.pass) ? 'lm_head' : undefined
  return { rows, firstDifference: first ?? head }
}

/** Parts in the order in which the model computes them. */
const order = ['patch_embed', 'pos_embed', 'blocks', 'deepstack', 'merger', 'embed_tokens', 'layers', 'norm']

function stateRows(own: Quantities, python: Reference): CertificateRow[] {
  const prefix = 'float64/states.'
  const inPython = [...python.keys()].filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length))
  const here = Object.keys(own)
    .filter((name) => name.startsWith('states.'))
    .map((name) => name.slice('states.'.length))
  const place = (name: string) => {
    const kind = order.findIndex((part) => name.replace(/^visual\./, '').startsWith(part))
    return kind * 1e4 + Number(/\d+$/.exec(name)?.[0] ?? 0)
  }
  const names = [...new Set([...here, ...inPython])].sort((a, b) => place(a) - place(b))
  return names.map((name) => rowOf(name, spreadOf(`states.${name}`, own[`states.${name}`], python)))
}

/** One row for all tensors. Python's error is the largest relative one, since a small tensor may have a small error by chance. */
function gradientRow(label: string, prefix: string, own: Quantities, python: Reference): CertificateRow[] {
  const names = Object.keys(own).filter((name) => name.startsWith(prefix))
  if (names.length === 0) return []
  const spreads = names.map((name) => spreadOf(name, own[name], python))
  const relative = Math.max(...spreads.map(({ own: error, largest }) => (largest > 0 ? error / largest : 0)))
  const rows = spreads.map((spread, i) => {
    const row = rowOf(names[i]!.slice(prefix.length), spread, relative * spread.largest)
    return row.pass ? row : { ...row, detail: row.detail ?? row.name }
  })
  return [{ ...worstOf(rows), name: `${label} (${names.length} tensors)` }]
}

/** Greedy ids up to the first one that rounding may decide: its logit is above the second by less than both tolerances. */
function generatedRow(got: ArrayLike<number>, python: Reference, tolerance: number): CertificateRow {
  const [want, margins] = [python.get('generated')!, python.get('margins')!]
  const tie = margins.findIndex((margin) => !(margin > 2 * tolerance))
  const compared = Math.min(got.length, tie < 0 ? want.length : tie)
  const wrong = Array.from({ length: compared }, (_, i) => i).filter((i) => got[i] !== want[i])
  const at = wrong[0]
  const detail = at === undefined ? undefined : `id ${at}: ${got[at]} against ${want[at]}`
  const pass = wrong.length === 0 && got.length > 0
  const row = { name: `generated ids (${compared})`, difference: wrong.length, tolerance: 0, pythonError: 0 }
  return { ...row, dtypes: { own: 'float32', python: 'float32' }, pass, ...(detail && { detail }) }
}
