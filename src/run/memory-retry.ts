// A step that runs out of memory is tried once more with half as many records at a time; then the run ends with a clear message.
import { Mismatch, messageOf } from '../core/index.ts'
import { emptyCache } from '../tensor/index.ts'

type Pieces<Item> = readonly (readonly Item[])[]

export interface Retry {
  /** Other processes would wait for one that begins again. */
  readonly alone: boolean
  report(text: string): void
}

/** An error that crossed from the addon has its code, not its class. */
function isOutOfMemory(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === 'ERR_OOM'
}

function halves<Item>(items: readonly Item[]): (readonly Item[])[] {
  const middle = Math.ceil(items.length / 2)
  return items.length < 2 ? [items] : [items.slice(0, middle), items.slice(middle)]
}

/**
 * Runs `work` on records that are in memory together, a piece at a time. If memory runs out, it repeats the work on halves of the pieces:
 * what is drawn and what is learned do not depend on how records are cut.
 */
export async function withinMemory<Item, R>(
  pieces: Pieces<Item>,
  work: (pieces: Pieces<Item>) => Promise<R>,
  { alone, report }: Retry,
): Promise<R> {
  try {
    return await work(pieces)
  } catch (error) {
    if (!isOutOfMemory(error) || !alone) throw error
    const smaller = pieces.flatMap(halves)
    if (smaller.length === pieces.length) throw error
    emptyCache()
    report(`out of memory with ${largest(pieces)} records at a time: once more with ${largest(smaller)}`)
    return work(smaller)
  }
}

function largest<Item>(pieces: Pieces<Item>): number {
  return Math.max(...pieces.map((items) => items.length))
}

/** The error of a step, with what to do when it is one of memory. */
export function describeMemoryError(error: unknown): never {
  if (!isOutOfMemory(error)) throw error
  const hint =
    'the last checkpoint is intact; fewer records in memory together need less: a smaller batchSize with larger ' +
    'rl.gradientAccumulationSteps, or smaller rl.numGenerations, rl.maxCompletionLength'
  const [got] = messageOf(error).split('\n')
  throw new Mismatch({ where: 'step', field: 'memory', expected: 'room for the tensors of a step', got, hint })
}
