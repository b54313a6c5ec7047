// Memory after a step, for the timing file.
import { cuda, memory } from '../tensor/index.ts'
import type { Metrics } from '../tracking/index.ts'

/** Tensors of the engine, the whole process, and on a GPU what its tensors take now and took at most. */
export function memoryFigures(device: string): Metrics {
  const { tensors, bytes } = memory()
  const figures = { live_tensors: tensors, live_bytes: bytes, host_bytes: process.memoryUsage.rss() }
  if (!device.startsWith('cuda')) return figures
  const { allocated, peak } = cuda.memory(device)
  return { ...figures, gpu_bytes: allocated, gpu_peak_bytes: peak }
}
