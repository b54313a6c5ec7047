import { refuseAt, tryJson } from '../core/index.ts'

/** The part of JSON Schema that zod writes for a setting. */
export interface ValueSchema {
  type?: string | readonly string[]
  enum?: readonly unknown[]
  const?: unknown
  anyOf?: readonly ValueSchema[]
  oneOf?: readonly ValueSchema[]
  items?: ValueSchema
  properties?: Readonly<Record<string, ValueSchema>>
  minimum?: number
  maximum?: number
  exclusiveMinimum?: number
  exclusiveMaximum?: number
  description?: string
  default?: unknown
}

/** A schema as its alternatives, each with one type. */
function choices(schema: ValueSchema): readonly (ValueSchema & { type?: string })[] {
  const { type } = schema
  const parts = schema.anyOf ?? schema.oneOf
  if (parts) return parts.flatMap(choices)
  if (typeof type === 'object') return type.map((one) => ({ ...schema, type: one }))
  return [schema as ValueSchema & { type?: string }]
}

/** Describes the values that are accepted. */
export function describeType(schema: ValueSchema): string {
  const words = choices(schema).map((s) => {
    if (s.const !== undefined) return JSON.stringify(s.const).replaceAll('"', '')
    if (s.enum) return s.enum.join(', ')
    if (s.type === 'array')
      return s.items?.type === 'object' || s.items?.oneOf ? 'list' : `list of: ${describeType(s.items ?? {})}`
    if (s.type === 'integer' || s.type === 'number') return describeRange(s)
    return { boolean: 'true or false', string: 'text', null: 'null' }[s.type ?? ''] ?? 'object'
  })
  return [...new Set(words)].join(', ')
}

function describeRange(s: ValueSchema): string {
  const limit = 2 ** 53 - 1
  const parts = [s.type === 'integer' ? 'whole number' : 'number']
  if (s.minimum !== undefined && s.minimum > -limit) parts.push(`from ${s.minimum}`)
  if (s.exclusiveMinimum !== undefined) parts.push(`above ${s.exclusiveMinimum}`)
  if (s.maximum !== undefined && s.maximum < limit) parts.push(`to ${s.maximum}`)
  if (s.exclusiveMaximum !== undefined) parts.push(`below ${s.exclusiveMaximum}`)
  return parts.join(' ')
}

/** Text of a flag as the setting's type has it. Ranges are left to the schema itself. */
export function parseValue(text: string, schema: ValueSchema, flag: string): unknown {
  const found = parseInside(text, schema)
  if (found !== undefined) return found
  return refuseAt('flags')(flag, describeType(schema), text === '' ? 'nothing' : text)
}

/** Any word is a text: texts come last, so that null and numbers are found first. */
function parseInside(text: string, schema: ValueSchema): unknown {
  const isText = (s: ValueSchema) => s.type === 'string' && s.enum === undefined && s.const === undefined
  const order = [...choices(schema)].sort((a, b) => Number(isText(a)) - Number(isText(b)))
  for (const choice of order) {
    const found = parseAs(text, choice)
    if (found !== undefined) return found
  }
  return undefined
}

/** Undefined when the text is not a value of this type. */
function parseAs(text: string, schema: ValueSchema & { type?: string }): unknown {
  if (schema.const !== undefined) return text === String(schema.const) ? schema.const : undefined
  if (schema.enum) return schema.enum.find((value) => String(value) === text)
  switch (schema.type) {
    case 'null':
      return text === 'null' || text === 'none' ? null : undefined
    case 'boolean':
      return { true: true, false: false, 1: true, 0: false, yes: true, no: false }[text.toLowerCase()]
    case 'integer':
    case 'number':
      return text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : undefined
    case 'array':
      return parseList(text, schema.items ?? {})
    case 'object':
      return parseJson(text)
    default:
      return text
  }
}

/** a,b,c or JSON. */
function parseList(text: string, items: ValueSchema): unknown[] | undefined {
  if (text.startsWith('[')) {
    const list = parseJson(text)
    return Array.isArray(list) ? list : undefined
  }
  const parts = text.split(',').map((part) => parseInside(part.trim(), items))
  return parts.includes(undefined) ? undefined : parts
}

function parseJson(text: string): unknown {
  const value = tryJson(text)
  return typeof value === 'object' && value !== null ? value : undefined
}
