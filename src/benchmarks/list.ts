import type { z } from 'zod'
import { parseWith } from '../config/index.ts'
import { Mismatch, typeOf } from '../core/index.ts'

/** Rows of a list as the schema reads them. `name`: what messages call one, with its place in the file. */
export function rowsOf<T>(list: unknown, file: string, name: string, schema: z.ZodType<T>): T[] {
  if (!Array.isArray(list)) throw new Mismatch({ where: file, expected: `a list of ${name}s`, got: typeOf(list) })
  return list.map((row, i) => parseWith(schema, row, `${file}: ${name} ${i}`))
}
