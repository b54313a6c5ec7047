import type { ComponentChildren } from 'preact'

/** A card that is scrolled where it is wider than the screen; the keyboard reaches it to do so. */
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
