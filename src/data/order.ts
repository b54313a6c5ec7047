import { type JsonObject, log, Mismatch, readJsonLines, stream, streamId } from '../core/index.ts'
import { maskArea } from '../mask/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from './cache.ts'
import type { DataConfig } from './config.ts'
import { BadRecord, type Source } from './example.ts'

/** A number from 0 to 1; a record is in the eval split if it is below evalFraction. Adding data does not change it. */
export function splitNumber(key: string): number {
  return stream(streamId.data, 'split', key).uniformAt(0)
}

/** Whether the record with this key is in the eval split. */
export function isEval(key: string, fraction: number): boolean {
  return splitNumber(key) < fraction
}

/** Records of the configured split, in stored order; an empty one is an error unless `allowEmpty`. */
export function splitIndices(source: Source, config: DataConfig, allowEmpty = false): Uint32Array {
  const all = Uint32Array.from({ length: source.length }, (_, i) => i)
  if (config.split === 'all') return all
  const wanted = config.split === 'eval'
  const part = all.filter((i) => isEval(source.key(i), config.evalFraction) === wanted)
  if (part.length > 0 || allowEmpty) return part
  const hint = `evalFraction is ${config.evalFraction} of ${source.length} records`
  const field = `split ${config.split}`
  throw new Mismatch({ where: source.name, field, expected: 'at least one record', got: 0, hint })
}

/** Fisher-Yates decided by (seed, epoch) alone. */
export function shuffleInPlace(items: Uint32Array, seed: number, epoch: number): void {
  const random = stream(seed, streamId.data, epoch)
  for (let i = items.length - 1; i > 0; i--) {
    const j = random.below(i + 1)
    ;[items[i], items[j]] = [items[j]!, items[i]!]
  }
}

/** The order of one epoch: shuffled, then grouped by the curriculum's bucket of each record. */
export function epochOrder(
  part: Uint32Array,
  buckets: Uint8Array | Uint32Array | null,
  config: DataConfig,
  epoch: number,
): Uint32Array {
  const order = part.slice()
  if (config.shuffle) shuffleInPlace(order, config.seed ?? 0, epoch)
  if (!buckets) return order
  return Uint32Array.from(
    [...order.keys()].sort((a, b) => buckets[order[a]!]! - buckets[order[b]!]! || a - b),
    (i) => order[i]!,
  )
}

/** Share of the image that each mask covers; NaN for records that cannot be used. Cached. */
async function maskShares(source: Source): Promise<Float64Array> {
  const packed = await cachedIndex({ kind: 'mask-shares-1', files: [], settings: source.fingerprint }, async () => {
    const shares = new Float64Array(source.length)
    let loggedAt = performance.now()
    for (let i = 0; i < shares.length; i++) {
      shares[i] = await maskShare(source, i)
      if (performance.now() - loggedAt < 5000) continue
      loggedAt = performance.now()
      log.info(`${source.name}: mask sizes of ${i + 1} of ${shares.length} records`)
    }
    return packNumbers(shares)
  })
  return unpackNumbers(packed)
}

async function maskShare(source: Source, index: number): Promise<number> {
  try {
    const { mask } = await source.region(index, { image: false })
    return maskArea(mask) / (mask.height * mask.width)
  } catch (error) {
    if (error instanceof BadRecord) return Number.NaN // counted with its reason when its turn comes
    throw error
  }
}

/** Scores stored by id: JSONL of {"id", "score"}. */
function storedScores(source: Source, file: string | undefined): Float64Array {
  const expected = 'a JSONL of {"id", "score"}'
  if (file === undefined) throw new Mismatch({ where: 'data', field: 'difficultyFile', expected, got: 'nothing' })
  const byId = new Map(readJsonLines(file).map(scoreOfLine))
  const scoreOf = (i: number) => byId.get(source.id(i)) ?? byId.get(source.place(i)) ?? Number.NaN
  const scores = Float64Array.from({ length: source.length }, (_, i) => scoreOf(i))
  const missing = scores.filter(Number.isNaN).length
  if (missing === scores.length) {
    throw new Mismatch({ where: file, field: 'id', expected: `ids of ${source.name}`, got: 'none of them' })
  }
  if (missing > 0) log.warn(`${file}: no score for ${missing} of ${scores.length} records; they come last`)
  return scores
}

function scoreOfLine({ value, where }: { value: JsonObject; where: string }): [string, number] {
  const { id, score } = value
  if (typeof id === 'string' && typeof score === 'number' && Number.isFinite(score)) return [id, score]
  throw new Mismatch({ where, expected: '{"id": text, "score": number}', got: value })
}

/** Bucket of every record, first bucket first; null without a curriculum. */
export async function curriculumBuckets(source: Source, config: DataConfig): Promise<Uint32Array | null> {
  const { curriculum } = config
  if (curriculum === 'none') return null
  const bySize = curriculum === 'large-first' || curriculum === 'small-first'
  const scores = bySize ? await maskShares(source) : storedScores(source, config.difficultyFile)
  const sign = curriculum === 'large-first' || curriculum === 'hard-first' ? -1 : 1
  const key = (i: number) => (Number.isNaN(scores[i]!) ? Number.POSITIVE_INFINITY : sign * scores[i]!)
  // the difference of two infinities is NaN: they keep their order
  const ranked = Uint32Array.from({ length: source.length }, (_, i) => i).sort((a, b) => key(a) - key(b) || a - b)
  const buckets = new Uint32Array(source.length)
  ranked.forEach((record, rank) => {
    buckets[record] = Math.floor((rank * config.curriculumBuckets) / source.length)
  })
  return buckets
}
