import type { ComponentChildren } from 'preact'

/** A section that scrolls if it is wider than the screen, also by keyboard. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  const reach = (element: HTMLElement | null) => {
    if (element) element.tabIndex = 0
  }
  return (
    <section class="card scroll" aria-label={label} ref={reach}>
      {children}
    </section>
  )
}
