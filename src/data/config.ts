import { z } from 'zod'
import { oneOf, optional, setting } from '../config/index.ts'

/** What is read, in which order, and what happens to records that cannot be used. */
export const DataConfig = z.strictObject({
  seed: optional(
    z.int().nonnegative(),
    'decides the order of records together with the epoch; null: the seed of the run',
  ),
  shuffle: setting(z.boolean(), true, 'a new order every epoch; false reads records as stored'),
  split: oneOf(
    ['all', 'train', 'eval'],
    'which part to read; a record is in eval if the hash of its key is below evalFraction',
  ),
  splitBy: oneOf(
    ['content', 'place'],
    "key of a record: the row's own id, or its content; place: folder, shard and row, as runs of 0.1.0 have it",
  ),
  evalFraction: setting(
    z.number().min(0).max(1),
    0.02,
    'share of records in the eval part; a run holds out at least min(evalRecords, a tenth)',
  ),
  curriculum: oneOf(
    ['none', 'large-first', 'small-first', 'easy-first', 'hard-first'],
    'order by the share of the image the mask covers, or by the score in difficultyFile',
  ),
  curriculumBuckets: setting(
    z.int().min(1),
    10,
    'the curriculum orders this many equal groups; records inside a group are shuffled',
  ),
  difficultyFile: z
    .string()
    .optional()
    .describe('JSONL of {"id", "score"} (higher is harder) for easy-first and hard-first'),
  relation: oneOf(
    ['skip', 'first'],
    'records whose text names several regions (<Prompt0>, ...): left out, or region 0 with the others beside it',
  ),
  textMode: oneOf(
    ['all', 'random'],
    'several sentences of one region (RefCOCO): a record each, or one record with a sentence drawn by the seed',
  ),
  cocoText: oneOf(
    ['category', 'captions'],
    "text of a COCO region: its own caption or else its category's name, or the sentences about its image where it is the only object",
  ),
  refSplit: setting(
    z.string(),
    'train',
    'split that the files themselves name: RefCOCO (train, val, test, testA, testB), COCO, DatasetDict, Parquet, datasets cache',
  ),
  imageRoot: z
    .string()
    .optional()
    .describe('folder of the images when they are not where the format puts them (RefCOCO, annotation lists)'),
  maskDir: z
    .string()
    .optional()
    .describe("folder of mask PNGs named by id: the records are Seg-Zero's shards (id, problem, solution, image)"),
  frame: setting(z.int().nonnegative(), 0, 'frame of a video record to use (describe-anything SAV)'),
  onBadRecord: oneOf(['skip', 'stop'], 'a record that cannot be used is counted and skipped, or ends the run'),
  maxRejectFraction: setting(
    z.number().min(0).max(1),
    0.05,
    'with skip: more than this share of unusable records, over at least 1,000 or one epoch, ends the run',
  ),
  skipBrokenShards: setting(
    z.boolean(),
    false,
    'skip shards that are truncated or not downloaded; false ends the run with an error that names them',
  ),
  workers: setting(z.int().min(0).max(64), 2, 'threads that decode images; 0 decodes in the main thread'),
  prefetch: setting(z.int().min(1), 32, 'records read ahead of the training step'),
  prefetchMiB: setting(
    z.number().positive(),
    256,
    'limit on decoded images that are read ahead, in MiB; reading waits above it',
  ),
})
export type DataConfig = z.infer<typeof DataConfig>
/** The same with every setting optional. */
export type DataOptions = z.input<typeof DataConfig>
