import { followWhole, type Run } from '../tracking/index.ts'
import { behaviourSection } from './behaviour.ts'
import { curves } from './curves.ts'
import { evaluation } from './evaluation.ts'
import { header, warnings } from './facts.ts'
import { html } from './html.ts'
import { page } from './page.ts'
import { imageUri, rollouts } from './rollouts.ts'

/** The whole run as one page that needs nothing beside it. The same folder gives the same bytes. */
export async function renderReport(run: Run): Promise<string> {
  const shown = await rollouts(run)
  const followed = followWhole(run.dir)
  const missing = new Set<string>()
  const behaviour = await behaviourSection(followed, ({ image }) => imageUri(run, image, missing))
  const section = html`<section><h2>Behaviour</h2>${behaviour.body}</section>`
  const problems = new Set([...shown.problems, ...missing, ...behaviour.problems])
  const body = [
    ...[header(run, behaviour.alarms), evaluation(run), section, curves(run), shown.markup],
    warnings(run, [...problems]),
  ]
  return page(run.name, body)
}
