import type { RecordContext } from '../rewards/index.ts'
import type { WorkItem } from './kind.ts'

/** What the record itself gives to every reward. */
export function recordContext({ example }: WorkItem): RecordContext {
  const { category, image, meta } = example
  return { ...(category ? { category } : {}), columns: meta, image }
}
