import { z } from 'zod'
import { mayHoldKey, oneOf, setting } from '../config/index.ts'

/** What a term looks at: names of the fields of an Answer (reward.ts). */
export const producedNames = ['caption', 'captionPrime', 'mask', 'maskPrime', 'text'] as const
export type Produced = (typeof producedNames)[number]

export const termWeight = setting(
  z.number().positive(),
  1,
  'share of the term; the weights of a task need not sum to 1',
)
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
  kind: setting(z.literal('captionLength'), 'captionLength', 'multiply the total by the length factor'),
  min: setting(z.int().positive(), 25, 'words below which a caption is short'),
  max: setting(z.int().positive(), 120, 'words above which a caption is long'),
  lambda: setting(z.number().nonnegative(), 0.5, 'how much a short caption loses'),
  power: setting(z.number().positive(), 1, 'exponent of the missing share'),
  floor: setting(z.number().min(0).max(1), 0.25, 'smallest factor of a short caption, and of both together'),
  lambdaLong: setting(z.number().nonnegative(), 0.3, 'how much a long caption loses'),
  floorLong: setting(z.number().min(0).max(1), 0.6, 'smallest factor of a long caption'),
})
export type LengthShaping = z.infer<typeof LengthShaping>

export const TaskRewards = z.strictObject({
  terms: z.array(TermConfig).min(1).describe('what is scored; the reward is the weighted mean'),
  shaping: setting(z.union([z.literal('none'), LengthShaping]), 'none', 'a factor on the total'),
})
export type TaskRewards = z.infer<typeof TaskRewards>

const isBare = ({ username, password, search, hash }: URL) => username + password + search + hash === ''
const isAddress = (text: string) => /^https?:\/\//i.test(text) && URL.canParse(text) && isBare(new URL(text))

/** Address of a judge, as a setting or in OPENAI_BASE_URL. */
export const JudgeUrl = z
  .string()
  .trim()
  .refine(isAddress, {
    error: 'an http address without user and password, and without a query; the key comes from the environment',
    ...mayHoldKey,
  })

/** Small letters and digits mixed over a length that names of variables do not have. */
const looksLikeKey = /^(?=.*[a-z])(?=.*\d).{20,}$/

export const JudgeConfig = z.strictObject({
  enabled: setting(
    z.boolean(),
    false,
    'ask the judge for every judge term; false: its share goes to METEOR, unless a judge flag is set',
  ),
  baseUrl: JudgeUrl.nullable()
    .default(null)
    .describe('OpenAI-compatible endpoint; if null, OPENAI_BASE_URL of the environment, else http://localhost:9100/v1'),
  model: setting(z.string().min(1), 'meta-llama/Meta-Llama-3.1-8B-Instruct', 'model name sent to the endpoint'),
  apiKeyEnv: setting(
    z.string().refine((name) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !looksLikeKey.test(name), {
      error: 'the name of an environment variable, which holds the key',
      ...mayHoldKey,
    }),
    'OPENAI_API_KEY',
    'environment variable that holds the key; unset sends the word none',
  ),
  mode: oneOf(
    ['checklist', 'number'],
    'checklist: questions about the reference, answered from the caption; number: one grade from 0 to 10',
  ),
  ask: oneOf(
    ['perQuestion', 'single'],
    'checklist: one call per question, or all questions in one call; two different judges',
  ),
  map: oneOf(['clamp', 'affine', 'raw'], 'checklist score in [-1, 1] to reward: max(0, x), (x + 1)/2, x'),
  maxPositives: setting(z.int().min(1).max(20), 5, 'stated attributes asked about, at most'),
  minPositives: setting(z.int().min(1).max(20), 1, 'fewer than this: the reference is unjudgeable'),
  maxNegatives: setting(z.int().min(0).max(20), 5, 'unmentioned things asked about, at most; 0 switches them off'),
  selfCheck: setting(z.boolean(), true, 'drop questions that the reference itself does not answer fully'),
  maxConcurrency: setting(z.int().min(1).max(1024), 32, 'requests in flight'),
  requestsPerMinute: setting(z.number().nonnegative(), 0, 'rate limit; 0 for none'),
  timeoutMs: setting(z.int().positive(), 30_000, 'one request, headers and body, in milliseconds'),
  retries: setting(z.int().min(0).max(20), 3, 'further attempts after a failure that may pass'),
  retryBaseMs: setting(z.number().nonnegative(), 500, 'first delay; doubles each time, plus or minus 20 %'),
  retryAfterMaxMs: setting(z.number().nonnegative(), 60_000, 'longest Retry-After that is obeyed'),
  breakerFailures: setting(z.int().min(1), 5, 'calls failed in a row that open the circuit'),
  breakerOpenMs: setting(z.number().nonnegative(), 30_000, 'how long calls fail at once before one probe'),
  minAnswered: setting(z.number().min(0).max(1), 0.5, 'share of questions that must be answered'),
  onUnavailable: oneOf(
    ['meteor', 'skip', 'stop'],
    'for the whole group, when one caption could not be judged: remaining terms only, no gradient, or end the run',
  ),
  maxUnavailableFraction: setting(
    z.number().min(0).max(1),
    0.2,
    'share of affected groups in 50 steps that ends the run',
  ),
  onInjection: oneOf(['flag', 'zero'], 'what a caption that talks to the judge gets'),
  canaryRate: setting(
    z.number().min(0).max(1),
    0.02,
    'share of captions with one extra question whose answer is known',
  ),
  maxCaptionWords: setting(z.int().positive(), 256, 'longer captions are cut, and flagged'),
  seed: setting(z.int().nonnegative(), 0, 'of the option order'),
  cacheDir: setting(z.string().min(1), 'judge-cache', 'folder of the answers kept between runs'),
  costPerMillionIn: setting(z.number().nonnegative(), 0, 'price of a million prompt tokens, for the cost counter'),
  costPerMillionOut: setting(z.number().nonnegative(), 0, 'price of a million completion tokens'),
})
export type JudgeConfig = z.infer<typeof JudgeConfig>

export const MeteorConfig = z.strictObject({
  alpha: setting(z.number().min(0).max(1), 0.9, 'weight of precision in the mean'),
  beta: setting(z.number().nonnegative(), 3, 'exponent of the fragmentation penalty'),
  gamma: setting(z.number().min(0).max(1), 0.5, 'weight of the fragmentation penalty'),
  tokenizer: oneOf(['whitespace', 'words'], "words splits punctuation off; not comparable with NLTK's usual use"),
})
export type MeteorConfig = z.infer<typeof MeteorConfig>

export const IouConfig = z.strictObject({
  empty: setting(z.number().min(0).max(1), 0, 'value when both masks are empty'),
  resolution: setting(
    z.union([z.literal('native'), z.int().positive()]),
    'native',
    "native: the record's own; a number: both masks resized bilinearly to that square",
  ),
  multiSeg: oneOf(['first', 'union'], 'which mask counts when an answer has several [SEG]'),
})
export type IouConfig = z.infer<typeof IouConfig>

/** Settings every run has; the rewards of its tasks are added by their kind. */
export const RewardsConfig = z.strictObject({
  modules: setting(
    z.array(z.strictObject({ path: z.string().min(1).describe('module that exports `reward`'), weight: termWeight })),
    [],
    'custom rewards, added to every task (--reward PATH)',
  ),
  timeoutSeconds: setting(z.number().positive(), 600, 'a reward that has not scored a group by then ends the run'),
  meteor: MeteorConfig.prefault({}).describe('settings of METEOR'),
  iou: IouConfig.prefault({}).describe('settings of the mask overlap'),
  length: LengthShaping.prefault({}).describe('settings of the length term'),
  judge: JudgeConfig.prefault({}).describe('settings of the judge'),
})
export type RewardsConfig = z.infer<typeof RewardsConfig>
