// Reading a run folder: `node --import tsx read-run.ts RUN`. It may be finished, running, or killed in the middle of a line.
import { readRun } from 'roundtrip-rl'

const run = readRun(process.argv[2] ?? 'runs/train')
for (const event of run.events) {
  if (event.t === 'eval') {
    for (const [name, { mean, low, high }] of Object.entries(event.metrics))
      console.log(
        `${event.name.padEnd(8)} ${name.padEnd(18)} ${mean.toFixed(3)} [${low.toFixed(3)}, ${high.toFixed(3)}]`,
      )
  } else if (event.t === 'step') {
    const rewards = Object.entries(event.metrics).filter(([name]) => name.endsWith('/reward_mean'))
    console.log(`step ${event.step}  ${rewards.map(([name, value]) => `${name} ${value.toFixed(3)}`).join('  ')}`)
  } else if (event.t === 'warning') console.log(`warning ${event.kind}: ${event.text}`)
}

let best: { text: string; total: number } | undefined
for (const { text = '', total } of run.samples())
  if (total !== null && total > (best?.total ?? 0)) best = { text, total }
if (best) console.log(`best sample: ${JSON.stringify(best.text)} with reward ${best.total.toFixed(3)}`)
for (const problem of run.problems) console.log(`problem: ${problem}`)
