import { readFileSync } from 'node:fs'
import { log, Mismatch, stream, streamId } from '../core/index.ts'
import { maskArea } from '../mask/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from './cache.ts'
import type { DataConfig } from './config.ts'
import { BadRecord, type Source } from './example.ts'

/** A number from 0 to 1; the record is in the eval part if it is below evalFraction. Adding data does not change it. */
export function splitNumber(key: string): number {
  return stream(streamId.data, 'split', key).uniformAt(0)
}

/** Does the record of a key belong to the eval part? */
export function isEval(key: string, fraction: number): boolean {
  return splitNumber(key) < fraction
}

/** Records of the configured part, in stored order; an empty part is an error unless it is allowed. */
export function splitIndices(source: Source, config: DataConfig, allowEmpty = false): Uint32Array {
  const all = Uint32Array.from({ length: source.length }, (_, i) => i)
  if (config.split === 'all') return all
  const wanted = config.split === 'eval'
  const part = all.filter((i) => isEval(source.key(i), config.evalFraction) === wanted)
  if (part.length > 0 || allowEmpty) return part
  const hint = `evalFraction is ${config.evalFraction} of ${source.length} records`
  throw new Mismatch({
    where: source.name,
    field: `split ${config.split}`,
    expected: 'at least one record',
    got: 0,
    hint,
  })
}

/** Fisher-Yates decided by (seed, epoch) alone. */
export function shuffleInPlace(items: Uint32Array, seed: number, epoch: number): void {
  const random = stream(seed, streamId.data, epoch)
  for (let i = items.length - 1; i > 0; i--) {
    const j = random.below(i + 1)
    const held = items[i]!
    items[i] = items[j]!
    items[j] = held
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

/** Share of the image each mask covers; NaN for records that cannot be used. Kept in the cache. */
async function maskShares(source: Source): Promise<Float64Array> {
  const packed = await cachedIndex({ kind: 'mask-shares-1', files: [], settings: source.fingerprint }, async () => {
    const shares = new Float64Array(source.length)
    const began = Date.now()
    let told = began
    for (let i = 0; i < shares.length; i++) {
      shares[i] = await maskShare(source, i)
      if (Date.now() - told < 5000) continue
      told = Date.now()
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
  if (file === undefined) {
    throw new Mismatch({
      where: 'data',
      field: 'difficultyFile',
      expected: 'a JSONL of {"id", "score"}',
      got: 'nothing',
    })
  }
  const byId = new Map<string, number>()
  readFileSync(file, 'utf8')
    .split('\n')
    .forEach((line, i) => {
      if (line.trim() === '') return
      const { id, score } = parseScore(line, `${file}: line ${i + 1}`)
      byId.set(id, score)
    })
  const scoreOf = (i: number) => byId.get(source.id(i)) ?? byId.get(source.place(i)) ?? Number.NaN
  const scores = Float64Array.from({ length: source.length }, (_, i) => scoreOf(i))
  const missing = scores.filter(Number.isNaN).length
  if (missing === scores.length) {
    throw new Mismatch({ where: file, field: 'id', expected: `ids of ${source.name}`, got: 'none of them' })
  }
  if (missing > 0) log.warn(`${file}: no score for ${missing} of ${scores.length} records; they come last`)
  return scores
}

function parseScore(line: string, where: string): { id: string; score: number } {
  let value: unknown
  try {
    value = JSON.parse(line)
  } catch (error) {
    throw new Mismatch({ where, expected: 'JSON', got: error }, { cause: error })
  }
  const { id, score } = (value ?? {}) as { id?: unknown; score?: unknown }
  if (typeof id === 'string' && typeof score === 'number' && Number.isFinite(score)) return { id, score }
  throw new Mismatch({ where, expected: '{"id": text, "score": number}', got: line.slice(0, 80) })
}

/** Bucket of every record, first bucket first; null without a curriculum. */
export async function curriculumBuckets(source: Source, config: DataConfig): Promise<Uint32Array | null> {
  const { curriculum } = config
  if (curriculum === 'none') return null
  const bySize = curriculum === 'large-first' || curriculum === 'small-first'
  const scores = bySize ? await maskShares(source) : storedScores(source, config.difficultyFile)
  const sign = curriculum === 'large-first' || curriculum === 'hard-first' ? -1 : 1
  const key = (i: number) => (Number.isNaN(scores[i]!) ? Number.POSITIVE_INFINITY : sign * scores[i]!)
  const ranked = Uint32Array.from({ length: source.length }, (_, i) => i).sort(
    (a, b) => compare(key(a), key(b)) || a - b,
  )
  const buckets = new Uint32Array(source.length)
  ranked.forEach((record, rank) => {
    buckets[record] = Math.floor((rank * config.curriculumBuckets) / source.length)
  })
  return buckets
}

/** Also for two infinities, whose difference is NaN. */
function compare(a: number, b: number): number {
  return a < b ? -1 : a > b ? 1 : 0
}
