import { readFileSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { Bench } from './bench.ts'
import { promises, type Shown, showRow } from './row.ts'
import { rows } from './rows.ts'

const usage = `npm run faults [-- --only NAME,...] [--quick] [--json] [--page]
  --only   rows by name or number: ${rows.map((row) => row.name).join(', ')}
  --quick  the rows that \`npm test\` runs too
  --json   the table as JSON
  --page   writes the table into docs/reliability.md`

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    quick: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    page: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
const wanted = values.only.split(',').filter((name) => name !== '')
const unknown = wanted.filter((name) => !rows.some((row) => row.name === name || String(row.number) === name))
if (values.help || unknown.length > 0) {
  console.error(unknown.length > 0 ? `unknown row: ${unknown.join(', ')}\n${usage}` : usage)
  process.exit(2)
}
const chosen = rows.filter(
  (row) =>
    (wanted.length === 0 || wanted.includes(row.name) || wanted.includes(String(row.number))) &&
    (!values.quick || row.quick),
)

const awake = setInterval(() => undefined, 1000) // a row may wait for what never comes
const bench = new Bench()
const shown: Shown[] = []
for (const row of chosen) {
  const result = await showRow(row, bench)
  shown.push(result)
  if (!values.json) console.log(lineOf(result))
}
bench.close()
clearInterval(awake)
const count = (state: Shown['state']) => shown.filter((row) => row.state === state).length
if (values.json) console.log(JSON.stringify(shown, null, 2))
else console.log(`${count('held')} held, ${count('not held')} not held, ${count('not run')} not run here`)
if (values.page) writePage(shown)
process.exit(count('not held') > 0 ? 1 : 0)

function lineOf({ number, name, state, seen, seconds }: Shown): string {
  return `${String(number).padStart(2)} ${state.padEnd(8)} ${name.padEnd(18)} ${seconds.toFixed(1).padStart(6)} s  ${seen}`
}

/** Replaces what stands between the two marks of the page. */
function writePage(table: readonly Shown[]): void {
  const path = new URL('../../docs/reliability.md', import.meta.url)
  const marks = ['<!-- the table of `npm run faults -- --page` -->', '<!-- end of the table -->'] as const
  const [before, rest] = readFileSync(path, 'utf8').split(marks[0])
  const after = rest?.split(marks[1])[1]
  if (after === undefined) throw new Error(`docs/reliability.md: expected ${marks.join(' and ')}`)
  const cells = (row: readonly string[]) => `| ${row.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  const body = table.map((row) =>
    cells([`${row.number}`, row.name, row.fault, promises[row.promise], row.state, clip(row.seen), `${row.seconds}`]),
  )
  const head = ['row', 'name', 'fault', 'promise', 'state', 'seen', 'seconds']
  const lines = [cells(head), cells(head.map(() => '---')), ...body]
  const words = `${count('held')} of ${table.length} rows held, ${count('not run')} could not be run on that machine.`
  writeFileSync(path, `${before}${marks[0]}\n\n${words}\n\n${lines.join('\n')}\n\n${marks[1]}${after}`)
}

function clip(text: string): string {
  const plain = text.replaceAll(bench.folder, '...')
  return plain.length > 160 ? `${plain.slice(0, 157)}...` : plain
}
