import { lstatSync } from 'node:fs'
import type { RandomStream } from '../../src/core/index.ts'

/** What is in the place of a file: a folder, a pipe, nothing, 8 MiB of zeros, a link (`self`: to itself). */
export type FileEntry = { kind: 'folder' | 'pipe' | 'absent' | 'sparse' } | { kind: 'link'; to: string }

/** One damaged input: files of a folder, and what must hold if the reader takes them. */
export interface Case {
  files: Readonly<Record<string, Uint8Array | string>>
  /** Put in place of files of the same name. */
  entries?: Readonly<Record<string, FileEntry>>
  /** What was done, for the report. */
  note: string
  /**
   * A checksum or a count shows that the data are not those of the seed: reading them as anything else is wrong. The text is
   * what `read` returns for the whole file.
   */
  expect?: string
}

/** A kind of file: how to damage it and how to read it. Add one in formats/ and in formats/index.ts. */
export interface Format {
  name: string
  /** Files and folders of the case that the reader may write. */
  writes?: RegExp
  /** Prepares seeds in a separate folder, once a process. */
  setup(folder: string): Promise<Mutator>
  /** Reads the case as the product would. A Mismatch is a refusal; any other error is a finding. Returns what was read, as text. */
  read(folder: string, input: Case): Promise<string>
}

export type Mutator = (random: RandomStream) => Case | Promise<Case>

export const outcomes = ['read', 'refused', 'crash', 'hang', 'memory', 'raw', 'escape', 'wrong'] as const
export type Outcome = (typeof outcomes)[number]

export interface CaseResult {
  index: number
  outcome: Outcome
  note: string
  message: string
}

/** Exit code of a process that wants to be followed by another from the next case on. */
export const again = 75

/** A key of formats that need one; no message may show it. */
export const secret = 'sk-fuzz-0123456789-secret'

/** Files that can be kept: pipes cannot be copied, and holes would be filled. */
export function isSmallFile(path: string): boolean {
  const stats = lstatSync(path)
  return stats.isDirectory() || (stats.isFile() && stats.size < 1024 ** 3)
}
