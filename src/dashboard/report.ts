import type { Run } from '../tracking/index.ts'
import { curves } from './curves.ts'
import { evaluation } from './evaluation.ts'
import { header, warnings } from './facts.ts'
import { page } from './page.ts'
import { rollouts } from './rollouts.ts'

/** The whole run as one page that needs nothing beside it. The same folder gives the same bytes. */
export async function renderReport(run: Run): Promise<string> {
  const shown = await rollouts(run)
  const body = [header(run), evaluation(run), curves(run), shown.markup, warnings(run, shown.problems)]
  return page(run.name, body)
}
