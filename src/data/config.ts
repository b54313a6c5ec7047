import { z } from 'zod'

/** What is read, in which order, and what happens to records that cannot be used. */
export const DataConfig = z.strictObject({
  seed: z
    .int()
    .nonnegative()
    .nullable()
    .default(null)
    .describe('decides the order of records together with the epoch; null: the seed of the run'),
  shuffle: z.boolean().default(true).describe('a new order every epoch; false reads records as stored'),
  split: z
    .enum(['all', 'train', 'eval'])
    .default('all')
    .describe('which part to read; a record is in eval if the hash of its key is below evalFraction'),
  splitBy: z
    .enum(['content', 'place'])
    .default('content')
    .describe(
      "key of a record: the row's own id, or its content; place: folder, shard and row, as runs of 0.1.0 have it",
    ),
  evalFraction: z
    .number()
    .min(0)
    .max(1)
    .default(0.02)
    .describe('share of records in the eval part; a run holds out at least min(evalRecords, a tenth)'),
  curriculum: z
    .enum(['none', 'large-first', 'small-first', 'easy-first', 'hard-first'])
    .default('none')
    .describe('order by the share of the image the mask covers, or by the score in difficultyFile'),
  curriculumBuckets: z
    .int()
    .min(1)
    .default(10)
    .describe('the curriculum orders this many equal groups; records inside a group are shuffled'),
  difficultyFile: z
    .string()
    .optional()
    .describe('JSONL of {"id", "score"} (higher is harder) for easy-first and hard-first'),
  relation: z
    .enum(['skip', 'first'])
    .default('skip')
    .describe(
      'records whose text names several regions (<Prompt0>, ...): left out, or region 0 with the others beside it',
    ),
  textMode: z
    .enum(['all', 'random'])
    .default('all')
    .describe(
      'several sentences of one region (RefCOCO): a record each, or one record with a sentence drawn by the seed',
    ),
  cocoText: z
    .enum(['category', 'captions'])
    .default('category')
    .describe(
      "text of a COCO region: its own caption or else its category's name, or the sentences about its image where it is the only object",
    ),
  refSplit: z
    .string()
    .default('train')
    .describe(
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
  frame: z.int().nonnegative().default(0).describe('frame of a video record to use (describe-anything SAV)'),
  onBadRecord: z
    .enum(['skip', 'stop'])
    .default('skip')
    .describe('a record that cannot be used is counted and skipped, or ends the run'),
  maxRejectFraction: z
    .number()
    .min(0)
    .max(1)
    .default(0.05)
    .describe('with skip: more than this share of unusable records, over at least 1,000 or one epoch, ends the run'),
  skipBrokenShards: z
    .boolean()
    .default(false)
    .describe('skip shards that are truncated or not downloaded; false ends the run with an error that names them'),
  workers: z.int().min(0).max(64).default(2).describe('threads that decode images; 0 decodes in the main thread'),
  prefetch: z.int().min(1).default(32).describe('records read ahead of the training step'),
  prefetchMiB: z
    .number()
    .positive()
    .default(256)
    .describe('limit on decoded images that are read ahead, in MiB; reading waits above it'),
})
export type DataConfig = z.infer<typeof DataConfig>
/** The same with every setting optional. */
export type DataOptions = z.input<typeof DataConfig>
