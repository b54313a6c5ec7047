import { z } from 'zod'

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

/** A setting with a few values, the first of which is the default. */
export function oneOf<const T extends readonly [string, ...string[]]>(values: T, doc: string) {
  return setting<z.ZodEnum<{ [K in T[number]]: K }>>(z.enum(values), values[0] as T[number], doc)
}
