// What a run learned, put on the model it started from: adapters, the other trained weights, or their EMA copies.
import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import {
  loadAdapter,
  newestValid,
  openWeights,
  placeTrainingCheckpoint,
  readTensors,
  whyDamaged,
} from '../checkpoint/index.ts'
import { log, Mismatch } from '../core/index.ts'
import { type Family, isVideoOnly } from '../models/index.ts'
import { replaceTensor, tensorAt } from '../nn/index.ts'
import { noGrad, tidy } from '../tensor/index.ts'

export interface TrainedOptions {
  /** The EMA copy instead of the policy. */
  ema?: boolean
}

/** A checkpoint folder of a run, a run folder (its newest valid checkpoint), a PEFT adapter, or the .pth file of the Python trainer. Returns the folder that was read. */
export function loadTrained(family: Family, dir: string, options: TrainedOptions = {}): string {
  if (/\.(pth?|bin|safetensors)$/.test(dir) && existsSync(dir) && statSync(dir).isFile()) return placeFile(family, dir)
  const path = checkpointIn(dir)
  const has = (file: string) => existsSync(join(path, file))
  if (has('adapter_config.json')) loadAdapter(family.module, path, { dropout: 0 })
  if (has('trainables.safetensors')) place(family, join(path, 'trainables.safetensors'))
  if (options.ema) {
    if (!has('ema.safetensors'))
      throw new Mismatch({ where: path, field: 'ema.safetensors', expected: 'a file', got: 'none' })
    place(family, join(path, 'ema.safetensors'))
  }
  return path
}

function placeFile(family: Family, file: string): string {
  const { weights, adapters } = placeTrainingCheckpoint(family.module, file, isVideoOnly)
  log.info(`${file}: ${weights} weights put in place, ${adapters} adapters merged`)
  return file
}

function checkpointIn(dir: string): string {
  if (!existsSync(dir) || !statSync(dir).isDirectory())
    throw new Mismatch({ where: dir, field: 'adapter', expected: 'a checkpoint or adapter folder', got: 'none there' })
  if (['adapter_config.json', 'trainables.safetensors'].some((file) => existsSync(join(dir, file)))) return whole(dir)
  const { checkpoint, invalid } = newestValid(dir)
  if (checkpoint) {
    for (const bad of invalid) log.warn(`${bad.path}: not used: ${bad.reason}`)
    return checkpoint.path
  }
  const got = invalid[0] ? `${invalid[0].path}: ${invalid[0].reason}` : 'a folder without one'
  throw new Mismatch({ where: dir, field: 'adapter', expected: 'a checkpoint, a run folder or a PEFT adapter', got })
}

/** A checkpoint that is named explicitly is checked like one that a run resumes from. */
function whole(dir: string): string {
  const got = whyDamaged(dir)
  if (got === null) return dir
  const hint = 'take another checkpoint; remove manifest.json to use the files as they are'
  throw new Mismatch({ where: dir, field: 'adapter', expected: 'a checkpoint as it was written', got, hint })
}

/** Weights by name; float32 as they were trained, whatever the model's dtype. */
function place(family: Family, file: string): void {
  noGrad(() => {
    const slots = new Map(family.module.slots().map((slot) => [slot.name, slot]))
    const stored = tidy(() => readTensors(openWeights(file), family.placement.device))
    for (const [name, t] of stored) {
      const slot = slots.get(name)
      const shape = slot && tensorAt(slot).shape
      if (!shape || shape.join() !== t.shape.join())
        throw new Mismatch({
          where: file,
          field: name,
          expected: shape ? `[${shape}]` : 'a weight of the model',
          got: `[${t.shape}]`,
          hint: 'is this the model the run started from?',
        })
      replaceTensor(slot, t)
    }
  })
}
