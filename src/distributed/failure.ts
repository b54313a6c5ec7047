// How a process of several ends: the code says to the launcher whether another start can help.
import { writeFileSync } from 'node:fs'
import { Mismatch, type MismatchInfo, messageOf, unavailableCode } from '../core/index.ts'

export const exitCodes = {
  finished: 0,
  /** Bad configuration or input. */
  configuration: 2,
  /** A judge or a tracker is unreachable. */
  unavailable: unavailableCode,
  /** Internal error, or ranks that no longer agree. */
  internal: 70,
  /** A peer or the connection to it is lost. */
  peer: 75,
  /** The guard against non-finite numbers gave up. */
  nonFinite: 76,
  /** A checkpoint could not be written. */
  disk: 77,
  interrupted: 130,
  terminated: 143,
} as const

const restartable: ReadonlySet<number> = new Set([exitCodes.internal, exitCodes.peer])

/** A signal that nobody sent on purpose (killed for memory, a crash) is a reason to start again. */
export function mayRestart(code: number | null, signal: NodeJS.Signals | null): boolean {
  if (code === null) return signal !== 'SIGINT' && signal !== 'SIGTERM'
  return restartable.has(code) || code === 134 || code === 137 || code === 139
}

/** Another rank failed, fell silent or was killed; the group is of no more use. */
export class PeerFailure extends Error {
  readonly exitCode = exitCodes.peer
  readonly code = 'ERR_PEER'
  override readonly name = 'PeerFailure'
}

/** Ranks that should be equal differ: in what they call, or in their weights. */
export class Divergence extends Error {
  readonly exitCode = exitCodes.internal
  readonly code = 'ERR_DIVERGENCE'
  override readonly name = 'Divergence'
}

/** Ranks were started with different settings, or opened different models. */
export class Disagreement extends Mismatch {
  readonly exitCode = exitCodes.configuration

  constructor(info: MismatchInfo) {
    super(info)
    this.name = 'Disagreement'
  }
}

/** The code for an error that ends a process: its own, or by kind. An error that crossed threads has its fields, not its class. */
export function exitCodeOf(error: unknown): number {
  const { exitCode, code } = (error ?? {}) as { exitCode?: unknown; code?: unknown }
  if (typeof exitCode === 'number') return exitCode
  if (code === 'ENOSPC' || code === 'EDQUOT') return exitCodes.disk
  return code === 'ERR_MISMATCH' ? exitCodes.configuration : exitCodes.internal
}

/** torchrun prints the file of the rank that failed first as the root cause. */
export function writeErrorFile(error: unknown, env: Readonly<Record<string, string | undefined>> = process.env): void {
  const path = env['TORCHELASTIC_ERROR_FILE']
  if (!path) return
  const stack = error instanceof Error ? (error.stack ?? '') : ''
  const extraInfo = { timestamp: String(Math.floor(Date.now() / 1000)), py_callstack: stack }
  writeFileSync(path, JSON.stringify({ message: { message: messageOf(error), extraInfo } }))
}
