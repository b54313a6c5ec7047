// `npm run bench -- NAME... [--json] [--device D]`: sets up, runs bench/NAME.bench.ts, prints a table or one JSON object a line.
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { ending, loader } from './lib/compiled.mjs'
import { main, SetupError } from './lib/progress.mjs'
import { root } from './lib/record.mjs'
import { setup } from './setup.mjs'

const bench = `.bench${ending}`

function known() {
  const names = readdirSync(join(root, 'bench')).filter((file) => file.endsWith(bench))
  return names.map((file) => file.slice(0, -bench.length)).sort()
}

function runOne(name, { json = false, device = '' }) {
  const args = [...loader, 'scripts/lib/run-bench.mjs', name, String(json), device]
  return spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit' }).status === 0
}

main(async () => {
  const options = { json: { type: 'boolean' }, device: { type: 'string' } }
  const { values: flags, positionals: names } = parseArgs({ options, allowPositionals: true })
  const wrong = names.find((name) => !existsSync(join(root, 'bench', `${name}${bench}`)))
  if (names.length === 0 || wrong)
    throw new SetupError(
      `${wrong ? `no bench ${wrong}` : 'usage: npm run bench -- NAME... [--json] [--device D]'}; known: ${known().join(', ') || 'none'}`,
    )
  await setup()
  return names.map((name) => runOne(name, flags)).every(Boolean) ? 0 : 1
})
