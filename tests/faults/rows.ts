import { crash } from './crash.ts'
import { data } from './data.ts'
import { disk } from './disk.ts'
import { files } from './files.ts'
import { judge } from './judge.ts'
import { allocations } from './memory.ts'
import { numbers } from './numbers.ts'
import { page } from './page.ts'
import { processes } from './processes.ts'
import type { Row } from './row.ts'
import { signals } from './signals.ts'
import { trackers } from './trackers.ts'

/** Every row of `npm run faults`, by its number. */
export const rows: readonly Row[] = [
  ...crash,
  ...signals,
  ...processes,
  ...allocations,
  ...numbers,
  ...disk,
  ...files,
  ...data,
  ...judge,
  ...page,
  ...trackers,
].sort((a, b) => a.number - b.number)
