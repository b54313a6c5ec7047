import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { readJson, readJsonLines, readJsonObject, tryJson, tryJsonObject } from './json.ts'
import { readBody } from './reply-body.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-json-'))
after(() => rmSync(folder, { recursive: true, force: true }))

test('JSON of a file or a server is read if a byte order mark is before it', async () => {
  const path = join(folder, 'marked.json')
  writeFileSync(path, '\ufeff{"a": "\ufeff1"}\n')
  assert.deepEqual(readJson(path), { a: '\ufeff1' })
  assert.deepEqual(readJsonObject(path), { a: '\ufeff1' })
  writeFileSync(path, '\ufeff{"a": 1}\n{"a": 2}\n')
  assert.deepEqual(
    readJsonLines(path).map(({ value }) => value),
    [{ a: 1 }, { a: 2 }],
  )
  const server = createServer((_, reply) => void reply.end('\ufeff{"a": 1}'))
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready))
  const reply = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  assert.deepEqual(await readBody(reply, 1000), { text: '{"a": 1}', whole: true })
  server.close()
})

test('JSON nested so deep that walking it overflows the stack is not read', () => {
  const nested = (n: number) => `${'['.repeat(n)}${']'.repeat(n)}`
  const path = join(folder, 'deep.json')
  for (const n of [1001, 100_000]) {
    writeFileSync(path, nested(n))
    assert.throws(() => readJson(path), /deep\.json: expected a file of JSON, got more than 1000 levels/)
    assert.equal(tryJson(nested(n)), undefined)
    assert.equal(tryJsonObject(`{"a": ${'{"b": '.repeat(n)}1${'}'.repeat(n)}}`), undefined)
  }
  assert.equal(JSON.stringify(tryJson(nested(1000))), nested(1000))
  const flat = ['['.repeat(2000), '"'.repeat(3), '\\', '{'.repeat(2000), ...Array<unknown>(2000).fill([{}])]
  assert.deepEqual(tryJson(JSON.stringify(flat)), flat)
})
