import { Mismatch } from '../core/index.ts'
import { cuda } from '../tensor/index.ts'

let chosen = 'cpu'

/** Where golden data are recomputed. */
export const device = (): string => chosen

/** Golden data are recomputed on this device from now on: cpu, cuda or cuda:N. What has no tensors stays on the CPU. */
export function useDevice(name: string): void {
  const index = /^cuda(?::(\d+))?$/.exec(name)
  if (name !== 'cpu' && !index)
    throw new Mismatch({ where: 'verify', field: '--device', expected: 'cpu, cuda or cuda:N', got: name })
  const count = cuda.count()
  if (index && Number(index[1] ?? 0) >= count) {
    const expected = count === 0 ? 'cpu: the engine has no CUDA device' : `one of ${count} CUDA devices`
    throw new Mismatch({ where: 'verify', field: '--device', expected, got: name })
  }
  chosen = name
}
