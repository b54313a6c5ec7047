// Which settings and flags each command reads. A typed one that its command does not read is an error; recipes and run folders may
// have settings of any command.
import type { Given } from '../config/index.ts'
import { Mismatch } from '../core/index.ts'
import type { RunConfig } from '../run/index.ts'
import { builtInKind, taskSettings } from '../tasks/index.ts'

type Command = 'eval' | 'sft' | 'plan' | 'benchmark'

interface Reading {
  /** Paths or groups of paths; absent: all. */
  reads?: string
  /** Paths or groups of those above that are not read. */
  except?: string
  /** Settings that a task adds, as its kind lists them. */
  ofTask?: Command
  /** Flags of the command that act in this mode; absent: all. */
  flags?: string
}

const model = 'model device dtype frozenWeights checkpointing kernels threads' // int8 and nf4 require checkpointing
const order = 'data.shuffle data.curriculum data.curriculumBuckets data.difficultyFile'
const images = 'maxTiles region rounding'
const runLife =
  'batchSize epochs maxSteps evalPath evalRecords evalSteps evalBatch saveSteps saveTotalLimit saveTimeout samplesMiB logSteps onNonFinite checkGroups tensorboard reportTo reportTimeout splitMoments distributed distTimeout output'
const schedule = 'learningRate lrSchedulerType warmupSteps numCycles minLrRate lrEnd power timescale'
const batching = 'gradientAccumulationSteps numIterations stepsPerGeneration groupFilter maxResampleTimes'

const notInSft = 'rl rewards shuffleRewards adaptiveLoops sampling samplesMiB checkGroups'

const taskGroups = Object.keys(taskSettings)

const grouped = (group: string, names: string) => names.replace(/\S+/g, (name) => `${group}.${name}`)

/** Commands, with the flags that decide what they read. */
export const readings = {
  train: {},
  demo: {},
  adapt: { except: 'task evalPath' },
  sft: { except: notInSft, ofTask: 'sft' },
  'sft --train all': { except: `${notInSft} train lora lrScale frozenWeights`, ofTask: 'sft' },
  eval: {
    reads: `${model} task ${images} dataPath data seed evalBatch featureCache evalRecords`,
    except: order,
    ofTask: 'eval',
    flags: 'adapter ema records json recipe',
  },
  compare: {
    reads: `${model} task ${images} dataPath data seed evalBatch featureCache evalRecords`,
    except: order,
    ofTask: 'eval',
    flags: 'records out json recipe',
  },
  'eval --benchmark': {
    reads: `${model} task ${images} dataPath seed evalBatch rewards.judge`,
    ofTask: 'benchmark',
    flags: 'benchmark split predictions protocol compat refs images judge-prompt out adapter ema json recipe',
  },
  'eval --predictions': {
    reads: 'dataPath seed rewards.judge',
    flags: 'benchmark split predictions protocol compat refs images judge-prompt out json recipe',
  },
  'eval --compare': { reads: 'seed', flags: 'compare protocol out json recipe' },
  doctor: {
    except: `${runLife} ${order} data.split data.splitBy data.evalFraction ${grouped('optim', schedule)} ${grouped('rl', batching)} lora.dropout`,
  },
  plan: {
    reads: `model task batchSize maxTiles frozenWeights checkpointing lora.rank lora.targets sampling.weights rl.numGenerations rl.maxCompletionLength rl.gradientAccumulationSteps splitMoments`,
    ofTask: 'plan',
  },
  'plan --table': { reads: 'frozenWeights checkpointing lora.rank lora.targets', flags: 'table recipe' },
} as const satisfies Record<string, Reading>

export type Mode = keyof typeof readings

function isIn(groups: readonly string[], path: string): boolean {
  return groups.some((group) => path === group || path.startsWith(`${group}.`))
}

const words = (text: string) => text.split(/\s+/)

/** Whether a command reads a setting; whether the task does is decided by `resolveRun`. */
export function readsSetting(mode: Mode, task: string, path: string): boolean {
  const { reads, except, ofTask }: Reading = readings[mode]
  if (ofTask && isIn(ofTaskGroups(task, ofTask), path)) return true
  if (ofTask && isIn(taskGroups, path)) return false
  return (reads === undefined || isIn(words(reads), path)) && !(except && isIn(words(except), path))
}

/** A user's task may read any setting of sampling, rewards and tasks. */
function ofTaskGroups(task: string, mode: Command): readonly string[] {
  const always =
    mode === 'sft' ? ['rl.gradientAccumulationSteps', 'rl.maxCompletionLength'] : ['rl.maxCompletionLength']
  const own = builtInKind(task)?.reads?.[mode] ?? (mode === 'benchmark' ? [] : ['rl', 'rewards', ...taskGroups])
  return [...always, ...own]
}

/** Throws if a setting or flag was typed that does not act. */
export function requireRead(mode: Mode, { typed, flags }: Given, config: RunConfig): void {
  const path = [...typed].find((one) => !readsSetting(mode, config.task, one))
  const got = 'a value'
  const expected = `nothing: ${mode} does not read it`
  if (path !== undefined) {
    const readers = (Object.keys(readings) as Mode[]).filter((one) => readsSetting(one, config.task, path))
    const hint = `${readers.join(', ')} ${readers.length === 1 ? 'reads' : 'read'} it; a recipe may have it`
    throw new Mismatch({ where: mode, field: `--${path}`, expected, got, hint })
  }
  const own = (readings[mode] as Reading).flags
  const stray = own === undefined ? undefined : [...flags.keys()].find((name) => !words(own).includes(name))
  if (stray === undefined) return
  const readers = Object.entries(readings as Record<string, Reading>).filter(([, r]) => words(r.flags ?? '').includes(stray)) // biome-ignore format: one line
  const hint = `it belongs to ${readers.map(([name]) => name).join(', ')}`
  throw new Mismatch({ where: mode, field: `--${stray}`, expected, got: flags.get(stray)?.[0], hint })
}
