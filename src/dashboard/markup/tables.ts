// Warnings and settings of runs as tables.

import { type Content, html, type Markup } from './html.ts'
import type { NoticeKind, NoticeView } from './view-types.ts'

const head = (...names: string[]) =>
  html`<thead><tr>${names.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>`

/** Warnings counted by kind, the newest in full, and what could not be read. */
export function noticeTables(view: {
  noticeKinds: readonly NoticeKind[]
  noticeList: readonly NoticeView[]
  problemTexts: readonly string[]
}): Markup {
  const { noticeKinds: kinds, noticeList: list, problemTexts } = view
  const problems = problemTexts.map((text) => html`<p class="problem">${text}</p>`)
  if (kinds.length === 0) return html`${problems}${problems.length === 0 ? html`<p>No warnings.</p>` : undefined}`
  const counted = kinds.map(
    ({ kind, count, first, last }) =>
      html`<tr><td>${kind}</td><td class="number">${count}</td><td class="number">${first === last ? first : `${first} to ${last}`}</td></tr>`,
  )
  const newest = list.map(
    ({ step, kind, count, text }) =>
      html`<tr><td class="number">${step}</td><td>${kind}${count > 1 ? ` (${count})` : ''}</td><td>${text}</td></tr>`,
  )
  return html`${problems}<table>${head('kind', 'count', 'steps')}<tbody>${counted}</tbody></table><details${list.length <= 20 ? html` open` : undefined}><summary>the newest ${list.length}</summary><table>${head('step', 'kind', 'what')}<tbody>${newest}</tbody></table></details>`
}

/** Settings side by side: of several runs those in which they differ, or `all`. */
export function settingTable(
  title: string,
  runs: readonly { name: string; rows: readonly (readonly [string, string])[] }[],
  all: boolean,
): Content {
  const tables = runs.map(({ rows }) => new Map(rows))
  const keys = [...new Set(tables.flatMap((table) => [...table.keys()]))]
  const differing = keys.filter((key) => new Set(tables.map((table) => table.get(key))).size > 1)
  const count = runs.length > 1 ? `${differing.length} of ${keys.length} differ` : keys.length
  const body = (all || runs.length < 2 ? keys : differing).map((key) => {
    const cells = tables.map((table) => html`<td>${table.get(key) ?? html`<i>absent</i>`}</td>`)
    return html`<tr><th scope="row">${key}</th>${cells}</tr>`
  })
  return html`<h3>${title}: ${count}</h3><table class="settings">${head('name', ...runs.map(({ name }) => name))}<tbody>${body}</tbody></table>`
}
