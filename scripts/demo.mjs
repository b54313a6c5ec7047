// `npm run demo`: set-up if something is missing, then `roundtrip demo` in the same process, so that signals reach it.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { main } from './lib/progress.mjs'
import { root } from './lib/record.mjs'
import { setup } from './setup.mjs'

const program = join(root, 'bin', 'roundtrip.mjs')

main(async () => {
  await setup()
  process.argv = [process.execPath, program, 'demo', ...process.argv.slice(2)]
  await import(pathToFileURL(program).href)
  return process.exitCode
})
