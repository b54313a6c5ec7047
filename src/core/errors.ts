/** What is wrong at a place where data enters: where, which field, what was expected, what came, what to do. */
export interface MismatchInfo {
  where: string
  field?: string
  expected: string
  got: unknown
  hint?: string
}

function show(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'bigint') return `${value}`
  if (value instanceof Error) return value.message
  try {
    return JSON.stringify(value) ?? String(value)
  } catch {
    return Array.isArray(value) ? `an array of ${value.length}` : String(value) // deep arrays overflow the stack in both
  }
}

/** Bad input from outside: a file, a flag, the network, a tensor of another room. Structured first, text derived. */
export class Mismatch extends Error {
  readonly info: MismatchInfo
  readonly code = 'ERR_MISMATCH'

  constructor(info: MismatchInfo, options?: ErrorOptions) {
    const field = info.field === undefined ? '' : `${info.field}: `
    const hint = info.hint ? `. ${info.hint}` : ''
    super(`${info.where}: ${field}expected ${info.expected}, got ${show(info.got)}${hint}`, options)
    this.name = 'Mismatch'
    this.info = info
  }
}

export type Refuse = (field: string, expected: string, got: unknown, hint?: string) => never

/** Throws a Mismatch about a field of one place. */
export function refuseAt(where: string): Refuse {
  return (field, expected, got, hint) => {
    throw new Mismatch({ where, field, expected, got, hint })
  }
}

/** The result of `work`. Whatever it throws becomes a Mismatch, which has the message of the error as what came. */
export function expecting<T>(info: Omit<MismatchInfo, 'got'>, work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw error instanceof Mismatch ? error : new Mismatch({ ...info, got: messageOf(error) }, { cause: error })
  }
}

/** Exit code when a service is unreachable: EX_UNAVAILABLE of sysexits. */
export const unavailableCode = 69

/** A service that the run needs has not answered for longer than it may. */
export class Unavailable extends Mismatch {
  readonly exitCode = unavailableCode

  constructor(info: MismatchInfo) {
    super(info)
    this.name = 'Unavailable'
  }
}

/** An invariant of our own code; a failure is our bug, not the user's. */
export function assert(condition: unknown, whatMustHold: string): asserts condition {
  if (!condition) throw new Error(`broken invariant: ${whatMustHold}`)
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
