import { type Content, html, Markup } from './markup/html.ts'
import { style } from './style.ts'

// No script and no address but data: even a caption that got through the escaping could load or run nothing.
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
