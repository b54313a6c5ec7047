import type { z } from 'zod'
import { Mismatch } from '../core/index.ts'

/** For `refine`: the value may hold a key, so a refusal does not show it. */
export const mayHoldKey = { params: { mayHoldKey: true } }

/** The input as the schema reads it; what the schema refuses is a Mismatch. `of`: text before the name of a field. */
export function parseWith<T>(schema: z.ZodType<T>, input: unknown, where: string, of = ''): T {
  const parsed = schema.safeParse(input)
  if (parsed.success) return parsed.data
  throw refusalOf(parsed.error, input, where, of)
}

/** The first error of a schema, with the value found there. */
export function refusalOf(error: z.ZodError, input: unknown, where: string, of = ''): Mismatch {
  const issue = error.issues[0]!
  const hidden = issue.code === 'custom' && issue.params?.['mayHoldKey'] === true
  const value = valueAt(input, issue.path) ?? 'nothing'
  const got = hidden ? 'another, which is not shown: it may hold a key' : value
  return new Mismatch({ where, field: of + issue.path.join('.') || where, expected: expectedOf(issue), got })
}

/** What a schema wanted, as the middle of our own sentence: "expected ..., got ...". */
export function expectedOf({ message }: Pick<z.core.$ZodIssue, 'message'>): string {
  return message
    .replace(/^(?:Too small|Too big|Invalid \w+): (?:expected )?/, '')
    .replace(/, received [\w ]+$/, '')
    .replace(/^Unrecognized keys?: /, 'known keys, not ')
}

/** What an object has at a path of keys; undefined if the path leads nowhere. */
export function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  let value: unknown = input
  for (const key of path) value = (value as Record<PropertyKey, unknown> | undefined)?.[key]
  return value
}
