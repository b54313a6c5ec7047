import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { SchemaElement } from 'hyparquet'
import { schemaLines } from './schema-text.ts'

const root = (num_children: number): SchemaElement => ({ name: 'root', num_children })

test('leaves have the names of their values, whichever way the writer states them', () => {
  const leaves: SchemaElement[] = [
    { name: 'a', type: 'BYTE_ARRAY', converted_type: 'UTF8' },
    { name: 'b', type: 'BYTE_ARRAY', logical_type: { type: 'STRING' } },
    { name: 'c', type: 'INT32', logical_type: { type: 'INTEGER', bitWidth: 8, isSigned: false } },
    { name: 'd', type: 'INT64' },
    { name: 'e', type: 'BOOLEAN' },
    { name: 'f', type: 'INT32', logical_type: { type: 'DATE' } },
  ]
  const expected = ['a: string', 'b: string', 'c: uint8', 'd: int64', 'e: bool', 'f: date']
  assert.deepEqual(schemaLines([root(6), ...leaves]), expected)
})

test('lists of three levels, of two, and without a mark; columns after them are not taken for their items', () => {
  const list = (name: string): SchemaElement => ({ name, num_children: 1, converted_type: 'LIST' })
  const repeated = { repetition_type: 'REPEATED' } as const
  const schema: SchemaElement[] = [
    root(4),
    list('three'),
    { name: 'list', num_children: 1, ...repeated },
    { name: 'element', type: 'DOUBLE' },
    list('two'),
    { name: 'array', num_children: 2, ...repeated },
    { name: 'x', type: 'FLOAT' },
    { name: 'y', type: 'FLOAT' },
    { name: 'bare', type: 'INT32', ...repeated },
    { name: 'last', type: 'BYTE_ARRAY' },
  ]
  const expected = ['three: list<double>', 'two: list<{x: float, y: float}>', 'bare: list<int32>', 'last: binary']
  assert.deepEqual(schemaLines(schema), expected)
})
