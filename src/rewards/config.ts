import { z } from 'zod'
import { mayHoldKey } from '../config/index.ts'

/** What a term looks at: names of the fields of an Answer (reward.ts). */
export const producedNames = ['caption', 'captionPrime', 'mask', 'maskPrime', 'text'] as const
export type Produced = (typeof producedNames)[number]

export const termWeight = z
  .number()
  .positive()
  .default(1)
  .describe('share of the term; the weights of a task need not sum to 1')
const captionOf = z.enum(['caption', 'captionPrime']).describe('which text is scored against the reference')
const maskOf = z.enum(['mask', 'maskPrime']).describe("which mask is compared with the record's")

/** A term with its own fields beside type and weight. */
const term = <T extends string, F extends z.ZodRawShape>(type: T, doc: string, fields: F) =>
  z.strictObject({ type: z.literal(type).describe(doc), weight: termWeight, ...fields })

export const TermConfig = z.discriminatedUnion('type', [
  term('iou', 'intersection over union', { of: maskOf }),
  term('maskConfidence', 'how sure SAM2 is of the mask it drew', {
    of: z.enum(['mask', 'maskPrime']).describe('which mask'),
  }),
  term('meteor', 'METEOR, as NLTK computes it', { of: captionOf }),
  term('bleu', 'BLEU-4', { of: captionOf }),
  term('rouge', 'ROUGE-L', { of: captionOf }),
  term('cider', 'CIDEr-D, from 0 to 10', {
    of: captionOf,
    corpus: z.string().min(1).describe('file of captions, one a line: rare words of it count more'),
  }),
  term('judge', 'a language model as judge', { of: captionOf }),
  term('length', 'the length factor as a separate term', { of: captionOf }),
  term('format', '1 when the answer has the expected form, else 0', {
    of: z.enum(['caption', 'captionPrime', 'text']).describe('text: exactly one [SEG]; captions: words, no markers'),
  }),
  term('module', 'a custom reward', {
    path: z.string().min(1).describe('TypeScript or JavaScript module that exports `reward`'),
  }),
])
export type TermConfig = z.infer<typeof TermConfig>

export const LengthShaping = z.strictObject({
  kind: z.literal('captionLength').default('captionLength').describe('multiply the total by the length factor'),
  min: z.int().positive().default(25).describe('words below which a caption is short'),
  max: z.int().positive().default(120).describe('words above which a caption is long'),
  lambda: z.number().nonnegative().default(0.5).describe('how much a short caption loses'),
  power: z.number().positive().default(1).describe('exponent of the missing share'),
  floor: z.number().min(0).max(1).default(0.25).describe('smallest factor of a short caption, and of both together'),
  lambdaLong: z.number().nonnegative().default(0.3).describe('how much a long caption loses'),
  floorLong: z.number().min(0).max(1).default(0.6).describe('smallest factor of a long caption'),
})
export type LengthShaping = z.infer<typeof LengthShaping>

export const TaskRewards = z.strictObject({
  terms: z.array(TermConfig).min(1).describe('what is scored; the reward is the weighted mean'),
  shaping: z
    .union([z.literal('none'), LengthShaping])
    .default('none')
    .describe('a factor on the total'),
})
export type TaskRewards = z.infer<typeof TaskRewards>

const isBare = ({ username, password, search, hash }: URL) => username + password + search + hash === ''

/** Address of a judge, as a setting or in OPENAI_BASE_URL. */
export const JudgeUrl = z.url({ protocol: /^https?$/ }).refine((url) => !URL.canParse(url) || isBare(new URL(url)), {
  error: 'an address without user and password, and without a query; the key comes from the environment',
  ...mayHoldKey,
})

/** Small letters and digits mixed over a length that names of variables do not have. */
const looksLikeKey = /^(?=.*[a-z])(?=.*\d).{20,}$/

export const JudgeConfig = z.strictObject({
  enabled: z
    .boolean()
    .default(false)
    .describe('ask the judge for every judge term; false: its share goes to METEOR, unless a judge flag is set'),
  baseUrl: JudgeUrl.nullable()
    .default(null)
    .describe('OpenAI-compatible endpoint; if null, OPENAI_BASE_URL of the environment, else http://localhost:9100/v1'),
  model: z.string().min(1).default('meta-llama/Meta-Llama-3.1-8B-Instruct').describe('model name sent to the endpoint'),
  apiKeyEnv: z
    .string()
    .refine((name) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !looksLikeKey.test(name), {
      error: 'the name of an environment variable, which holds the key',
      ...mayHoldKey,
    })
    .default('OPENAI_API_KEY')
    .describe('environment variable that holds the key; unset sends the word none'),
  mode: z
    .enum(['checklist', 'number'])
    .default('checklist')
    .describe('checklist: questions about the reference, answered from the caption; number: one grade from 0 to 10'),
  ask: z
    .enum(['perQuestion', 'single'])
    .default('perQuestion')
    .describe('checklist: one call per question, or all questions in one call; two different judges'),
  map: z
    .enum(['clamp', 'affine', 'raw'])
    .default('clamp')
    .describe('checklist score in [-1, 1] to reward: max(0, x), (x + 1)/2, x'),
  maxPositives: z.int().min(1).max(20).default(5).describe('stated attributes asked about, at most'),
  minPositives: z.int().min(1).max(20).default(1).describe('fewer than this: the reference is unjudgeable'),
  maxNegatives: z
    .int()
    .min(0)
    .max(20)
    .default(5)
    .describe('unmentioned things asked about, at most; 0 switches them off'),
  selfCheck: z.boolean().default(true).describe('drop questions that the reference itself does not answer fully'),
  maxConcurrency: z.int().min(1).max(1024).default(32).describe('requests in flight'),
  requestsPerMinute: z.number().nonnegative().default(0).describe('rate limit; 0 for none'),
  timeoutMs: z.int().positive().default(30_000).describe('one request, headers and body, in milliseconds'),
  retries: z.int().min(0).max(20).default(3).describe('further attempts after a failure that may pass'),
  retryBaseMs: z.number().nonnegative().default(500).describe('first delay; doubles each time, plus or minus 20 %'),
  retryAfterMaxMs: z.number().nonnegative().default(60_000).describe('longest Retry-After that is obeyed'),
  breakerFailures: z.int().min(1).default(5).describe('calls failed in a row that open the circuit'),
  breakerOpenMs: z.number().nonnegative().default(30_000).describe('how long calls fail at once before one probe'),
  minAnswered: z.number().min(0).max(1).default(0.5).describe('share of questions that must be answered'),
  onUnavailable: z
    .enum(['meteor', 'skip', 'stop'])
    .default('meteor')
    .describe(
      'for the whole group, when one caption could not be judged: remaining terms only, no gradient, or end the run',
    ),
  maxUnavailableFraction: z
    .number()
    .min(0)
    .max(1)
    .default(0.2)
    .describe('share of affected groups in 50 steps that ends the run'),
  onInjection: z.enum(['flag', 'zero']).default('flag').describe('what a caption that talks to the judge gets'),
  canaryRate: z
    .number()
    .min(0)
    .max(1)
    .default(0.02)
    .describe('share of captions with one extra question whose answer is known'),
  maxCaptionWords: z.int().positive().default(256).describe('longer captions are cut, and flagged'),
  seed: z.int().nonnegative().default(0).describe('of the option order'),
  cacheDir: z.string().min(1).default('judge-cache').describe('folder of the answers kept between runs'),
  costPerMillionIn: z
    .number()
    .nonnegative()
    .default(0)
    .describe('price of a million prompt tokens, for the cost counter'),
  costPerMillionOut: z.number().nonnegative().default(0).describe('price of a million completion tokens'),
})
export type JudgeConfig = z.infer<typeof JudgeConfig>

export const MeteorConfig = z.strictObject({
  alpha: z.number().min(0).max(1).default(0.9).describe('weight of precision in the mean'),
  beta: z.number().nonnegative().default(3).describe('exponent of the fragmentation penalty'),
  gamma: z.number().min(0).max(1).default(0.5).describe('weight of the fragmentation penalty'),
  tokenizer: z
    .enum(['whitespace', 'words'])
    .default('whitespace')
    .describe("words splits punctuation off; not comparable with NLTK's usual use"),
})
export type MeteorConfig = z.infer<typeof MeteorConfig>

export const IouConfig = z.strictObject({
  empty: z.number().min(0).max(1).default(0).describe('value when both masks are empty'),
  resolution: z
    .union([z.literal('native'), z.int().positive()])
    .default('native')
    .describe("native: the record's own; a number: both masks resized bilinearly to that square"),
  multiSeg: z.enum(['first', 'union']).default('first').describe('which mask counts when an answer has several [SEG]'),
})
export type IouConfig = z.infer<typeof IouConfig>

/** Settings every run has; the rewards of its tasks are added by their kind. */
export const RewardsConfig = z.strictObject({
  modules: z
    .array(z.strictObject({ path: z.string().min(1).describe('module that exports `reward`'), weight: termWeight }))
    .default([])
    .describe('custom rewards, added to every task (--reward PATH)'),
  timeoutSeconds: z
    .number()
    .positive()
    .default(600)
    .describe('a reward that has not scored a group by then ends the run'),
  meteor: MeteorConfig.prefault({}).describe('settings of METEOR'),
  iou: IouConfig.prefault({}).describe('settings of the mask overlap'),
  length: LengthShaping.prefault({}).describe('settings of the length term'),
  judge: JudgeConfig.prefault({}).describe('settings of the judge'),
})
export type RewardsConfig = z.infer<typeof RewardsConfig>
