import type { SchemaElement } from 'hyparquet'

interface Node {
  element: SchemaElement
  children: readonly Node[]
}

/** One line per column, with what it holds: `image: {bytes: binary, path: string}`, `size: list<int64>`. */
export function schemaLines(schema: readonly SchemaElement[]): string[] {
  let next = 0
  const read = (): Node => {
    const element = schema[next++]!
    return { element, children: Array.from({ length: element.num_children ?? 0 }, read) }
  }
  return read().children.map(fieldText)
}

function fieldText(node: Node): string {
  return `${node.element.name}: ${typeText(node)}`
}

function typeText(node: Node): string {
  const text = node.children.length === 0 ? leafText(node.element) : groupText(node)
  return node.element.repetition_type === 'REPEATED' ? `list<${text}>` : text
}

function groupText({ element, children }: Node): string {
  const [items] = children
  if ((element.logical_type?.type ?? element.converted_type) !== 'LIST' || !items)
    return `{${children.map(fieldText).join(', ')}}`
  const isWrapped = items.children.length === 1 // a repeated group around the item; older writers repeat the item itself
  return isWrapped ? `list<${typeText(items.children[0]!)}>` : typeText(items)
}

const stored: Readonly<Record<string, string>> = {
  BYTE_ARRAY: 'binary',
  FIXED_LEN_BYTE_ARRAY: 'binary',
  BOOLEAN: 'bool',
}

function leafText({ type, logical_type, converted_type }: SchemaElement): string {
  if (logical_type?.type === 'STRING' || converted_type === 'UTF8') return 'string'
  if (logical_type?.type === 'INTEGER') return `${logical_type.isSigned ? 'int' : 'uint'}${logical_type.bitWidth}`
  const name = logical_type?.type ?? converted_type
  return name?.toLowerCase() ?? stored[type ?? ''] ?? type?.toLowerCase() ?? 'unknown'
}
