import { sha256 } from '../../core/index.ts'
import type { BadRecord, RecordSource } from '../example.ts'
import { GroupedRecords } from '../grouped-records.ts'
import { keyOf } from './record-ids.ts'

/** Several sources read as one, in the given order; `broken` are parts that could not be opened. */
export function concatSources(
  name: string,
  parts: readonly RecordSource[],
  broken: readonly BadRecord[] = [],
): RecordSource {
  const records = new GroupedRecords(parts.map((part) => part.length))
  const find = (index: number): [RecordSource, number] => {
    const [i, at] = records.find(index)
    return [parts[i]!, at]
  }
  const leftOut: Record<string, number> = {}
  for (const part of parts)
    for (const [why, n] of Object.entries(part.leftOut ?? {})) leftOut[why] = (leftOut[why] ?? 0) + n
  return {
    name,
    format: `${parts.length} parts: ${parts.map((p) => `${p.name} (${p.format}, ${p.length})`).join('; ')}`,
    length: records.length,
    fingerprint: sha256(parts.map((p) => p.fingerprint).join('\n')),
    schema: parts.flatMap((p) => (parts.length > 1 ? p.schema.map((line) => `${p.name}: ${line}`) : p.schema)),
    warnings: [...parts.flatMap((p) => p.warnings ?? []), ...broken.map((b) => `skipped: ${b.message}`)],
    leftOut,
    withoutCaptions: parts.every((part) => part.withoutCaptions),
    broken: [...parts.flatMap((p) => p.broken ?? []), ...broken],
    id: (index) => {
      const [part, at] = find(index)
      return part.id(at)
    },
    key: (index) => keyOf(...find(index)),
    part: (index) => find(index)[0].name,
    region: async (index, options) => {
      const [part, at] = find(index)
      return await part.region(at, options)
    },
  }
}
