// Memory after a step, for the timing file.
import { cuda, memory } from '../tensor/index.ts'
import type { Metrics } from '../tracking/index.ts'

/** Tensors of the engine, the whole process, and on a GPU what its tensors take now and took at most. */
export function memoryMetrics(device: string): Metrics {
  const { tensors, bytes } = memory()
  const metrics = { live_tensors: tensors, live_bytes: bytes, host_bytes: process.memoryUsage.rss() }
  if (!device.startsWith('cuda')) return metrics
  const { allocated, peak } = cuda.memory(device)
  return { ...metrics, gpu_bytes: allocated, gpu_peak_bytes: peak }
}
