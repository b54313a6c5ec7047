import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { linesOf } from './lines.ts'

async function read(...pieces: string[]): Promise<string[]> {
  const out: string[] = []
  for await (const line of linesOf(Readable.from(pieces))) out.push(line)
  return out
}

test('lines end at line feeds, wherever the pieces were cut; the last needs none', async () => {
  assert.deepEqual(await read('a\nb', 'c\n', '\nd'), ['a', 'bc', '', 'd'])
  assert.deepEqual(await read('a\n'), ['a'])
  assert.deepEqual(await read(), [])
})

test('a separator that JSON allows inside a text ends no line', async () => {
  assert.deepEqual(await read('{"a":"x\u2028y"}\n{"b":"\u2029"}'), ['{"a":"x\u2028y"}', '{"b":"\u2029"}'])
})
