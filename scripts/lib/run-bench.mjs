// Runs one bench for scripts/bench.mjs: run-bench.mjs NAME true|false [DEVICE]
import { ending } from './compiled.mjs'

const [name, json, device] = process.argv.slice(2)
const { benchTable } = await import(`../../bench/bench${ending}`)
const { run } = await import(`../../bench/${name}.bench${ending}`)
if (typeof run !== 'function') throw new Error(`bench/${name}.bench${ending} exports no run()`)
if (device && run.length === 0) throw new Error(`bench ${name} takes no --device`)
const rows = await run(device)
console.log(json === 'true' ? rows.map((row) => JSON.stringify({ bench: name, ...row })).join('\n') : benchTable(rows))
