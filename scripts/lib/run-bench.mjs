// Runs one bench for scripts/bench.mjs: run-bench.mjs NAME [--json]
import { ending } from './compiled.mjs'

const [name, json] = process.argv.slice(2)
const { benchTable } = await import(`../../bench/bench${ending}`)
const { run } = await import(`../../bench/${name}.bench${ending}`)
if (typeof run !== 'function') throw new Error(`bench/${name}.bench${ending} exports no run()`)
const rows = await run()
console.log(json ? rows.map((row) => JSON.stringify({ bench: name, ...row })).join('\n') : benchTable(rows))
