// What names of the Python prototypes do that are not settings.
import type { Given } from '../config/index.ts'
import { log, Mismatch } from '../core/index.ts'
import { environmentFlags, evalMasks, taskFlags, unusedFlags } from './prototype-flags.ts'

/** Names that are accepted and are not settings. */
export const foreignNames = [...Object.keys(environmentFlags), ...Object.keys(unusedFlags), evalMasks]

/** Applies them, and reports which have no effect or another meaning than in other tasks. */
export function takeForeignNames({ settings, paths, typed, written }: Given, task: string): void {
  const names = new Map(written.map(({ name, value }) => [name, value]))
  for (const [name, variable] of Object.entries(environmentFlags))
    if (names.has(name)) process.env[variable] = String(names.get(name))
  if ((names.has('wandb_project') || names.has('wandb_run_name')) && !paths.has('reportTo')) {
    settings['reportTo'] = ['wandb']
    paths.add('reportTo')
  }
  if (names.has('sam_config') && !typed.has('device') && names.get('device') === 'cuda') {
    settings['device'] = 'auto'
    log.info('device cuda: read as auto, which is the GPU of this process if there is one')
  }
  checkEvalMasks(names, (settings['data'] as { maskDir?: unknown } | undefined)?.maskDir)
  for (const [name, reason] of Object.entries(unusedFlags))
    if (names.has(name)) log.info(`${name} has no effect here: ${reason}`)
  for (const [name, path] of Object.entries(taskFlags[task] ?? {}))
    if (names.has(name)) log.info(`${name} is ${path}, as in the prototype; the weight of the KL term is rl.beta`)
}

function checkEvalMasks(names: ReadonlyMap<string, unknown>, masks: unknown): void {
  if (!names.has(evalMasks) || names.get(evalMasks) === masks) return
  const hint = 'put the masks of both sets into one folder: they are named by id'
  const expected = `the folder of the masks to train on (${masks ?? 'none'})`
  throw new Mismatch({ where: 'settings', field: evalMasks, expected, got: names.get(evalMasks), hint })
}
