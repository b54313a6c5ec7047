// `npm run soak -- long`: many steps of the toy by some processes, nothing killed; what they hold must not grow.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { newestValid } from '../../src/checkpoint/index.ts'
import { makeToy, scratch } from '../support/runs.ts'
import { flatness, type Held } from './flat.ts'
import { work } from './lives.ts'

const { values } = parseArgs({
  options: {
    steps: { type: 'string', default: '10000' },
    processes: { type: 'string', default: '1' },
    seconds: { type: 'string', default: 'Infinity' },
    folder: { type: 'string', default: scratch('long') },
    help: { type: 'boolean', default: false },
  },
  allowPositionals: true,
})
if (values.help) {
  console.error(`npm run soak -- long [--steps 10000] [--processes 1] [--seconds N] [--folder DIR]
  --seconds  ends in order after so many seconds; the same command with the same folder resumes`)
  process.exit(2)
}
const size = Number(values.processes)
const model = join(values.folder, 'toy')
if (!existsSync(join(model, 'model.safetensors'))) makeToy(model)
const output = join(values.folder, `run-${size}`)
mkdirSync(output, { recursive: true })
const store = join(scratch('long-store'), 'store')

/** One rank to its end: its memory after each step. */
function rank(number: number): Promise<Held[]> {
  const place = { RANK: `${number}`, LOCAL_RANK: `${number}`, WORLD_SIZE: `${size}`, LOCAL_WORLD_SIZE: `${size}` }
  const env = { ...process.env, OMP_NUM_THREADS: '1', ...(size > 1 && { ...place, ROUNDTRIP_STORE: store }) }
  const args = [...work, 'train', model, output, values.steps, '500', values.seconds]
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] })
  let out = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text
  })
  return new Promise((done, failed) => {
    child.on('close', (code, signal) => {
      if (code !== 0) failed(new Error(`rank ${number} ended with ${code ?? signal}`))
      else done(out.split('\n').flatMap((line) => (line.startsWith('{"step"') ? [JSON.parse(line) as Held] : [])))
    })
  })
}

const lives = await Promise.all(Array.from({ length: size }, (_, number) => rank(number)))
console.log(`${output}: at step ${newestValid(output).checkpoint?.step} of ${values.steps}`)
for (const [number, held] of lives.entries()) console.log(`rank ${number} of ${size}: ${flatness(held)}`)
