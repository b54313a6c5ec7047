import { useEffect, useState } from 'preact/hooks'
import { card } from '../markup/card.ts'
import { ask, imagePath, type RunView, runPath, type SamplesView, type SampleView, type ShownView } from './api.ts'
import { Shared } from './markup.tsx'
import { useAnswer } from './state.ts'

/** What is sent, and what is read. */
export type Option = readonly [value: string, title: string]

/** What lies over the picture, by author. */
type Layers = Record<'image' | ShownView['by'], boolean>

const orders: Option[] = [
  ['newest', 'newest first'],
  ['oldest', 'oldest first'],
  ['best', 'highest reward'],
  ['worst', 'lowest reward'],
  ['advantage', 'strongest advantage'],
  ['different', 'most different groups'],
]

const layerNames: [keyof Layers, string][] = [
  ['image', 'image'],
  ['record', "the record's"],
  ['policy', "the policy's"],
  ['ema', "the EMA copy's"],
  ['judge', "the judge's"],
]

const allSamples = { task: '', record: '', from: '', to: '', order: 'newest', part: '', unique: false }
type Filters = typeof allSamples

function queryOf(filters: Filters, limit: number): URLSearchParams {
  const query = new URLSearchParams({ order: filters.order, limit: String(limit) })
  for (const name of ['task', 'from', 'to', 'part', 'record'] as const)
    if (filters[name] !== '') query.set(name, filters[name])
  if (filters.unique) query.set('unique', '1')
  return query
}

function LayerSwitches({ layers, setLayers }: { layers: Layers; setLayers(layers: Layers): void }) {
  return (
    <fieldset>
      <legend>shown on the picture</legend>
      {layerNames.map(([name, title]) => (
        <label key={name}>
          <input
            type="checkbox"
            checked={layers[name]}
            onChange={(e) => setLayers({ ...layers, [name]: e.currentTarget.checked })}
          />{' '}
          <i class={`key ${name}`} /> {title}
        </label>
      ))}
    </fieldset>
  )
}

interface ChoiceProps {
  name: string
  value: string
  of: readonly Option[]
  choose(value: string): void
}

export function Choice({ name, value, of, choose }: ChoiceProps) {
  return (
    <label>
      {name}{' '}
      <select value={value} onChange={(e) => choose(e.currentTarget.value)}>
        {of.map(([option, title]) => (
          <option key={option} value={option}>
            {title}
          </option>
        ))}
      </select>
    </label>
  )
}

const noSamples: SamplesView = { count: 0, whole: true, samples: [] }

export function Rollouts({ runs }: { runs: readonly RunView[] }) {
  const [chosen, setChosen] = useState('')
  const [filters, setFilters] = useState(allSamples)
  const [layers, setLayers] = useState<Layers>({ image: true, record: true, policy: true, ema: true, judge: true })
  const [limit, setLimit] = useState(24)
  const [words, setWords] = useState('')
  const run = runs.find((r) => r.id === chosen) ?? runs[0]
  const following = filters.record !== ''
  const query = queryOf(filters, limit)
  const [answer, failure] = useAnswer(
    run ? `${run.id} ${run.samplesVersion} ${query}` : '',
    async () => (run ? ask<SamplesView>(`${runPath(run.id)}/samples?${query}`) : noSamples),
    noSamples,
  )
  const [records] = useAnswer<string[]>(
    run ? `${run.id} ${run.records} ${words}` : '',
    async () => (run ? ask<string[]>(`${runPath(run.id)}/records?${new URLSearchParams({ words })}`) : []),
    [],
  )
  useEffect(() => setLimit(24), [filters, chosen])
  if (!run) return <p>No run is chosen.</p>
  const set = (change: Partial<Filters>) => setFilters({ ...filters, ...change })
  const follow = (record: string) => {
    setWords(record)
    set({ record, order: 'oldest', unique: false })
  }
  const hidden = new Set(layerNames.flatMap(([name]) => (layers[name] ? [] : [name])))
  const parts: Option[] = [['', 'total reward'], ...run.rewardParts.map((part): Option => [part, part])]
  const tasks: Option[] = [['', 'all'], ...run.tasks.map(({ name, title }): Option => [name, title])]
  return (
    <section aria-label="Rollouts">
      <div class="controls">
        {runs.length > 1 && (
          <Choice name="run" value={run.id} of={runs.map((r) => [r.id, r.name])} choose={setChosen} />
        )}
        <Choice name="order" value={filters.order} of={orders} choose={(order) => set({ order })} />
        <Choice name="by" value={filters.part} of={parts} choose={(part) => set({ part })} />
        <Choice name="task" value={filters.task} of={tasks} choose={(task) => set({ task })} />
        <label>
          steps from{' '}
          <input type="number" min="0" value={filters.from} onInput={(e) => set({ from: e.currentTarget.value })} />
        </label>
        <label>
          to <input type="number" min="0" value={filters.to} onInput={(e) => set({ to: e.currentTarget.value })} />
        </label>
        <label>
          record{' '}
          <input
            type="search"
            list="records"
            value={words}
            onInput={(e) => {
              setWords(e.currentTarget.value)
              if (e.currentTarget.value === '') set({ record: '' })
            }}
            onChange={(e) => e.currentTarget.value !== '' && follow(e.currentTarget.value)}
          />
        </label>
        <datalist id="records">
          {records.map((id) => (
            <option key={id} value={id} />
          ))}
        </datalist>
        <label>
          <input type="checkbox" checked={filters.unique} onChange={(e) => set({ unique: e.currentTarget.checked })} />{' '}
          one of each record
        </label>
        <LayerSwitches layers={layers} setLayers={setLayers} />
      </div>
      {following && (
        <p>
          Record <b>{filters.record}</b> over the steps: words that its sample before did not have are marked.{' '}
          <button
            type="button"
            onClick={() => {
              setWords('')
              set({ record: '', order: 'newest' })
            }}
          >
            all records
          </button>
        </p>
      )}
      {failure !== '' && <p class="problem">{failure}</p>}
      <p class="small" role="status">
        {answer.count} samples{answer.whole ? '' : ', more are being indexed'}; {answer.samples.length} shown.
      </p>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the clicks are those of buttons inside */}
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the keyboard presses the buttons */}
      <div class="rollouts" onClick={(e) => followed(e.target) !== undefined && follow(followed(e.target)!)}>
        {answer.samples.map((sample, i) => (
          <Shared
            key={`${sample.step} ${sample.loop} ${sample.id} ${sample.k}`}
            of={card(sample, {
              image: sample.image && imagePath(run.id, sample.image),
              title: run.tasks.find(({ name }) => name === sample.loop)?.title ?? sample.loop,
              hidden,
              before: following ? previous(answer.samples, i) : undefined,
              follows: !following,
            })}
          />
        ))}
      </div>
      {answer.samples.length >= limit && limit < 100 && (
        <button type="button" onClick={() => setLimit(Math.min(100, limit + 24))}>
          more
        </button>
      )}
    </section>
  )
}

/** The record whose button was pressed. */
const followed = (target: EventTarget | null) =>
  (target as Element | null)?.closest<HTMLElement>('[data-record]')?.dataset['record']

/** The sample of the same task and place one step earlier. */
function previous(samples: readonly SampleView[], at: number): SampleView | undefined {
  const { loop, k, step } = samples[at]!
  const earlier = samples.filter((s) => s.loop === loop && s.k === k && s.step < step)
  return earlier.sort((a, b) => b.step - a.step)[0]
}
