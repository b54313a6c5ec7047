// Faults of what a run keeps, sends and tells: stored generations, figures on their way, checkpoints and exports, codes and times.
// Entries as in mutants.mjs.
import { BATCH, LOOP, life, mixing, PARTS, TRAIN } from './mutant-places.mjs'

const CACHE = 'src/llm/generate/fused/cache-memory.ts'
const GROUP = 'src/run/stored-group.ts'
const PADDED = 'src/llm/generate/fused/padded-rows.ts'
const REACHED = 'src/tracking/trackers/mlflow-reached.ts'
const EXPORT = 'src/checkpoint/export-model.ts'
const FAILURE = 'src/distributed/failure.ts'
const FIGURES = 'src/tasks/points/figures.ts'
const RANDOM = 'src/core/random.ts'
const SAVE = 'src/run/patient-save.ts'
const batches = 'src/run/batches.test.ts'
const exported = 'src/models/sa2va/export.test.ts'
const failure = 'src/distributed/failure.test.ts'
const figures = 'src/tasks/points/figures.test.ts'
const random = 'src/core/random.test.ts'
const save = 'src/run/patient-save.test.ts'
const cache = 'src/llm/generate/fused/cache-memory.test.ts'
const padded = 'src/llm/generate/fused/padded-rows.test.ts'
const parts = 'src/run/run-parts.test.ts'
const reached = 'src/tracking/trackers/mlflow-reached.test.ts'

export const keptMutants = [
  ['scoring', 'its figures are not passed on', PARTS, 'Object.assign(scoring.metrics, scores.metrics)', '', parts],
  [
    'scoring',
    'its figures are not logged',
    TRAIN,
    '      ...this.#scoring.metrics,\n',
    '',
    life,
    'evaluates and saves',
  ],
  ['resume', 'a stored generation forgets that it is short', BATCH, 'short: stored.short', 'short: false', batches],
  ['resume', 'every stored group has spread', GROUP, 'hasSignal: s.hasSignal', 'hasSignal: true', batches],
  [
    'resume',
    'a generation is half taken when its step fails',
    BATCH,
    'this.#generation ? { ...this.#generation } : null',
    'this.#generation',
    batches,
  ],
  [
    'data',
    'a group filter takes the last groups',
    BATCH,
    '.slice(0, wanted), draw)',
    '.slice(-wanted), draw)',
    batches,
  ],
  ['run', 'nothing is said of the place', LOOP, '...placeNotices(), ', '', life, 'place where a run'],
  ['sampling', 'prompts are as many as rows', PADDED, 'roundedRows(cache.batch)]', 'roundedRows(next.length)]', padded],
  ['sampling', 'padded rows keep their log-probs', PADDED, 'logps: first(logps)', 'logps', padded],
  ['sampling', 'a memory has nothing to spare', CACHE, 'elements * cacheSpare', 'elements', cache],
  [
    'tracking',
    'a server is ahead of the checkpoint',
    REACHED,
    'Math.min(sent as number, resumedAt)',
    'sent as number',
    reached,
  ],
  ['tracking', 'any server knows the run', REACHED, 'kept.server !== server || ', '', reached],
  ['tracking', 'figures come with the time they are read', REACHED, '    time = clock?.time ?? time\n', '', reached],
  [
    'times',
    'one of months is over at once',
    'src/rewards/mix.ts',
    'timerMs(seconds * 1000)',
    'seconds * 1000',
    mixing,
    'months',
  ],
  [
    'times',
    'a judge that may take months is given up at once',
    'src/rewards/judge/client.ts',
    'setTimeout(() => abort.abort(), timerMs(this.#config.timeoutMs))',
    'setTimeout(() => abort.abort(), this.#config.timeoutMs)',
    'src/rewards/judge/judge.test.ts',
    'months',
  ],
  [
    'checkpoint',
    'one that is named itself is not looked at',
    'src/run/trained.ts',
    'return whole(dir)',
    'return dir',
    'src/run/trained.test.ts',
  ],
  ['checkpoint', 'a limit on files is waited for', SAVE, " && !trouble.includes('EFBIG')", '', save],
  ['checkpoint', 'pauses grow without end', SAVE, 'Math.min(2 * pause, longestPause)', '2 * pause', save],
  [
    'checkpoint',
    'a full disk ends a run at once',
    'src/core/files.ts',
    '{ ...noRoom, ...failing }',
    '{ ...failing }',
    'src/core/files.test.ts',
  ],
  ['lock', 'a process is known by its size', 'src/run/lock.ts', 'fields[19]', 'fields[20]', 'src/run/lock.test.ts'],
  [
    'export',
    'older weights are copied beside the new ones',
    EXPORT,
    'weightFile.test(name) || ',
    '',
    exported,
    'folder of links',
  ],
  ['export', 'what tools left is copied', EXPORT, 'notOfTheModel.has(name) || ', '', exported, 'folder of links'],
  [
    'run',
    'another error takes the place of the first',
    'src/host/hosted.ts',
    'await tellLastGood(output).catch((reason) =>',
    'await tellLastGood(output)\n    void ((reason: unknown) =>',
    'src/host/hosted.test.ts',
  ],
  ['run', 'a used up quota is an internal error', FAILURE, " || code === 'EDQUOT'", '', failure],
  [
    'run',
    'a run that diverged is started again',
    FAILURE,
    'exitCodes.internal, exitCodes.peer]',
    'exitCodes.internal, exitCodes.peer, exitCodes.nonFinite]',
    failure,
  ],
  ['random', 'two counters share a block', RANDOM, 'index >>> 0', 'index >>> 1', random],
  ['random', 'normals share a uniform', RANDOM, 'this.#next += 2', 'this.#next += 1', random],
  [
    'random',
    'the high bits of a seed do not count',
    RANDOM,
    'feed(Math.floor(part / 4294967296) >>> 0)',
    'feed(0)',
    random,
  ],
  [
    'points',
    'answers that cannot be read count as lenient',
    FIGURES,
    'p.valid && p.format < 1',
    'p.format < 1',
    figures,
  ],
  [
    'points',
    'points in the object count as well placed',
    FIGURES,
    'all((p) => p.right / p.kept, placed)',
    'all((p) => p.wrong / p.kept, placed)',
    figures,
  ],
  [
    'points',
    'brackets in a label end the answer',
    'src/tasks/points/find-json.ts',
    'i = afterString(region, i) - 1',
    '',
    'src/tasks/points/parse.test.ts',
  ],
  [
    'data',
    'a byte order mark costs an id',
    'src/data/sources/jsonl.ts',
    'readable.decode(bytes)',
    "bytes.toString('utf8')",
    'src/data/bad-records.test.ts',
    'byte order mark',
  ],
  [
    'evaluation',
    'mAcc by size is that of small boxes',
    'src/benchmarks/ref-l4.ts',
    'of(6 + 3 * k, 7 + 3 * k)',
    'of(6, 7 + 3 * k)',
    'src/benchmarks/ref-l4.test.ts',
  ],
]
