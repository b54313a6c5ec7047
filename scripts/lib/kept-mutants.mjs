// Faults of what a run keeps, sends and tells: stored generations, figures on their way, memory that is shared. Entries as in mutants.mjs.
import { BATCH, LOOP, life, PARTS, TRAIN } from './mutant-places.mjs'

const CACHE = 'src/models/llm/cache-memory.ts'
const GROUP = 'src/run/stored-group.ts'
const PADDED = 'src/models/llm/padded-rows.ts'
const REACHED = 'src/tracking/trackers/mlflow-reached.ts'
const batches = 'src/run/batches.test.ts'
const cache = 'src/models/llm/cache-memory.test.ts'
const padded = 'src/models/llm/padded-rows.test.ts'
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
]
