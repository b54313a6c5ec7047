// A custom source: a module that exports `source`, which reads one record at a time.
import { hashFile, loadExport, Mismatch, type Refuse, refuseAt, sha256 } from '../../core/index.ts'
import { BadRecord, type RecordSource, type Region } from '../example.ts'

/** What such a module must export; the rest of a source has defaults. */
export type SourceModule = Pick<RecordSource, 'name' | 'length' | 'id' | 'region'> & Partial<RecordSource>

const hint = 'export const source = { name, length, id, region } satisfies SourceModule'

export const isModule = (path: string): boolean => /\.[mc]?[jt]s$/.test(path)

/** Without a fingerprint in the module, its data counts as changed when its file or its ids change. */
export async function openModuleSource(path: string): Promise<RecordSource> {
  const source = (await loadExport(path, 'source', hint)) as unknown as SourceModule
  checkSource(path, source)
  const ids = idsOf(path, source)
  const { name, length, schema = [], warnings, leftOut, broken } = source
  return {
    ...{ name, length, schema, warnings, leftOut, broken },
    format: 'a custom module',
    fingerprint: source.fingerprint ?? sha256([hashFile(path), ...ids].join('\n')),
    id: (index) => ids[index]!,
    region: async (index, options) => checkedRegion(path, await source.region(index, options)),
    close: async () => await source.close?.(),
  }
}

function checkSource(where: string, source: Partial<SourceModule>): void {
  const refuse: Refuse = (field, expected, got) => refuseAt(where)(`source.${field}`, expected, got, hint)
  if (typeof source.name !== 'string') refuse('name', 'a text', source.name)
  if (!Number.isSafeInteger(source.length) || source.length! < 0) refuse('length', 'a number of records', source.length)
  for (const field of ['id', 'region'] as const)
    if (typeof source[field] !== 'function') refuse(field, 'a function', source[field])
}

function checkedRegion(path: string, region: Region): Region {
  const where = region.where ?? path
  if (!(region.mask?.counts instanceof Uint32Array)) {
    const expected = 'run lengths (maskFromDense makes them)'
    throw new BadRecord('mask-unreadable', { where, field: 'mask', expected, got: Object.keys(region.mask ?? {}) })
  }
  return region
}

function idsOf(where: string, source: SourceModule): string[] {
  const ids = Array.from({ length: source.length }, (_, index) => source.id(index))
  const seen = new Set<string>()
  for (const [index, id] of ids.entries()) {
    if (typeof id !== 'string' || seen.has(id))
      throw new Mismatch({ where, field: `source.id(${index})`, expected: 'a text used once', got: id })
    seen.add(id)
  }
  return ids
}
