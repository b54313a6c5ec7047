// Whether records were trained on by a run: its data and its split, read from its folder.
import { isEval, openSource, type Source } from '../data/index.ts'
import { readRun, startFacts } from '../tracking/index.ts'
import { type RunConfig, resolveRun } from './config.ts'
import { heldOutFraction } from './records.ts'
import { beforeSetting, overStored, storedSettings } from './stored-settings.ts'

/** Settings of a run that an evaluation of its weights does not take: those of the machine and of learning alone. */
const ofTraining = /^(output|device|dtype|threads|kernels|featureCache|reportTo|tensorboard)$|^rewards\./

/**
 * Settings of an evaluation of a run's weights: its data, and of these the part that was held out. Other data (`ownData`) is
 * evaluated whole, or its part by the share of the run.
 */
export function settingsToEvaluate(run: string, ownData: boolean): Record<string, unknown> {
  const stored = { ...beforeSetting, ...storedSettings(run) }
  const taken = Object.entries(stored).filter(([path]) => !ofTraining.test(path))
  const { evalPath, ...rest } = Object.fromEntries(taken)
  const { eval_fraction: used } = startFacts(readRun(run).events)
  const settings = { ...rest, ...(typeof used === 'number' && used > 0 ? { 'data.evalFraction': used } : {}) }
  if (ownData) return settings
  return typeof evalPath === 'string' ? { ...settings, dataPath: evalPath } : { ...settings, 'data.split': 'eval' }
}

interface Evaluated {
  path: string
  data: RunConfig['data']
  indices: Uint32Array
}

/** How many of the records that are to be evaluated the run trained on; null: its data cannot be opened here. */
export async function countTrained(run: string, evaluated: Evaluated): Promise<number | null> {
  const opened: Source[] = []
  const open = async (path: string, data: RunConfig['data']) => {
    const source = await openSource(path, { ...data, splitBy: 'content' })
    opened.push(source)
    return source
  }
  try {
    const config = resolveRun(overStored({ ...beforeSetting, ...storedSettings(run) }, {}))
    const learned = await open(config.dataPath, { ...config.data, seed: config.data.seed ?? config.seed })
    const { eval_fraction: stored } = startFacts(readRun(run).events)
    const fraction = typeof stored === 'number' ? stored : (heldOutFraction(learned, config) ?? 0)
    const of = config.data.splitBy === 'place' ? learned.place : learned.key
    const trained = new Set<string>()
    for (let i = 0; i < learned.length; i++) if (!isEval(of(i), fraction)) trained.add(learned.key(i))
    const asked = await open(evaluated.path, evaluated.data)
    return evaluated.indices.reduce((n, i) => n + (trained.has(asked.key(i)) ? 1 : 0), 0)
  } catch {
    return null
  } finally {
    for (const source of opened) await source.close()
  }
}
