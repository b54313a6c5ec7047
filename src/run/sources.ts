// The records of a run: a source of the data room, or a split of ReasonSeg, whose polygons the benchmarks room draws.
import { statSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { type BenchmarkRecord, lisaSplit } from '../benchmarks/index.ts'
import { sha256 } from '../core/index.ts'
import { type DataOptions, openSource, type RecordSource, type Source, sourceOf } from '../data/index.ts'
import { maskFromDense } from '../mask/index.ts'

/** Opens `dataPath` or `evalPath`. */
export async function openRunSource(path: string, options: DataOptions): Promise<Source> {
  const split = lisaSplit(path)
  return split ? sourceOf(lisaSource(resolve(path), split), options) : await openSource(path, options)
}

/** Opens `evalPath`. The folder of masks belongs to shards: other formats bring their masks. */
export async function openEvalSource(path: string, options: DataOptions): Promise<Source> {
  const { maskDir, ...others } = options
  const isOther = lisaSplit(path) !== null || /\.jsonl$|^\w+:\d/.test(path)
  return await openRunSource(path, isOther ? others : options)
}

/** A split of ReasonSeg in LISA's format. Pixels to ignore count as background. */
function lisaSource(folder: string, records: readonly BenchmarkRecord[]): RecordSource {
  const name = `ReasonSeg-${basename(folder)}`
  const pathOf = ({ image }: BenchmarkRecord) => join(folder, basename(image))
  const region: RecordSource['region'] = async (index) => {
    const record = records[index]!
    const { parts, height, width } = await record.target()
    const path = pathOf(record)
    const mask = maskFromDense(parts, height, width)
    return { id: `${name}/${record.id}`, where: path, image: { path }, mask, caption: record.sentences[0]!, meta: {} }
  }
  const sizes = records.map((record) => [record.image, statSync(pathOf(record)).size])
  return {
    name,
    format: 'a split of ReasonSeg',
    length: records.length,
    fingerprint: sha256(JSON.stringify(sizes)),
    schema: ['pictures, each with a JSON file: text, shapes'],
    id: (index) => `${name}/${records[index]!.id}`,
    region,
  }
}
