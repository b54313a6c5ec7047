import { type Example, type Loader, openLoader, openSource, type Source } from '../data/index.ts'
import type { RunConfig } from './config.ts'

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
