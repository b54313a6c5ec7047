import type { Bench } from './bench.ts'

/** What the product promises; the page says each in a sentence. */
export const promises = {
  exact: 'the same command again ends with the bytes of a run that nothing disturbed',
  safe: 'a checkpoint that was written is never lost or half',
  ends: 'a run ends soon, with a clear message and an exit code that schedulers understand',
  words: 'what cannot be used is refused by name, before it costs time or spoils anything',
  counted: 'what can be done without is done without, counted and reported',
  outside: 'files and texts from outside run nothing, reach nothing and cost little',
  secret: 'keys are in no file, no output and no command line',
} as const

export type Promised = keyof typeof promises

/** One row of the table: a fault, what it must not break, and the code that makes it happen. */
export interface Row {
  number: number
  /** For `--only`. */
  name: string
  fault: string
  promise: Promised
  /** Runs in `npm test` too: seconds, most of them in one process. */
  quick?: true
  /** Makes it happen; throws when the promise is not kept. Returns what was seen. */
  show(bench: Bench): Promise<string>
}

type Parts = [number: number, name: string, fault: string, promise: Promised, show: Row['show']]

export const row = (...[number, name, fault, promise, show]: Parts): Row => ({ number, name, fault, promise, show })

/** A row that runs in `npm test` too. */
export const quick = (...parts: Parts): Row => ({ ...row(...parts), quick: true })

/** The machine lacks what a row needs; the row says so instead of being reported as passed. */
export class NotHere extends Error {}

export type State = 'passed' | 'failed' | 'not run'

export interface Shown extends Pick<Row, 'number' | 'name' | 'fault' | 'promise'> {
  state: State
  seen: string
  seconds: number
}

export async function showRow(row: Row, bench: Bench): Promise<Shown> {
  const { number, name, fault, promise } = row
  const from = performance.now()
  const ended = (state: State, seen: string): Shown => {
    const seconds = Math.round((performance.now() - from) / 100) / 10
    return { number, name, fault, promise, state, seen, seconds }
  }
  try {
    return ended('passed', await row.show(bench))
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error)
    return ended(error instanceof NotHere ? 'not run' : 'failed', text.split('\n').slice(0, 3).join(' '))
  }
}
