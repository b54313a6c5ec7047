import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Command } from 'commander'
import { log, Mismatch } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import type { Sa2VA } from '../models/index.ts'

interface Options {
  model: string
  out: string
  adapter?: string
  checkpoint?: string
  ema?: boolean
}

export function command(): Command {
  return new Command('export')
    .description('merge an adapter or a checkpoint of a run into a full Sa2VA folder that the Python code loads')
    .requiredOption('--model <dir>', 'the Sa2VA folder that was trained')
    .requiredOption('--out <dir>', 'a new folder: same names, dtypes and files as the source')
    .option('--adapter <dir>', 'PEFT adapter folder')
    .option('--checkpoint <dir>', 'checkpoint_step_N of a run, or the run: its newest whole checkpoint')
    .option('--ema', 'the EMA copy of the checkpoint instead of the trained weights')
    .action(run)
}

async function run(options: Options): Promise<void> {
  if (options.adapter && options.checkpoint)
    throw new Mismatch({ where: 'export', expected: '--adapter or --checkpoint', got: 'both' })
  if (options.ema && !options.checkpoint)
    throw new Mismatch({ where: 'export', field: '--ema', expected: '--checkpoint with it', got: 'none' })
  const { runInEngineThread } = await import('../engine/index.ts')
  const onMessage = (text: unknown) => log.info(String(text))
  const files = (await runInEngineThread(import.meta.url, 'exportWork', options, { onMessage })) as string[]
  for (const file of files) process.stdout.write(`${join(options.out, file)}\n`)
}

/** Runs in the engine thread. Weights keep the dtype they are stored in, so nothing is rounded that did not train. */
export async function exportWork(options: Options, port: EnginePort): Promise<string[]> {
  const { openSa2VA, exportSa2VA } = await import('../models/index.ts')
  const { loadAdapter } = await import('../checkpoint/index.ts')
  const loaded = openSa2VA(options.model)
  if (options.adapter) loadAdapter(loaded.model, options.adapter, { dropout: 0 })
  if (options.checkpoint) {
    const path = await checkpointAt(options.checkpoint)
    const count = await loadTrained(loaded.model, path, options.ema ?? false)
    port.send(`${path}: ${count} trained tensors${options.ema ? ' of the EMA copy' : ''}`)
  }
  return exportSa2VA(loaded, options.out)
}

async function checkpointAt(dir: string): Promise<string> {
  if (existsSync(join(dir, 'trainables.safetensors'))) return dir
  const { newestValid } = await import('../checkpoint/index.ts')
  for (const folder of [dir, join(dir, 'checkpoints')]) {
    const { checkpoint } = newestValid(folder)
    if (checkpoint) return checkpoint.path
  }
  throw new Mismatch({ where: dir, expected: 'a checkpoint, or a run with one that is whole', got: 'none' })
}

/** Adapters in PEFT's files, everything else that trained under the model's own names; the EMA copy holds both. */
async function loadTrained(model: Sa2VA, path: string, ema: boolean): Promise<number> {
  const { loadAdapter, openWeights, readTensors } = await import('../checkpoint/index.ts')
  const { replaceTensor, tensorAt } = await import('../nn/index.ts')
  if (existsSync(join(path, 'adapter_config.json'))) loadAdapter(model, path, { dropout: 0 })
  const file = join(path, ema ? 'ema.safetensors' : 'trainables.safetensors')
  const stored = readTensors(openWeights(file))
  const slots = new Map(model.slots().map((slot) => [slot.name, slot]))
  for (const [name, t] of stored) {
    const slot = slots.get(name)
    const shape = slot && tensorAt(slot).shape
    if (!shape || shape.join() !== t.shape.join())
      throw new Mismatch({
        where: file,
        field: name,
        expected: shape ? `[${shape}]` : 'a name of the model',
        got: `[${t.shape}]`,
      })
    replaceTensor(slot, t)
  }
  return ema ? stored.size : [...slots.keys()].filter((n) => /\.lora_[AB]\./.test(n)).length + stored.size
}
