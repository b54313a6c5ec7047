// What the judge's cache holds; its files may hold anything.
import type { Checklist, Question } from './questions.ts'

/** Part of every key. Entries of version 1 may be wrong: they were read from replies in which a short key had been replaced. */
export const cacheVersion = 2

/** A reference's questions, or why there are none. Only what the judge said is kept; a failed call is not. */
export type Prepared = { checklist: Checklist } | { unjudgeable: string }

export function isChoices(value: unknown, questions: readonly Question[]): value is (number | null)[] {
  const fits = (c: unknown, i: number) =>
    c === null || (Number.isInteger(c) && (c as number) >= 0 && (c as number) < questions[i]!.options.length)
  return Array.isArray(value) && value.length === questions.length && value.every(fits)
}

/** A line of the cache is a file's word; one of another shape is asked again. */
export function isPrepared(value: Prepared | undefined): value is Prepared {
  if (typeof value !== 'object' || value === null) return false
  if ('unjudgeable' in value) return typeof value.unjudgeable === 'string'
  const list = value.checklist as Partial<Checklist> | undefined
  const isText = (...texts: unknown[]) => texts.every((t) => typeof t === 'string')
  return (
    isText(list?.object) &&
    Array.isArray(list?.positives) &&
    Array.isArray(list.negatives) &&
    list.positives.every((p) => isText(p?.attribute, p?.value) && (p.part === null || isText(p.part))) &&
    list.negatives.every((n) => isText(n?.name) && (n.kind === 'part' || n.kind === 'object'))
  )
}
