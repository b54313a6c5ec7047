import type { z } from 'zod'

/** A setting: what it accepts, its default, its documentation. */
export function setting<T extends z.ZodType>(
  type: T,
  usual: Exclude<z.output<T>, undefined>,
  doc: string,
): z.ZodDefault<T> {
  return type.default(usual).describe(doc)
}

/** A setting that is null unless given. */
export function optional<T extends z.ZodType>(type: T, doc: string): z.ZodDefault<z.ZodNullable<T>> {
  return type.nullable().default(null).describe(doc)
}
