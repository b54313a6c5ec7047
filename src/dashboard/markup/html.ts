/** Text that is markup already. Only `html` makes it, so captions, names and settings cannot become markup. */
export class Markup {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

export type Content = Markup | string | number | undefined | readonly Content[]

const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }

/** Also replaces half surrogates, what HTML does not allow at all, and direction marks that would turn the text around them. */
export function escapeHtml(text: string): string {
  return text
    .replace(/\p{Surrogate}/gu, '\ufffd')
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, '\ufffd')
    .replace(/[&<>"']/g, (c) => entities[c] ?? c)
}

function render(value: Content): string {
  if (value === undefined) return ''
  if (value instanceof Markup) return value.text
  if (typeof value === 'string' || typeof value === 'number') return escapeHtml(String(value))
  return value.map(render).join('')
}

/** Markup from a template; every value is escaped unless it is markup itself. */
export function html(parts: TemplateStringsArray, ...values: readonly Content[]): Markup {
  return new Markup(parts.map((part, i) => (i === 0 ? part : render(values[i - 1]) + part)).join(''))
}
