// The memory plan of a run on the GPU where it is: `--dry-run` prints it, `sampling.weights auto` follows it.
import { readRank } from '../distributed/index.ts'
import { kernelsOff, kernelTarget, noKernels } from '../kernels/index.ts'
import { notCovered } from '../llm/index.ts'
import { type Family, isLanguage, modelSizes } from '../models/index.ts'
import { valuesBeside } from '../tasks/index.ts'
import { cuda } from '../tensor/index.ts'
import type { RunConfig } from './config.ts'
import { deviceOf } from './device.ts'
import { type Card, chooseSampling, planMemory, type SamplingChoice } from './memory-plan.ts'

/** What a process has of a GPU: its part if several share it, and no more than torch's allocator may take. */
export function memoryShare(total: number, gpus: number, local: number, allocator = ''): number {
  const fraction = Number(/per_process_memory_fraction:([\d.]+)/.exec(allocator)?.[1] ?? 1)
  return Math.min(total / Math.ceil(local / gpus), total * fraction)
}

function gpuOf(device: string, processes: number): Card {
  const { size, localSize } = readRank()
  const local = size > 1 ? localSize : processes // a dry run plans for processes that are not started
  const { total } = cuda.memory(device)
  const { PYTORCH_ALLOC_CONF, PYTORCH_CUDA_ALLOC_CONF } = process.env
  const bytes = memoryShare(total, cuda.count(), local, PYTORCH_CUDA_ALLOC_CONF ?? PYTORCH_ALLOC_CONF)
  const kernels = (kernelsOff() ?? noKernels(device)) === null
  return { bytes, kernels, clusters: kernels && kernelTarget().clusters }
}

/** Arguments of the planner for one of the processes. */
function planned(config: RunConfig, family: Family, processes: number) {
  const policy = modelSizes(family.config as Record<string, unknown>, config.lora.targets)
  const sizes = { ...policy, values: policy.values + valuesBeside(config) }
  const own = { ...config, batchSize: Math.ceil(config.batchSize / processes) }
  return [sizes, own, gpuOf(deviceOf(config).device, processes), processes] as const
}

/** What `roundtrip plan` says about this GPU. */
export function planOnGpu(config: RunConfig, family: Family, processes: number): number {
  return planMemory(...planned(config, family, processes)).peak
}

/** How a run samples where it is. On the CPU nothing is rounded in float32, and copies of quantized matrices would save no time. */
export function samplingOf(config: RunConfig, family: Family, processes: number): SamplingChoice {
  const { sampling, frozenWeights } = config
  if (sampling.weights !== 'auto') return { weights: sampling.weights, why: null }
  const { device, dtype } = deviceOf(config)
  const exact = frozenWeights === 'exact'
  const suits =
    device === 'cpu' ? dtype === 'float32' && exact : isLanguage(family) && !notCovered(family.model.decoder)
  if (suits && !exact) return chooseSampling(...planned(config, family, processes))
  return { weights: suits ? 'merged' : 'exact', why: null }
}
