// A benchmark as it lies on disk: its records (image, sentences, target) and which of them a named split holds.
import type { MaskBenchmarkName } from './names.ts'
import type { Target } from './target.ts'

export interface BenchmarkRecord {
  /** As the record has it; a published split is a rule over these words. */
  split: string
  id: string | number
  /** File name of the image; records of one image share it. */
  image: string
  /** The sentences as the protocol asks them, and the whole question of each with `<image>`. */
  sentences: readonly string[]
  questions: readonly string[]
  /** ReasonSeg: a whole sentence, not a phrase. */
  isSentence?: boolean
  target(): Promise<Target>
}

export interface MaskBenchmark {
  name: MaskBenchmarkName
  folder: string
  /** Where the images lie; null when none of the usual places has them (scoring of predictions needs none). */
  images(): string
  /** Whether EXIF orientation is applied when an image is opened. */
  orient: boolean
  /** The file that says what is asked, for its hash; null for a folder of files. */
  source: string | null
  records: readonly BenchmarkRecord[]
  /** Names of published splits, in the order of the tables. */
  splits: readonly string[]
  inSplit(split: string, record: BenchmarkRecord): boolean
}

export interface BenchmarkOptions {
  /** Folder of the images; null: the usual places are tried. */
  images: string | null
  /** Which division: 'unc', 'umd', 'google'; null: the one papers report. */
  refs: string | null
}

/** Sentences (ReasonSeg: images) of the published splits. */
const published: Readonly<Record<MaskBenchmarkName, Readonly<Record<string, number>>>> = {
  refcoco: { val: 10834, testA: 5657, testB: 5095, test: 10752 },
  'refcoco+': { val: 10758, testA: 5726, testB: 4889, test: 10615 },
  refcocog: { val: 4896, test: 9602 },
  grefcoco: {},
  reasonseg: { val: 200, test: 779 },
}

/** A sentence about a split whose size is not the published one; null when it is, or when no size is known. */
export function countWarning(
  name: MaskBenchmarkName,
  split: string,
  sentences: number,
  refs: string | null,
): string | null {
  const expected = refs === 'google' ? undefined : published[name][split]
  if (expected === undefined || expected === sentences) return null
  return `${name} ${split}: ${sentences} sentences, the published split has ${expected}; metrics are not comparable with papers`
}

export function recordsOf(benchmark: MaskBenchmark, split: string): BenchmarkRecord[] {
  return benchmark.records.filter((record) => benchmark.inSplit(split, record))
}
