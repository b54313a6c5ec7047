import { imagePath, numberOf, type RunView, type SampleView, type ShownView } from './api.ts'
import { newWords, short } from './format.ts'

const authors: Record<string, string> = { record: 'record', policy: 'policy', ema: 'EMA copy', judge: 'judge' }
export interface Layers {
  image: boolean
  record: boolean
  policy: boolean
  ema: boolean
  judge: boolean
}

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

const written = (sample: SampleView) => sample.shown.find((item) => item.kind === 'text' && item.by === 'policy')
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

/** One sample: its picture with what was drawn on it, what was said, and its scores. */
export function Card({ run, sample, layers, before, follow }: CardProps) {
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
