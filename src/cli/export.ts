import { basename, join, resolve } from 'node:path'
import { Command } from 'commander'
import { requireNoModel, writeWholeFolder } from '../checkpoint/index.ts'
import { Mismatch, modelFolder } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { runOfCheckpoint, writeExportedCard } from './exported-card.ts'
import { inEngine } from './model.ts'

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
      'merge an adapter or a checkpoint of a run into a full model folder that the Python code loads; of a run also its model card',
    )
    .requiredOption('--model <dir>', 'the model folder that was trained', modelFolder)
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
  for (const file of await exportModel(options)) process.stdout.write(`${join(options.out, file)}\n`)
}

/** Writes a whole new model folder or nothing; returns the names of weights and model card. */
export async function exportModel(options: Options, replaces = false): Promise<Set<string>> {
  if (!replaces) requireNoModel(options.out)
  return writeWholeFolder(options.out, (unfinished) => exportInto(unfinished, options))
}

/** Weights, the source's other files and, of a run, the model card; returns the names of weights and model card. */
async function exportInto(out: string, options: Options): Promise<Set<string>> {
  const files = await inEngine<string[]>(import.meta.url, 'exportWork', { ...options, out }, 'no model was written')
  const from = options.checkpoint === undefined ? null : runOfCheckpoint(options.checkpoint)
  const facts = { out, name: basename(resolve(options.out)), source: options.model, ema: options.ema }
  return new Set([...files, ...(from ? await writeExportedCard({ ...facts, ...from }) : [])])
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
