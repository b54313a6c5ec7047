import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { Mismatch } from '../core/index.ts'

function cpuFlags(): Set<string> {
  try {
    const line = readFileSync('/proc/cpuinfo', 'utf8').match(/^flags\s*:\s*(.*)$/m)
    return new Set(line?.[1]?.split(' ') ?? [])
  } catch {
    return new Set() // not Linux: the libraries decide for themselves
  }
}

/** libgomp ends the process without a message that helps if it cannot start as many threads. */
const maxThreads = 1024

function requireThreads(): void {
  for (const name of ['OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS']) {
    const got = process.env[name]
    if (got?.split(',').some((text) => Number.parseInt(text, 10) > maxThreads || Number(text) > maxThreads))
      throw new Mismatch({ where: 'environment', field: name, expected: `at most ${maxThreads} threads`, got })
  }
}

export function defaultThreads(): number {
  const asked = Number(process.env.OMP_NUM_THREADS)
  if (Number.isInteger(asked) && asked > 0) return asked
  const local = Number(process.env.LOCAL_WORLD_SIZE) || 1
  return Math.max(1, Math.floor(availableParallelism() / local))
}

/**
 * What the math libraries read when they load (measured in dev/engine.md). Must run in the main thread, before the addon is
 * loaded and before a worker starts: a worker's process.env is a copy that never reaches setenv. The user's own values stay.
 */
export function prepareEnvironment(): void {
  requireThreads()
  const flags = cpuFlags()
  const avx512 = ['avx512f', 'avx512bw', 'avx512dq', 'avx512vl'].every((f) => flags.has(f))
  const avx2 = flags.has('avx2') && flags.has('fma')
  const threads = String(defaultThreads())
  const set = (name: string, value: string | undefined) => {
    if (value !== undefined && process.env[name] === undefined) process.env[name] = value
  }
  set('OPENBLAS_CORETYPE', avx512 ? 'SKYLAKEX' : avx2 ? 'HASWELL' : undefined)
  set('ATEN_CPU_CAPABILITY', avx512 ? 'avx512' : undefined)
  set('OMP_WAIT_POLICY', 'passive')
  set('OMP_NUM_THREADS', threads)
  set('OPENBLAS_NUM_THREADS', threads)
  set('GLOG_minloglevel', '3')
  set('TORCH_CPP_LOG_LEVEL', 'ERROR')
}
