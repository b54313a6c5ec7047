// What a checkpoint holds: adapters in PEFT's layout, the other trainables, the EMA copy, a reference that moves, the optimizer, and
// one JSON of counters and positions. Everything is float32 or plain numbers, so that a resumed run goes on bit for bit.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  adapterConfigText,
  languageModelNames,
  openWeights,
  readTensors,
  tensorSource,
  toFileName,
  writeCheckpoint,
  writeSafetensors,
} from '../checkpoint/index.ts'
import { Mismatch, messageOf } from '../core/index.ts'
import type { LoaderState } from '../data/index.ts'
import { tensorAt } from '../nn/index.ts'
import { noGrad, type Tensor, tidy } from '../tensor/index.ts'
import type { RunPosition } from '../tracking/index.ts'
import type { EntropyState } from './entropy.ts'
import type { Learner } from './learner.ts'
import type { StoredGroup } from './stored-group.ts'

export interface RunState {
  version: 1
  step: number
  /** Settings that must not change in a resumed run, hashed. */
  fingerprint: string
  loader: LoaderState
  position: RunPosition
  actionScale: number
  balance: { loop1: number; loop2: number }
  norms: { loop1: number; loop2: number }
  /** Absent in supervised runs and in checkpoints from before it was kept: as at the start. */
  entropy?: EntropyState
  /** Groups of the generation batch that later passes still use. */
  buffer: { groups: StoredGroup[]; next: number } | null
  /** Steps in a row whose loop-2 groups had no spread. */
  flat: number
}

const isLora = (name: string) => /\.lora_[AB]\./.test(name)

function writer(entries: Iterable<[string, Tensor]>, rename: (name: string) => string = (n) => n) {
  return (path: string) => {
    writeSafetensors(
      path,
      Array.from(entries, ([name, t]) => tensorSource(rename(name), t)),
    )
  }
}

export function saveRun(dir: string, learner: Learner, state: RunState): string {
  const params = [...learner.params()]
  const lora = params.filter(([name]) => isLora(name))
  const files: Record<string, string | ((path: string) => void)> = {
    'trainables.safetensors': writer(params.filter(([name]) => !isLora(name))),
    'ema.safetensors': writer(learner.ema.state()),
    'optimizer.safetensors': (path) => writer(learner.optim.state())(path), // its counters are new tensors of the scope
    'state.json': `${JSON.stringify(state)}\n`,
  }
  if (learner.reference) files['reference.safetensors'] = writer(learner.reference.state())
  if (learner.adapter && lora.length > 0) {
    const { rank, alpha, dropout } = learner.adapter
    const modules = [...new Set(lora.map(([name]) => name.split('.').at(-3)!))].sort()
    files['adapter_model.safetensors'] = writer(lora, (name) => toFileName(name, languageModelNames))
    files['adapter_config.json'] = adapterConfigText({
      r: rank,
      lora_alpha: alpha,
      lora_dropout: dropout,
      target_modules: modules,
    })
  }
  try {
    return tidy(() => writeCheckpoint(dir, state.step, files))
  } catch (error) {
    if (!['ENOSPC', 'EDQUOT', 'EFBIG'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error
    throw new Mismatch({
      where: dir,
      field: `checkpoint of step ${state.step}`,
      expected: 'room on the disk',
      got: messageOf(error),
      hint: 'earlier checkpoints are intact; make room or lower saveTotalLimit, then start the same command again',
    })
  }
}

export function readState(path: string): RunState {
  const where = join(path, 'state.json')
  const state = JSON.parse(readFileSync(where, 'utf8')) as RunState
  if (state.version !== 1) throw new Mismatch({ where, field: 'version', expected: '1', got: state.version })
  return state
}

/** Puts weights, EMA, moving reference and optimizer of a checkpoint in place. */
export function loadRun(path: string, learner: Learner): void {
  noGrad(() =>
    tidy(() => {
      const { device } = learner.loaded.model.home
      const read = (file: string) => readTensors(openWeights(join(path, file)), device)
      const stored = read('trainables.safetensors')
      if (learner.adapter)
        for (const [name, t] of read('adapter_model.safetensors'))
          stored.set(name.replace(languageModelNames.file, languageModelNames.ours), t)
      for (const slot of learner.slots) {
        const t = stored.get(slot.name)
        if (!t) throw new Mismatch({ where: path, field: slot.name, expected: 'a stored tensor', got: 'none' })
        tensorAt(slot).copy_(t)
      }
      learner.ema.load(read('ema.safetensors'))
      learner.reference?.load(read('reference.safetensors'))
      learner.optim.load(read('optimizer.safetensors'))
    }),
  )
}
