import type { Run } from '../tracking/index.ts'
import { curves } from './curves.ts'
import { evaluation } from './evaluation.ts'
import { header, warnings } from './facts.ts'
import { html, Markup } from './html.ts'
import { rollouts } from './rollouts.ts'
import { style } from './style.ts'

// No script and no address but data: even a caption that got through the escaping could load or run nothing.
const policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

/** The whole run as one page that needs nothing beside it. The same folder gives the same bytes. */
export async function renderReport(run: Run): Promise<string> {
  const shown = await rollouts(run)
  const body = [header(run), evaluation(run), curves(run), shown.markup, warnings(run, shown.problems)]
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${run.name}</title><style>${new Markup(style)}</style></head>
<body><main>
${body}
</main></body></html>
`.text
}
