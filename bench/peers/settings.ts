// The settings.json that both sides of `npm run bench -- peers` read, and the result that each prints.

export interface PeerSettings {
  /** cpu: float32; cuda: bfloat16. */
  device: 'cpu' | 'cuda'
  steps: number
  batch: number
  k: number
  tokens: number
  rank: number
  alpha: number
  lr: number
  threads: number
  question: string
  /** The model's config.json: nested for transformers, and flat as in released folders. */
  config: object
  flat: object
}

/** Seconds and CPU seconds of each step, peak memory of the process or on the GPU in bytes. */
export interface PeerRun {
  seconds: number[]
  processor: number[]
  peak: number
  tokens: number
}
