import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import fc from 'fast-check'
import { testFolder } from '../../tests/support/data.ts'
import { jsonSpans } from './json-spans.ts'

const folder = testFolder()
const path = join(folder, 'value.json')

async function elements(text: string, member: string | null): Promise<[string | null, unknown][]> {
  writeFileSync(path, text)
  const bytes = readFileSync(path)
  const out: [string | null, unknown][] = []
  for await (const { key, offset, length } of jsonSpans(path, member)) {
    out.push([key, JSON.parse(bytes.toString('utf8', offset, offset + length))])
  }
  return out
}

test('the spans of any JSON list or object are its elements, however it is indented', async () => {
  const container = fc.oneof(fc.array(fc.jsonValue()), fc.dictionary(fc.string(), fc.jsonValue()))
  await fc.assert(
    fc.asyncProperty(container, fc.constantFrom(0, 2), async (value, indent) => {
      const text = JSON.stringify(value, null, indent)
      const parsed = JSON.parse(text) as object
      const expected = Array.isArray(parsed) ? parsed.map((v) => [null, v]) : Object.entries(parsed)
      assert.deepEqual(await elements(text, null), expected)
    }),
    { numRuns: 200 },
  )
})

test('one member of an object gives its elements, not those of a deeper member of the same name', async () => {
  const value = { info: { list: [9] }, list: [{ list: [1] }, 'two', 3, [], null], other: { list: { a: 1 } } }
  const found = await elements(JSON.stringify(value), 'list')
  assert.deepEqual(
    found.map(([, v]) => v),
    value.list,
  )
})

test('a file cut anywhere is refused', async () => {
  const text = JSON.stringify([{ a: 'x]"' }, [1, 2]])
  for (let cut = 1; cut < text.length; cut++) {
    await assert.rejects(elements(text.slice(0, cut), null), /value\.json: byte \d+: expected|JSON/)
  }
})
