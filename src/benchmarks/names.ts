/** Sentences and their masks. */
export const maskBenchmarks = ['refcoco', 'refcoco+', 'refcocog', 'grefcoco', 'reasonseg'] as const
export type MaskBenchmarkName = (typeof maskBenchmarks)[number]

/** Words about regions, boxes, clicks. */
export const regionBenchmarks = ['dlc-bench', 'clicks', 'gar-vqa', 'ref-l4', 'refcocog-captions'] as const
export type RegionBenchmarkName = (typeof regionBenchmarks)[number]
