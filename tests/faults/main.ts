import { readFileSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { Bench } from './bench.ts'
import { promises, type Row, type Shown, showRow } from './row.ts'
import { rows } from './rows.ts'
import { sideBySide } from './side-by-side.ts'

const usage = `npm run faults [-- --only NAME,...] [--quick] [--jobs J] [--json] [--page]
  --only   rows by name or number: ${rows.map((row) => row.name).join(', ')}
  --quick  the rows that \`npm test\` runs too
  --jobs   processes side by side (default 1)
  --json   the table as JSON
  --page   writes the table into dev/results/reliability.md`

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    quick: { type: 'boolean', default: false },
    jobs: { type: 'string', default: '1' },
    json: { type: 'boolean', default: false },
    page: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
const wanted = values.only.split(',').filter((name) => name !== '')
const unknown = wanted.filter((name) => !rows.some((row) => row.name === name || String(row.number) === name))
const jobs = Number(values.jobs)
if (values.help || unknown.length > 0 || !(Number.isInteger(jobs) && jobs > 0)) {
  console.error(unknown.length > 0 ? `unknown row: ${unknown.join(', ')}\n${usage}` : usage)
  process.exit(2)
}
const chosen = rows.filter(
  (row) =>
    (wanted.length === 0 || wanted.includes(row.name) || wanted.includes(String(row.number))) &&
    (!values.quick || row.quick),
)

const print = (result: Shown) => {
  if (!values.json) console.log(lineOf(result))
}
const shown = jobs > 1 ? await sideBySide(chosen, jobs, print) : await inTurn(chosen, print)
const count = (state: Shown['state']) => shown.filter((row) => row.state === state).length
if (values.json) console.log(JSON.stringify(shown, null, 2))
else console.log(`${count('passed')} passed, ${count('failed')} failed, ${count('not run')} not run here`)
if (values.page) writePage(shown)
process.exit(count('failed') > 0 ? 1 : 0)

async function inTurn(rows: readonly Row[], print: (result: Shown) => void): Promise<Shown[]> {
  const bench = new Bench()
  const shown: Shown[] = []
  for (const row of rows) {
    const result = await showRow(row, bench)
    shown.push({ ...result, seen: result.seen.replaceAll(bench.folder, '...') })
    print(shown.at(-1)!)
  }
  bench.close()
  return shown
}

function lineOf({ number, name, state, seen, seconds }: Shown): string {
  return `${String(number).padStart(2)} ${state.padEnd(8)} ${name.padEnd(18)} ${seconds.toFixed(1).padStart(6)} s  ${seen}`
}

/** The rows that were run take their places in the table of the page; the others stay as they were. */
function writePage(table: readonly Shown[]): void {
  const path = new URL('../../dev/results/reliability.md', import.meta.url)
  const marks = ['<!-- the table of `npm run faults -- --page` -->', '<!-- end of the table -->'] as const
  const [before, rest] = readFileSync(path, 'utf8').split(marks[0])
  const [old, after] = rest?.split(marks[1]) ?? []
  if (old === undefined || after === undefined)
    throw new Error(`dev/results/reliability.md: expected ${marks.join(' and ')}`)
  const lines = new Map(old.split('\n').flatMap((line) => (/^\| \d/.test(line) ? [[nameOf(line), line]] : [])))
  for (const row of table) {
    const cells = [
      `${row.number}`,
      row.name,
      row.fault,
      promises[row.promise],
      row.state,
      clip(row.seen),
      `${row.seconds}`,
    ]
    lines.set(row.name, `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`)
  }
  const body = rows.flatMap((row) => lines.get(row.name) ?? [])
  const passed = body.filter((line) => line.includes('| passed |')).length
  const head = '| row | name | fault | promise | state | seen | seconds |\n|---|---|---|---|---|---|---|'
  const words = `${passed} of ${body.length} rows shown here passed; the command has ${rows.length}.`
  writeFileSync(path, `${before}${marks[0]}\n\n${words}\n\n${head}\n${body.join('\n')}\n\n${marks[1]}${after}`)
}

function nameOf(line: string): string {
  return line.split(' | ')[1]!
}

function clip(text: string): string {
  return text.length > 120 ? `${text.slice(0, 117)}...` : text
}
