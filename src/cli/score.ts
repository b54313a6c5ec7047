import { closeSync, createReadStream, existsSync, fsyncSync, openSync, renameSync, rmSync, statSync } from 'node:fs'
import { Command } from 'commander'
import { parseWith } from '../config/index.ts'
import { isFolder, lackOfRoom, linesOf, log, Mismatch, parseJson, withoutMark, writeAll } from '../core/index.ts'
import { progress } from '../tracking/index.ts'
import { choice } from './model.ts'
import { requireOutput } from './output-file.ts'
import { requireActing } from './spelling.ts'

type Metric = 'meteor' | 'iou' | 'judge'

interface Options {
  metric: Metric
  in: string
  out: string
  judgeUrl?: string
  judgeModel?: string
  judgeMode?: string
  judgeAsk?: string
  judgeCache?: string
  judgeKeyEnv?: string
  concurrency?: string
}

interface Pair {
  /** File and line. */
  where: string
  id: string
  reference: unknown
  hypothesis: unknown
}

/** What goes into the output beside the id; `score` null means could not be scored. */
type Result = { score: number | null } & Record<string, unknown>

interface Scorer {
  score(pair: Pair): Result | Promise<Result>
  /** Pairs under way at once. */
  window: number
  finish(): Record<string, number>
}

export function command(): Command {
  return new Command('score')
    .description('score pairs of captions or masks: one JSON object a line in, one a line out, in the same order')
    .addOption(choice('--metric <name>', 'what to compute', ['meteor', 'iou', 'judge']).makeOptionMandatory())
    .requiredOption(
      '--in <file>',
      'lines of {"reference": ..., "hypothesis": ..., "id"?: ...}; texts, or masks as COCO {size, counts}',
    )
    .requiredOption('--out <file>', 'lines of {"id": ..., "score": ...}')
    .option('--judge-url <url>', 'OpenAI-compatible endpoint of the judge')
    .option('--judge-model <name>', 'model name')
    .option('--judge-mode <mode>', 'checklist or number')
    .option('--judge-ask <way>', 'perQuestion or single')
    .option('--judge-cache <dir>', 'folder of kept answers')
    .option('--judge-key-env <name>', 'environment variable that holds the key')
    .option('--concurrency <n>', 'judge requests in flight')
    .action((options: Options, command: Command) => {
      const acting = ['metric', 'in', 'out']
      if (options.metric !== 'judge') requireActing(command, `score --metric ${options.metric}`, acting)
      return run(options)
    })
}

function parsePair(text: string, where: string, line: number): Pair {
  const value = parseJson(withoutMark(text), where, 'a JSON object') as Partial<Pair> | null
  if (typeof value !== 'object' || value === null) throw new Mismatch({ where, expected: 'a JSON object', got: value })
  for (const field of ['reference', 'hypothesis'] as const) {
    if (value[field] === undefined) throw new Mismatch({ where, field, expected: 'a text or a mask', got: 'nothing' })
  }
  return { where, id: String(value.id ?? line), reference: value.reference, hypothesis: value.hypothesis }
}

function textOf(pair: Pair, field: 'reference' | 'hypothesis'): string {
  const value = pair[field]
  if (typeof value !== 'string') throw new Mismatch({ where: pair.where, field, expected: 'a text', got: value })
  return value
}

const localScorer = (of: (pair: Pair) => number): Scorer => {
  return { score: (pair) => ({ score: of(pair) }), window: 1, finish: () => ({}) }
}

/** What is wrong with a mask, at the line of its pair. */
function atLine<T>({ where }: Pair, work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw error instanceof Mismatch ? new Mismatch({ ...error.info, where }, { cause: error }) : error
  }
}

async function iouScorer(): Promise<Scorer> {
  const { decodeRle, maskIou } = await import('../mask/index.ts')
  const mask = (pair: Pair, field: 'reference' | 'hypothesis') => {
    const value = pair[field] as Parameters<typeof decodeRle>[0] | null
    if (typeof value === 'object' && value !== null && Array.isArray(value.size)) return decodeRle(value)
    const expected = 'a mask {size: [height, width], counts}'
    throw new Mismatch({ where: pair.where, field, expected, got: value })
  }
  return localScorer((pair) => atLine(pair, () => maskIou(mask(pair, 'reference'), mask(pair, 'hypothesis'))))
}

async function meteorScorer(): Promise<Scorer> {
  const { meteor } = await import('../rewards/index.ts')
  return localScorer((pair) => meteor(textOf(pair, 'reference'), textOf(pair, 'hypothesis')))
}

async function judgeScorer(options: Options): Promise<Scorer> {
  const { Judge, JudgeConfig } = await import('../rewards/index.ts')
  const given = {
    baseUrl: options.judgeUrl,
    model: options.judgeModel,
    mode: options.judgeMode,
    ask: options.judgeAsk,
    cacheDir: options.judgeCache,
    apiKeyEnv: options.judgeKeyEnv,
    maxConcurrency: options.concurrency === undefined ? undefined : Number(options.concurrency),
  }
  const config = parseWith(JudgeConfig, { enabled: true, ...given }, 'score', 'judge ')
  const judge = new Judge(config)
  await judge.health().catch((error: unknown) => {
    judge.close()
    throw error
  })
  return {
    async score(pair) {
      const verdict = await judge.judge(textOf(pair, 'reference'), textOf(pair, 'hypothesis'))
      return { score: verdict.score, raw: verdict.tally?.raw ?? null, flags: verdict.flags, reason: verdict.reason }
    },
    window: 8 * config.maxConcurrency,
    finish() {
      judge.close()
      return judge.metrics()
    },
  }
}

/** Scores all lines in order, at most `window` under way; gives back what was written. */
async function scoreLines(
  options: Options,
  scorer: Scorer,
  write: (line: string) => void,
): Promise<{ pairs: number; unscored: number; sum: number }> {
  const count = { pairs: 0, unscored: 0, sum: 0 }
  const size = Math.max(1, statSync(options.in).size)
  const shown = progress({ label: 'score', unit: 'pair' })
  const waiting: Promise<{ id: string; result: Result }>[] = []
  let bytes = 0
  let number = 0
  const takeOne = async () => {
    const { id, result } = await waiting.shift()!
    write(`${JSON.stringify({ id, ...result })}\n`)
    count.pairs++
    if (result.score === null) count.unscored++
    else count.sum += result.score
    shown.update(count.pairs, { read: `${Math.floor(100 * Math.min(1, bytes / size))}%` })
  }
  for await (const text of linesOf(createReadStream(options.in, { encoding: 'utf8' }))) {
    number++
    bytes += Buffer.byteLength(text) + 1
    if (text.trim() === '') continue
    const pair = parsePair(text, `${options.in}:${number}`, number)
    const result = (async () => ({ id: pair.id, result: await scorer.score(pair) }))()
    result.catch(() => undefined) // seen when its turn comes
    waiting.push(result)
    if (waiting.length >= scorer.window) await takeOne()
  }
  while (waiting.length > 0) await takeOne()
  shown.done()
  return count
}

async function run(options: Options): Promise<void> {
  if (!existsSync(options.in) || isFolder(options.in))
    throw new Mismatch({ where: 'score', field: '--in', expected: 'a file', got: options.in })
  requireOutput(options.out, '', options.in)
  const partial = `${options.out}.part`
  const fd = openSync(partial, 'w')
  let scorer: Scorer | undefined
  try {
    scorer = await { meteor: meteorScorer, iou: iouScorer, judge: () => judgeScorer(options) }[options.metric]()
    const { pairs, unscored, sum } = await scoreLines(options, scorer, (line) => writeAll(fd, line))
    fsyncSync(fd)
    renameSync(partial, options.out)
    if (unscored > 0) log.warn(`${unscored} of ${pairs} pairs could not be scored; their score is null`)
    const mean = pairs > unscored ? sum / (pairs - unscored) : null
    const metrics = scorer.finish()
    process.stdout.write(`${JSON.stringify({ metric: options.metric, pairs, unscored, mean, ...metrics })}\n`)
  } catch (error) {
    scorer?.finish()
    rmSync(partial, { force: true })
    const got = lackOfRoom(error)
    if (got === null) throw error
    throw new Mismatch({ where: options.out, expected: 'room for all scores', got, hint: 'free some space' })
  } finally {
    closeSync(fd)
  }
}
