import { type EvalView, numberOf, type RunView } from './api.ts'
import { colourOf, short } from './format.ts'
import { Scroll } from './scroll.tsx'

interface Row {
  run: RunView
  round: EvalView
}

const figure = (v: number) => (Number.isFinite(v) ? (Math.abs(v) < 10 ? v.toFixed(3) : v.toPrecision(4)) : String(v))

/** Dots with their 95 % intervals, one row a round, on one axis. */
function Whiskers({
  rows,
  name,
  dark,
  colours,
}: {
  rows: readonly Row[]
  name: string
  dark: boolean
  colours: Map<string, number>
}) {
  const marks = rows.flatMap(({ run, round }) => {
    const raw = round.metrics[name]
    if (!raw) return []
    const [mean, low, high] = [raw.mean, raw.low, raw.high].map(numberOf) as [number, number, number]
    return Number.isFinite(mean) ? [{ run, round, mean, low, high }] : []
  })
  const values = marks.flatMap((m) => [m.mean, m.low, m.high]).filter(Number.isFinite)
  const [least, most] = [Math.min(0, ...values), Math.max(1, ...values)]
  const x = (v: number) => 8 + (284 * (Math.min(most, Math.max(least, v)) - least)) / (most - least)
  const height = 14 * marks.length + 18
  const said = marks.map(
    (m) => `${m.run.name} ${m.round.name}: ${figure(m.mean)}, ${figure(m.low)} to ${figure(m.high)}`,
  )
  return (
    <svg class="whiskers" viewBox={`0 0 300 ${height}`} role="img" aria-label={`${name}. ${said.join('. ')}`}>
      {[least, (least + most) / 2, most].map((v) => (
        <g key={v}>
          <line class="grid" x1={x(v)} x2={x(v)} y1="0" y2={height - 12} />
          <text class="tick" x={x(v)} y={height - 2} text-anchor="middle">
            {short(v)}
          </text>
        </g>
      ))}
      {marks.map((m, i) => (
        <g
          key={`${m.run.id} ${m.round.name} ${m.round.step}`}
          stroke={colourOf(colours.get(m.run.id) ?? 0, dark)}
          fill={colourOf(colours.get(m.run.id) ?? 0, dark)}
        >
          <title>{said[i]}</title>
          {Number.isFinite(m.low) && Number.isFinite(m.high) && (
            <line x1={x(m.low)} x2={x(m.high)} y1={7 + 14 * i} y2={7 + 14 * i} stroke-width="2" />
          )}
          <circle cx={x(m.mean)} cy={7 + 14 * i} r="4" />
        </g>
      ))}
    </svg>
  )
}

/** One record has no interval. */
function withRange({ mean, low, high }: EvalView['metrics'][string]): string {
  const range = Number.isNaN(numberOf(low)) ? '' : ` [${figure(numberOf(low))}, ${figure(numberOf(high))}]`
  return `${figure(numberOf(mean))}${range}`
}

function Change({ before, after }: { before?: EvalView['metrics'][string]; after?: EvalView['metrics'][string] }) {
  if (!before || !after) return <td />
  const by = numberOf(after.mean) - numberOf(before.mean)
  const apart =
    numberOf(after.low) > numberOf(before.high) ? 'up' : numberOf(after.high) < numberOf(before.low) ? 'down' : 'flat'
  const known = [before, after].every(({ low }) => !Number.isNaN(numberOf(low)))
  return (
    <td class="number">
      <span class={apart}>
        {by < 0 ? '−' : '+'}
        {figure(Math.abs(by))}
      </span>{' '}
      <small>{known ? (apart === 'flat' ? 'intervals overlap' : 'intervals apart') : 'no interval'}</small>
    </td>
  )
}

export function Evaluations({
  runs,
  dark,
  labelOf,
}: {
  runs: readonly RunView[]
  dark: boolean
  labelOf(run: RunView): string
}) {
  const colours = new Map(runs.map((run, i) => [run.id, i]))
  const names = [...new Set(runs.flatMap((run) => run.evals.flatMap((round) => Object.keys(round.metrics))))]
  if (names.length === 0) return <p>No evaluation yet.</p>
  const rows = runs.flatMap((run) => run.evals.map((round) => ({ run, round })))
  const shown = rows.slice(-40)
  return (
    <section aria-label="Evaluations">
      <p class="small">
        Held-out figures; whiskers are bootstrap 95 % intervals.
        {shown.length < rows.length && ` The newest ${shown.length} of ${rows.length} rounds.`}
      </p>
      {names.map((name) => (
        <Scroll key={name} label={name}>
          <h3>{name}</h3>
          <Whiskers rows={shown} name={name} dark={dark} colours={colours} />
          <table>
            <thead>
              <tr>
                <th scope="col">run</th>
                <th scope="col">round</th>
                <th scope="col">step</th>
                <th scope="col">records</th>
                <th scope="col">mean [95 %]</th>
                <th scope="col">against the first</th>
              </tr>
            </thead>
            <tbody>
              {shown.map(({ run, round }) => {
                const value = round.metrics[name]
                const first = run.evals[0]
                return (
                  <tr key={`${run.id} ${round.name} ${round.step}`}>
                    <td>{labelOf(run)}</td>
                    <td>{round.name}</td>
                    <td class="number">{round.step}</td>
                    <td class="number">{round.records}</td>
                    <td class="number">{value ? withRange(value) : 'none'}</td>
                    {round === first ? <td /> : <Change before={first?.metrics[name]} after={value} />}
                  </tr>
                )
              })}
            </tbody>
          </table>
        </Scroll>
      ))}
    </section>
  )
}
