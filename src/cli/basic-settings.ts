// The settings on the first page of the reference; all others are advanced.

/** What a first run changes, and when. */
export const firstSettings: readonly (readonly [path: string, when: string])[] = [
  ['model', 'always: the folder of the checkpoint'],
  ['dataPath', 'always: the records'],
  ['output', 'always: the run folder; the same folder resumes the run'],
  ['train', 'to freeze a part: `mlp1,lora` for captions alone'],
  ['maxSteps', 'how long to train'],
  ['batchSize', 'down when memory is short'],
  ['rl.gradientAccumulationSteps', 'up when `batchSize` goes down, so that a step sees as many records'],
  ['rl.numGenerations', 'K: more samples, steadier advantages, more time'],
  ['rl.maxCompletionLength', 'the longest answer worth having, in tokens'],
  ['optim.learningRate', 'up when nothing moves, down when metrics fall'],
  ['rl.beta', 'up when the model drifts from what it could do before'],
  ['rewards.preset', 'what is rewarded: the round trips, or captions with a judge'],
]

/** Settings of the first page, by group. */
const basic: Readonly<Record<string, string>> = {
  '': `task model output device dtype frozenWeights seed dataPath evalPath maxTiles batchSize epochs maxSteps train
    checkpointing featureCache evalRecords evalSteps saveSteps saveTotalLimit reportTo`,
  rl: `preset numGenerations maxCompletionLength temperature lossType epsilon epsilonHigh beta scaleRewards groupFilter
    entropyCoef numIterations gradientAccumulationSteps`,
  data: 'evalFraction shuffle split imageRoot refSplit',
  optim: 'learningRate lrSchedulerType warmupSteps weightDecay maxGradNorm emaDecay',
  loop1: 'weight',
  loop2: 'weight action',
  points: 'mode sam positivePrompt maxPoints preset',
  rewards: 'preset modules',
  'rewards.judge': 'enabled baseUrl model apiKeyEnv mode',
  lora: 'rank alpha',
}

/** Names by group as pairs of a name and its path. */
export function pathsOf(groups: Readonly<Record<string, string>>): [name: string, path: string][] {
  return Object.entries(groups).flatMap(([group, names]) =>
    names.split(/\s+/).map((name): [string, string] => [name, group === '' ? name : `${group}.${name}`]),
  )
}

export const basicSettings: ReadonlySet<string> = new Set(pathsOf(basic).map(([, path]) => path))
