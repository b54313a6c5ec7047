import { type Example, type Loader, openLoader, openSource, type Source } from '../data/index.ts'
import { type Features, prepareImage } from '../models/index.ts'
import { keep, tensorsIn, tidy } from '../tensor/index.ts'
import type { FeatureStore } from './feature-store.ts'
import type { Learner } from './learner.ts'
import type { RunConfig } from './run-config.ts'
import type { WorkItem } from './tasks/index.ts'

export interface Records {
  source: Source
  loader: Loader
  close(): Promise<void>
}

export async function openRecords(config: RunConfig): Promise<Records> {
  const source = await openSource(config.dataPath, config.data)
  const split = config.evalPath === null && config.evalRecords > 0 ? 'train' : config.data.split
  const loader = openLoader(source, { ...config.data, seed: config.seed, split })
  return {
    source,
    loader,
    close: async () => {
      await loader.close()
      await source.close()
    },
  }
}

/** The held-out records, in stored order: never trained on. */
export async function readEvalRecords(config: RunConfig): Promise<Example[]> {
  if (config.evalRecords === 0) return []
  const source = await openSource(config.evalPath ?? config.dataPath, config.data)
  const split = config.evalPath === null ? 'eval' : 'all'
  const loader = openLoader(source, { ...config.data, shuffle: false, split, curriculum: 'none' })
  const out: Example[] = []
  try {
    for await (const example of loader) {
      out.push(example)
      if (out.length === config.evalRecords) break
    }
  } finally {
    await loader.close()
    await source.close()
  }
  return out
}

/** Encodes each image once for a whole step; release() frees the features. */
export function workItems(
  learner: Learner,
  config: RunConfig,
  examples: readonly Example[],
  store: FeatureStore | null,
): WorkItem[] {
  const { model, cfg } = learner.loaded
  return examples.map((example) => {
    const make = () =>
      tidy(() => inRows(model.encode(prepareImage(example.image, cfg, { maxTiles: config.maxTiles ?? undefined }))))
    const features = store ? store.get(example.id, example.image, make) : make()
    for (const t of featureTensors(features)) keep(t)
    return { example, features }
  })
}

/** As a file would hold them: kernels round differently for other strides, and a stored feature must give the same bits. */
function inRows(features: Features): Features {
  const { level0, level1, level2 } = features.sam
  const sam = { level0: level0.contiguous(), level1: level1.contiguous(), level2: level2.contiguous() }
  return { ...features, vision: features.vision.contiguous(), sam }
}

export function featureTensors(features: Features) {
  return tensorsIn({ vision: features.vision, sam: features.sam })
}

export function release(items: readonly WorkItem[]): void {
  for (const item of items) for (const t of featureTensors(item.features)) t.dispose()
}
