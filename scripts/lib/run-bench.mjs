// Runs one bench under tsx: node --import tsx scripts/lib/run-bench.mjs NAME [--json]
import { benchTable } from '../../bench/bench.ts'

const [name, json] = process.argv.slice(2)
const { run } = await import(`../../bench/${name}.bench.ts`)
if (typeof run !== 'function') throw new Error(`bench/${name}.bench.ts exports no run()`)
const rows = await run()
console.log(json ? rows.map((row) => JSON.stringify({ bench: name, ...row })).join('\n') : benchTable(rows))
