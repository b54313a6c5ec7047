import { type Content, html, Markup } from './markup/html.ts'
import { style } from './style.ts'

// No scripts, and images only as data: URLs: markup that got past the escaping could neither load nor run anything.
const policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

/** A whole page that needs nothing beside it. */
export function page(title: string, body: Content): string {
  return html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${title}</title><style>${new Markup(style)}</style></head>
<body><main>
${body}
</main></body></html>
`.text
}
