import { Mismatch } from '../core/index.ts'
import type { BenchmarkOptions, MaskBenchmark } from './benchmark.ts'
import { type MaskBenchmarkName, maskBenchmarks, regionBenchmarks } from './names.ts'
import { openReasonSeg } from './reason-seg.ts'
import { openRefBenchmark } from './ref-coco.ts'

const benchmarkNames = [...maskBenchmarks, ...regionBenchmarks]

export function isMaskBenchmark(name: string): name is MaskBenchmarkName {
  return (maskBenchmarks as readonly string[]).includes(name)
}

/** Opens a benchmark of masks; `data` is the data root, its `ref_seg`, or the benchmark's own folder. */
export function openBenchmark(data: string, name: string, options: Partial<BenchmarkOptions> = {}): MaskBenchmark {
  const all: BenchmarkOptions = { images: null, refs: null, ...options }
  if (!isMaskBenchmark(name))
    throw new Mismatch({ where: 'flags', field: '--benchmark', expected: benchmarkNames.join(', '), got: name })
  return name === 'reasonseg' ? openReasonSeg(data, all) : openRefBenchmark(data, name, all)
}
