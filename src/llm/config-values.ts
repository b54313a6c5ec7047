// Values of config.json that are not sizes: a wrong type is an error here, not a model that computes something else.
import { type JsonObject, Mismatch } from '../core/index.ts'

export interface Site {
  where: string
  /** Prefix of a key in errors: where the keys are in config.json. */
  part: string
}

export function switchAt(raw: JsonObject, key: string, usual: boolean, { where, part }: Site): boolean {
  const value = raw[key] ?? usual
  if (typeof value === 'boolean') return value
  throw new Mismatch({ where, field: `${part}${key}`, expected: 'true or false', got: value })
}

export function oneOf<T extends string>(raw: JsonObject, key: string, among: readonly T[], usual: T, site: Site): T {
  const value = raw[key] ?? usual
  if (among.includes(value as T)) return value as T
  throw new Mismatch({ where: site.where, field: `${site.part}${key}`, expected: among.join(' or '), got: value })
}

/** Above 0. */
export function positiveNumber(raw: JsonObject, key: string, usual: number, { where, part }: Site): number {
  const value = raw[key] ?? usual
  if (typeof value === 'number' && Number.isFinite(value) && value > 0) return value
  throw new Mismatch({ where, field: `${part}${key}`, expected: 'a number above 0', got: value })
}
