import { useEffect, useState } from 'preact/hooks'
import { ask, imagePath, numberOf, type RunView, readSamples, runPath, type SampleView, type ShownView } from './api.ts'
import { newWords, short } from './format.ts'
import { useAnswer } from './state.ts'

const authors: Record<string, string> = { record: 'record', policy: 'policy', ema: 'EMA copy', judge: 'judge' }
const orders: [string, string][] = [
  ['newest', 'newest first'],
  ['oldest', 'oldest first'],
  ['best', 'highest reward'],
  ['worst', 'lowest reward'],
  ['advantage', 'strongest advantage'],
  ['different', 'most different groups'],
]

export interface Layers {
  image: boolean
  record: boolean
  policy: boolean
  ema: boolean
  judge: boolean
}

const layerNames: [keyof Layers, string][] = [
  ['image', 'image'],
  ['record', "the record's"],
  ['policy', "the policy's"],
  ['ema', "the EMA copy's"],
  ['judge', "the judge's"],
]

const titleOf = (item: ShownView) => item.name ?? authors[item.by] ?? item.by

function sizeOf(shown: readonly ShownView[]): readonly [number, number] | undefined {
  for (const item of shown) if (item.kind !== 'text' && item.size) return item.size
  return undefined
}

function Overlay({ item, size }: { item: ShownView; size: readonly [number, number] }) {
  if (item.kind === 'mask' && item.path !== '' && item.size) {
    const scale = `scale(${size[1] / item.size[1]} ${size[0] / item.size[0]})`
    return (
      <g transform={scale}>
        <path class={`halo ${item.by}`} d={item.path} />
        <path class={item.by} d={item.path} />
      </g>
    )
  }
  if (item.kind !== 'points') return null
  const radius = Math.max(...size) / 45
  return (
    <g>
      {item.points.map((p, i) => (
        <circle key={i} class={`point ${item.by} ${p.positive ? '' : 'negative'}`} cx={p.x} cy={p.y} r={radius} />
      ))}
    </g>
  )
}

function describe(sample: SampleView): string {
  const parts = sample.shown
    .filter((item) => item.kind !== 'text')
    .map((item) => `${item.kind} of the ${titleOf(item)}${item.kind === 'mask' && item.missing ? ' (none)' : ''}`)
  return `record ${sample.id} at step ${sample.step}: ${parts.join(', ') || 'image'}`
}

function Picture({ run, sample, layers }: { run: RunView; sample: SampleView; layers: Layers }) {
  const size = sizeOf(sample.shown)
  if (!size && sample.image)
    return (
      <div class="picture">
        <img src={imagePath(run.id, sample.image)} alt={describe(sample)} loading="lazy" />
      </div>
    )
  if (!size || size[0] < 1 || size[1] < 1) return null
  const [height, width] = size
  const tiny = Math.max(height, width) <= 128 ? 'tiny' : ''
  return (
    <div class="picture">
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={describe(sample)}>
        {layers.image && sample.image && (
          <image
            class={tiny}
            href={imagePath(run.id, sample.image)}
            width={width}
            height={height}
            preserveAspectRatio="none"
          />
        )}
        {sample.shown.map((item, i) =>
          layers[item.by as keyof Layers] === false ? null : <Overlay key={i} item={item} size={size} />,
        )}
      </svg>
    </div>
  )
}

function Words({ item, before }: { item: ShownView; before?: string }) {
  if (item.kind === 'mask' && item.missing)
    return (
      <p class="small problem">
        {titleOf(item)}: {item.missing}
      </p>
    )
  if (item.kind !== 'text') return null
  return (
    <div class="said">
      <div class="small">{titleOf(item)}</div>
      <blockquote>
        {item.text === ''
          ? '(empty)'
          : newWords(item.text, before).map(({ word, isNew }, i) => (isNew ? <mark key={i}>{word}</mark> : word))}
      </blockquote>
    </div>
  )
}

export const written = (sample: SampleView) => sample.shown.find((item) => item.kind === 'text' && item.by === 'policy')
const textOf = (sample: SampleView | undefined) => {
  const item = sample && written(sample)
  return item?.kind === 'text' ? item.text : undefined
}

function Scores({ sample }: { sample: SampleView }) {
  const rows: [string, string][] = [
    ['reward', sample.total === null ? 'not scored' : short(numberOf(sample.total))],
    ...Object.entries(sample.rewards).map(([name, v]): [string, string] => [
      name,
      v === null ? 'not scored' : short(numberOf(v)),
    ]),
    ['advantage', short(numberOf(sample.advantage))],
    ['log-prob', short(numberOf(sample.logp))],
    ['tokens', `${short(numberOf(sample.length))}${sample.truncated ? ' (cut)' : ''}`],
  ]
  return (
    <table>
      <tbody>
        {rows.map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td class="number">{value}</td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

interface CardProps {
  run: RunView
  sample: SampleView
  layers: Layers
  before?: SampleView
  follow?(record: string): void
}

function Card({ run, sample, layers, before, follow }: CardProps) {
  const task = run.tasks.find((t) => t.name === sample.loop)
  return (
    <article class="rollout">
      <Picture run={run} sample={sample} layers={layers} />
      <div class="small">
        step {sample.step}, {task?.title ?? sample.loop}, sample {sample.k}
      </div>
      <div class="small">
        record{' '}
        {follow ? (
          <button type="button" class="link" onClick={() => follow(sample.id)}>
            {sample.id}
          </button>
        ) : (
          sample.id
        )}
      </div>
      {sample.shown.map((item, i) => (
        <Words key={i} item={item} before={item.by === 'policy' ? textOf(before) : undefined} />
      ))}
      <Scores sample={sample} />
    </article>
  )
}

interface Filters {
  task: string
  record: string
  from: string
  to: string
  order: string
  part: string
  unique: boolean
}

function queryOf(filters: Filters, limit: number): URLSearchParams {
  const query = new URLSearchParams({ order: filters.order, limit: String(limit) })
  for (const name of ['task', 'from', 'to', 'part'] as const) if (filters[name] !== '') query.set(name, filters[name])
  if (filters.record !== '') query.set('record', filters.record)
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

export function Rollouts({ runs }: { runs: readonly RunView[] }) {
  const [chosen, setChosen] = useState('')
  const [filters, setFilters] = useState<Filters>({
    task: '',
    record: '',
    from: '',
    to: '',
    order: 'newest',
    part: '',
    unique: false,
  })
  const [layers, setLayers] = useState<Layers>({ image: true, record: true, policy: true, ema: true, judge: true })
  const [limit, setLimit] = useState(24)
  const [words, setWords] = useState('')
  const run = runs.find((r) => r.id === chosen) ?? runs[0]
  const following = filters.record !== ''
  const query = queryOf(filters, limit)
  const [answer, failure] = useAnswer(
    run ? `${run.id} ${run.samplesVersion} ${query}` : '',
    async () => (run ? readSamples(run.id, query) : { count: 0, whole: true, samples: [] }),
    { count: 0, whole: true, samples: [] },
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
  return (
    <section aria-label="Rollouts">
      <div class="controls">
        {runs.length > 1 && (
          <label>
            run{' '}
            <select value={run.id} onChange={(e) => setChosen(e.currentTarget.value)}>
              {runs.map((r) => (
                <option key={r.id} value={r.id}>
                  {r.name}
                </option>
              ))}
            </select>
          </label>
        )}
        <label>
          order{' '}
          <select value={filters.order} onChange={(e) => set({ order: e.currentTarget.value })}>
            {orders.map(([value, title]) => (
              <option key={value} value={value}>
                {title}
              </option>
            ))}
          </select>
        </label>
        <label>
          by{' '}
          <select value={filters.part} onChange={(e) => set({ part: e.currentTarget.value })}>
            <option value="">total reward</option>
            {run.rewardParts.map((part) => (
              <option key={part} value={part}>
                {part}
              </option>
            ))}
          </select>
        </label>
        <label>
          task{' '}
          <select value={filters.task} onChange={(e) => set({ task: e.currentTarget.value })}>
            <option value="">all</option>
            {run.tasks.map((t) => (
              <option key={t.name} value={t.name}>
                {t.title}
              </option>
            ))}
          </select>
        </label>
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
      <div class="rollouts">
        {answer.samples.map((sample, i) => (
          <Card
            key={`${sample.step} ${sample.loop} ${sample.id} ${sample.k}`}
            run={run}
            sample={sample}
            layers={layers}
            before={following ? previous(answer.samples, i) : undefined}
            follow={following ? undefined : follow}
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

/** The sample of the same task and place one step earlier. */
function previous(samples: readonly SampleView[], at: number): SampleView | undefined {
  const { loop, k, step } = samples[at]!
  const earlier = samples.filter((s) => s.loop === loop && s.k === k && s.step < step)
  return earlier.sort((a, b) => b.step - a.step)[0]
}
