import { join } from 'node:path'
import { Command } from 'commander'
import { log, Mismatch } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { runOfCheckpoint, writeExportedCard } from './exported-card.ts'

interface Options {
  model: string
  out: string
  adapter?: string
  checkpoint?: string
  ema?: boolean
}

export function command(): Command {
  return new Command('export')
    .description(
      'merge an adapter or a checkpoint of a run into a full model folder that the Python code loads; of a run also its card',
    )
    .requiredOption('--model <dir>', 'the model folder that was trained')
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
  const { model: source, out, ema } = options
  const from = options.checkpoint === undefined ? null : runOfCheckpoint(options.checkpoint)
  const card = from ? await writeExportedCard({ out, source, ema, ...from }) : []
  for (const file of new Set([...files, ...card])) process.stdout.write(`${join(out, file)}\n`)
}

/** Runs in the engine thread. Weights keep the dtype they are stored in, so nothing is rounded that did not train. */
export async function exportWork(options: Options, port: EnginePort): Promise<string[]> {
  const { openFamily } = await import('../models/index.ts')
  const { loadTrained } = await import('../run/index.ts')
  const family = openFamily(options.model)
  const trained = options.adapter ?? options.checkpoint
  if (trained) {
    const path = loadTrained(family, trained, { ema: options.ema })
    port.send(`${path}: ${options.ema ? 'the EMA copy' : 'the trained weights'} merged`)
  }
  return family.export(options.out)
}
