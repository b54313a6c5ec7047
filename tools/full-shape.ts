// Compares this product with the public Python code at the shape of a released model with random weights. float32: features, states,
// logits, log-probs and masks. bfloat16: the error of both sides against float32. See dev/results/checkpoints.md.
import { execFileSync } from 'node:child_process'
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Command } from 'commander'
import { count } from '../src/cli/model.ts'
import { log } from '../src/core/index.ts'
import { cuda } from '../src/tensor/index.ts'
import { compareParts, table } from './full-shape/compare.ts'
import { ours } from './full-shape/ours.ts'
import { type ShapeName, shapeNames } from './lib/checkpoint-shapes.ts'

interface Flags {
  python: string
  code: string
  work: string
  layers?: number
}

const here = import.meta.dirname
const device = cuda.count() > 0 ? 'cuda' : 'cpu'
/** bfloat16 takes minutes without a GPU. */
const dtypes = device === 'cuda' ? (['float32', 'bfloat16'] as const) : (['float32'] as const)

function makeFolder(shape: ShapeName, dir: string, layers?: number): void {
  const script = join(here, 'make-checkpoint.ts')
  const cut = layers === undefined ? [] : ['--layers', String(layers)]
  const args = [...process.execArgv, script, dir, '--shape', shape, '--dtype', 'bfloat16', ...cut]
  execFileSync(process.execPath, args, { stdio: 'inherit' })
}

function timed(what: string, work: () => void): void {
  const start = performance.now()
  work()
  log.info(`${what}: ${((performance.now() - start) / 1000).toFixed(1)} s`)
}

function run(shape: ShapeName, flags: Flags): void {
  execFileSync(flags.python, ['-c', 'import torch, transformers, safetensors'], { stdio: 'inherit' }) // before any work
  const dir = join(flags.work, shape)
  mkdirSync(dir, { recursive: true })
  const folder = join(dir, 'model')
  try {
    rmSync(folder, { recursive: true, force: true })
    timed('the folder', () => makeFolder(shape, folder, flags.layers))
    const inputs = join(dir, 'inputs.safetensors')
    for (const dtype of dtypes) {
      const out = join(dir, `ours-${dtype}.safetensors`)
      timed(`ours, ${dtype}`, () => ours(folder, out, { dtype, device }, dtype === 'float32' ? inputs : undefined))
    }
    const places = ['--code', flags.code, '--model', folder, '--inputs', inputs, '--out', join(dir, 'reference')]
    const args = [join(here, 'full-shape/reference.py'), ...places, '--device', device]
    timed('the reference', () => execFileSync(flags.python, args, { stdio: 'inherit' }))
    const rows = compareParts(dir, dtypes)
    const cut = flags.layers === undefined ? 'every layer' : `${flags.layers} layers`
    process.stdout.write(`${shape} on ${device}, ${cut}\n${table(rows)}\n`)
    if (rows.some((row) => !row.pass)) process.exitCode = 1
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

new Command('full-shape')
  .argument('<shape>', shapeNames.filter((name) => name !== 'tiny').join(', '))
  .requiredOption('--code <dir>', 'projects/sa2va/hf of the public Sa2VA repository')
  .option('--python <path>', 'with torch, transformers, safetensors', 'python3')
  .option('--work <dir>', 'folder of the results and of the weights, which are removed at the end', 'build/full-shape')
  .option('--layers <n>', 'of the language model and the vision tower: fewer, for a small machine', count)
  .action(run)
  .parse()
