import { Mismatch } from '../core/index.ts'
import { cuda } from '../tensor/index.ts'

let chosen = 'cpu'

/** Where golden data are recomputed. */
export const device = (): string => chosen

/** Golden data are recomputed on this device from now on: cpu, cuda or cuda:N. What has no tensors stays on the CPU. */
export function useDevice(name: string): void {
  if (!/^(cpu|cuda(:\d+)?)$/.test(name))
    throw new Mismatch({ where: 'verify', field: '--device', expected: 'cpu, cuda or cuda:N', got: name })
  if (name !== 'cpu') cuda.requireDevice(name)
  chosen = name
}
