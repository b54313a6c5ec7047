import { parseArgs } from 'node:util'
import { type CaseResult, type Outcome, outcomes } from './format.ts'
import { attacks, formats } from './formats/index.ts'
import { runFormat } from './watch.ts'

const usage = `npm run fuzz -- FORMAT... [--n N] [--seed S] [--jobs J] [--keep FOLDER] [--json]
  FORMAT  ${formats.map((f) => f.name).join(', ')}, or all
          ${attacks.map((f) => f.name).join(', ')}, or attack
  --n     files of each format (default 1000)
  --seed  the same seed makes the same files (default 0)
  --jobs  processes side by side, each with a part of the files (default 1)
  --keep  folder for the files of findings`

const titles: Record<Outcome, string> = {
  read: 'read',
  refused: 'refused',
  crash: 'crashes',
  hang: 'hangs',
  memory: 'over memory',
  raw: 'raw errors',
  escape: 'escapes',
  wrong: 'wrong data',
}

interface Row {
  format: string
  files: number
  counts: Record<Outcome, number>
  seconds: number
  findings: CaseResult[]
}

function rowOf(format: string, results: readonly CaseResult[], seconds: number): Row {
  const counts = Object.fromEntries(outcomes.map((o) => [o, results.filter((r) => r.outcome === o).length]))
  const findings = results.filter((r) => r.outcome !== 'read' && r.outcome !== 'refused')
  return { format, files: results.length, counts: counts as Row['counts'], seconds, findings }
}

function table(rows: readonly Row[]): string {
  const head = ['format', 'files', ...outcomes.map((o) => titles[o]), 'seconds']
  const cells = rows.map((r) => [
    r.format,
    `${r.files}`,
    ...outcomes.map((o) => `${r.counts[o]}`),
    r.seconds.toFixed(0),
  ])
  const line = (row: readonly string[]) => `| ${row.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...cells.map(line)].join('\n')
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    n: { type: 'string', default: '1000' },
    seed: { type: 'string', default: '0' },
    jobs: { type: 'string', default: '1' },
    keep: { type: 'string', default: '' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
const groups: Record<string, readonly string[]> = {
  all: formats.map((f) => f.name),
  attack: attacks.map((f) => f.name),
}
const wanted = positionals.flatMap((name) => groups[name] ?? [name])
const unknown = wanted.filter((name) => ![...formats, ...attacks].some((f) => f.name === name))
const [n, seed, jobs] = [Number(values.n), Number(values.seed), Number(values.jobs)]
const isCount = (value: number) => Number.isInteger(value) && value > 0
if (
  values.help ||
  wanted.length === 0 ||
  unknown.length > 0 ||
  !isCount(n) ||
  !isCount(jobs) ||
  !Number.isInteger(seed)
) {
  console.error(unknown.length > 0 ? `unknown format: ${unknown.join(', ')}\n${usage}` : usage)
  process.exit(2)
}
const rows: Row[] = []
for (const name of wanted) {
  const began = performance.now()
  const results = await runFormat(name, { n, seed, keep: values.keep, jobs })
  const row = rowOf(name, results, (performance.now() - began) / 1000)
  rows.push(row)
  for (const { index, outcome, note, message } of row.findings.slice(0, 20))
    console.error(`${name} ${index}: ${titles[outcome]}: ${note}: ${message}`)
}
console.log(values.json ? JSON.stringify(rows, null, 2) : table(rows))
process.exit(rows.some((r) => r.findings.length > 0) ? 1 : 0)
