// Held-out records in batches, dealt to the processes in turn.
import type { Example } from '../data/index.ts'
import { alone, type World } from '../distributed/index.ts'
import type { RecordScore } from '../tasks/index.ts'

/**
 * Null if it was stopped before the last record: metrics over a part would look like metrics over all. The processes take batches
 * in turn. Each gets all scores in the order of the records, so results do not depend on the number of processes.
 */
export async function evaluateAll<S extends RecordScore>(
  examples: readonly Example[],
  batchSize: number,
  evaluate: (batch: readonly Example[]) => S[],
  onProgress: (done: number) => void,
  stopping: () => boolean = () => false,
  world: World = alone,
): Promise<S[] | null> {
  const scores: S[] = []
  for (let at = 0; at < examples.length; at += batchSize * world.size) {
    const from = at + batchSize * world.rank
    const batch = examples.slice(from, from + batchSize)
    const made = await world.gather({ scores: batch.length > 0 ? evaluate(batch) : [], stop: stopping() })
    scores.push(...made.flatMap((share) => share.scores))
    onProgress(scores.length)
    await new Promise((done) => setImmediate(done))
    const stop = world.size === 1 ? stopping() : made.some((share) => share.stop)
    if (stop && scores.length < examples.length) return null
  }
  return scores
}
