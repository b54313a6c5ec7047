// Which records a task finds worth training on: each record is checked once, and the result is kept in the cache.
import { log, sha256 } from '../core/index.ts'
import { BadRecord, cachedIndex, packNumbers, type Source, unpackNumbers } from '../data/index.ts'
import type { RecordChooser } from '../tasks/index.ts'
import { tidyNoGrad } from '../tensor/index.ts'

/** `part`: the records to choose from, in stored order. */
export async function chooseRecords(source: Source, part: Uint32Array, chooser: RecordChooser) {
  const settings = JSON.stringify([source.fingerprint, sha256(part.join()), chooser.settings])
  const kept = await cachedIndex({ kind: 'chosen-1', files: chooser.files, settings }, async () => {
    const seen = await lookAtAll(source, part, chooser)
    const width = seen.find((row) => row !== null)?.length ?? 0
    const flat = seen.flatMap((row) => row ?? Array<number>(width).fill(Number.NaN))
    return { width, numbers: packNumbers(flat) }
  })
  const numbers = unpackNumbers(kept.numbers)
  const rows = Array.from(part, (_, i) => {
    const row = [...numbers.subarray(i * kept.width, (i + 1) * kept.width)]
    return row.length === 0 || row.some(Number.isNaN) ? null : row
  })
  const { kept: positions, summary } = chooser.choose(rows)
  return { only: Uint32Array.from(positions, (i) => part[i]!), summary }
}

async function lookAtAll(source: Source, part: Uint32Array, { look }: RecordChooser) {
  const out: (readonly number[] | null)[] = []
  let shownAt = performance.now()
  for (const index of part) {
    out.push(await lookAt(source, index, look))
    if (performance.now() - shownAt < 5000) continue
    shownAt = performance.now()
    log.info(`${source.name}: checked ${out.length} of ${part.length} records`)
  }
  return out
}

async function lookAt(source: Source, index: number, look: RecordChooser['look']): Promise<readonly number[] | null> {
  try {
    const example = await source.get(index)
    return tidyNoGrad(() => look(example) as never) as readonly number[]
  } catch (error) {
    if (error instanceof BadRecord) return null // counted with its reason when its turn comes
    throw error
  }
}
