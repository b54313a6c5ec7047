import { type Content, html } from '../markup/html.ts'

/** Markup that the report has too: every text of a run is escaped in it. */
export function Shared({ of, class: name }: { of: Content; class?: string }) {
  return <div class={name} dangerouslySetInnerHTML={{ __html: html`${of}`.text }} />
}

export const reachByKeyboard = (element: HTMLElement | null) => {
  if (element) element.tabIndex = 0
}
