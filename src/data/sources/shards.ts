// Shared by sources of several files: skipping broken ones, reporting missing ones, rejecting names outside the folder.
import { log, Mismatch } from '../../core/index.ts'
import type { DataConfig } from '../config.ts'
import { BadRecord } from '../example.ts'

/** `have 3 of 44 shards, missing 3 to 43`, or nothing. */
export function missingShards(folder: string, files: readonly string[], missing: readonly string[] = []): string[] {
  if (missing.length > 0) {
    const named = missing.slice(0, 5).join(', ') + (missing.length > 5 ? ', ...' : '')
    return [
      `${folder}: have ${files.length} of ${files.length + missing.length} shards that state.json names; missing ${named}`,
    ]
  }
  const numbered = files.map((f) => /-(\d{5})-of-(\d{5})(?:-\w+)?\.\w+$/.exec(f)).filter((m) => m !== null)
  const total = Number(numbered[0]?.[2] ?? 0)
  const have = new Set(numbered.map((m) => Number(m[1])))
  const absent = Array.from({ length: total }, (_, i) => i).filter((i) => !have.has(i))
  return absent.length === 0 ? [] : [`${folder}: have ${have.size} of ${total} shards; missing ${ranges(absent)}`]
}

function ranges(numbers: readonly number[]): string {
  const parts: string[] = []
  for (let i = 0; i < numbers.length; ) {
    let end = i
    while (numbers[end + 1] === numbers[end]! + 1) end++
    parts.push(end === i ? `${numbers[i]}` : `${numbers[i]} to ${numbers[end]}`)
    i = end + 1
  }
  return parts.join(', ')
}

/** Opens each file. A broken one ends the run, or is skipped with a warning if `skipBrokenShards` is set. */
export async function openEach<T>(
  files: readonly string[],
  config: DataConfig,
  open: (file: string) => Promise<T>,
): Promise<{ good: T[]; broken: BadRecord[] }> {
  const good: T[] = []
  const broken: BadRecord[] = []
  const began = performance.now()
  for (const [i, file] of files.entries()) {
    try {
      good.push(await open(file))
    } catch (error) {
      if (!(error instanceof Mismatch)) throw error
      const bad = new BadRecord('broken-shard', error.info, { cause: error })
      if (!config.skipBrokenShards) throw bad
      log.warn(`skipped: ${bad.message}`)
      broken.push(bad)
    }
    if (performance.now() - began > 2000 && i % 10 === 9) log.info(`indexed ${i + 1} of ${files.length} shards`)
  }
  return { good, broken }
}

export function noneReadable(where: string, what: string, broken: readonly BadRecord[]): Mismatch {
  const hint = broken[0]?.message
  return new Mismatch({ where, expected: `at least one readable ${what}`, got: `${broken.length} broken`, hint })
}

/** Returns a relative name that is below its folder; rejects any other. */
export function insideFolder(name: unknown, where: string, field: string): string {
  const parts = typeof name === 'string' ? name.split(/[/\\]/) : ['..']
  const plain = parts.every((part) => part !== '..') && parts[0] !== '' && !/^[a-z]:$/i.test(parts[0]!)
  if (plain && !(name as string).includes('\0')) return name as string
  const hint = 'no absolute paths, no ..'
  throw new Mismatch({ where, field, expected: 'a file below that folder', got: name, hint })
}
