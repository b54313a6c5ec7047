// Facts of the run that trained a model, for its model card; read from the run folder.
import type { EvalEvent, ReadSample, Run } from '../tracking/index.ts'
import { pictureOf, runFiles, startFacts } from '../tracking/index.ts'
import { chosenOf, flatten } from './facts.ts'
import type { ModelCard } from './model-card.ts'

const asText = (value: unknown) => (value === undefined || value === null ? undefined : String(value))

type RunCard = Pick<
  ModelCard,
  'method' | 'recipe' | 'data' | 'steps' | 'before' | 'after' | 'evalRecords' | 'versions' | 'command'
>

/** Everything but names, pictures and how to load, for the weights of a step. */
export function cardOfRun(run: Run, step: number): RunCard {
  const settings = flatten(run.config)
  const environment = (run.environment ?? {}) as Record<string, unknown>
  const evals = run.events.filter((event): event is EvalEvent => event.t === 'eval')
  const before = evals.find((event) => event.name === 'before')
  const after = evals.findLast((event) => event !== before && event.step === step)
  const facts = startFacts(run.events)
  const versions = (['product', 'commit', 'torch', 'node', 'device', 'dtype', 'system'] as const).flatMap((name) => {
    const value = asText(environment[name])
    return value === undefined ? [] : [[name === 'product' ? 'roundtrip' : name, value] as const]
  })
  return {
    method: facts.kind === 'sft' ? 'sft' : 'grpo',
    recipe: chosenOf(settings).filter(([key]) => key !== 'model' && key !== 'dataPath'),
    data: {
      name: settings.find(([key]) => key === 'dataPath')?.[1] || 'unknown data',
      records: typeof facts.records === 'number' ? facts.records : undefined,
      trained: typeof facts.trained === 'number' ? facts.trained : undefined,
      heldOut: typeof facts.held_out === 'number' ? facts.held_out : undefined,
      evaluated: (after ?? before)?.records,
    },
    steps: step,
    before: before?.metrics,
    after: after?.metrics,
    evalRecords: (after ?? before)?.records,
    versions,
    command: Array.isArray(environment.command) ? environment.command.map(String) : undefined,
  }
}

/** The rollout with the highest reward up to `step`, drawn on its image; one of the last fifth of the steps if there is any. */
export async function cardPicture(run: Run, step: number): Promise<{ png: Uint8Array; text: string } | undefined> {
  const worth = ({ step: made, total }: ReadSample) => total! + (made > 0.8 * step ? 1e6 : 0)
  let best: ReadSample | undefined
  for (const sample of run.samples()) {
    if (sample.total === null || sample.image === undefined || sample.step > step) continue
    if (!best || worth(sample) >= worth(best)) best = sample
  }
  const picture = best && (await pictureOf(run.dir, runFiles.images, best))
  return picture && { png: picture.png, text: `a rollout: ${picture.caption.split('\n').join('; ')}` }
}
