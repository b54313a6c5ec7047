import { followWhole, type Run } from '../tracking/index.ts'
import { behaviourSection } from './behaviour.ts'
import { curves } from './curves.ts'
import { header } from './facts.ts'
import { evaluations } from './markup/evaluations.ts'
import { html } from './markup/html.ts'
import { noticeTables } from './markup/tables.ts'
import { page } from './page.ts'
import { imageUri, rollouts } from './rollouts.ts'
import { runView } from './views.ts'

/**
 * The whole run as one page that needs nothing beside it. The same folder gives the same bytes. The live page has the same
 * tables and samples: markup/.
 */
export async function renderReport(run: Run): Promise<string> {
  const followed = followWhole(run.dir)
  const missing = new Set<string>()
  const shown = await rollouts(followed, missing)
  const behaviour = await behaviourSection(followed, ({ image }) => imageUri(run, image, missing))
  const view = runView({ id: '', run: followed })
  const problemTexts = [...new Set([...run.problems, ...view.problemTexts, ...missing, ...behaviour.problems])]
  return page(run.name, [
    header(run, followed.tasks, behaviour.alarms),
    html`<section><h2>Evaluation</h2>${evaluations([{ label: run.name, evals: view.evals, note: view.evalNote }])}</section>`,
    html`<section><h2>Behaviour</h2>${behaviour.body}</section>`,
    curves(followed),
    shown,
    html`<section><h2>Warnings</h2><div class="card scroll">${noticeTables({ ...view, problemTexts })}</div></section>`,
  ])
}
