import { Markup } from '../markup/html.ts'
import { ask, type RunView, runPath } from './api.ts'
import { Shared } from './markup.tsx'
import { useAnswer } from './state.ts'

/** The server's markup, the same as in the report: every text of a run is escaped in it. */
function OfRun({ run }: { run: RunView }) {
  const key = `${run.id} ${run.version} ${run.samplesVersion}`
  const read = async () => (await ask<{ html: string }>(`${runPath(run.id)}/behaviour`)).html
  const [markup, failure] = useAnswer(key, read, '')
  return (
    <section aria-label={`Behaviour of ${run.name}`}>
      <h3>{run.name}</h3>
      {failure !== '' && <p class="problem">{failure}</p>}
      {markup === '' && failure === '' && <p role="status">Reading samples.</p>}
      <Shared of={new Markup(markup)} />
    </section>
  )
}

export function Behaviour({ runs }: { runs: readonly RunView[] }) {
  if (runs.length === 0) return <p>No run is chosen.</p>
  return (
    <>
      {runs.map((run) => (
        <OfRun key={run.id} run={run} />
      ))}
    </>
  )
}
