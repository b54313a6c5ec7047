// What both sides of `npm run bench -- peers` read from settings.json, and what each prints when it is done.

export interface PeerSettings {
  steps: number
  batch: number
  k: number
  tokens: number
  rank: number
  alpha: number
  lr: number
  threads: number
  question: string
  /** The model's config.json: as the peer's library takes it, and flat as released folders have it. */
  config: object
  flat: object
}

/** Between the ends of steps; bytes. */
export interface PeerRun {
  seconds: number[]
  processor: number[]
  peak: number
  tokens: number
}
