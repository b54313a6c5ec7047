import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openSource } from '../data/index.ts'
import { decodeImage } from '../image/index.ts'
import { maskFromDense } from '../mask/index.ts'
import { previewPage } from './preview.ts'

const side = 60
const inside = Uint8Array.from({ length: side * side }, (_, i) =>
  i % side >= 20 && i % side < 50 && i >= 900 && i < 2700 ? 1 : 0,
)
const image = { width: side, height: side, data: new Uint8Array(side * side * 3).fill(100) }

async function pageOf(caption: string): Promise<string> {
  const example = { id: 'x', image, mask: maskFromDense(inside, side, side), caption, meta: {} }
  const source = await openSource('scenes:1')
  return previewPage({ ...source, get: async () => example }, [0]).finally(() => source.close())
}

test('preview draws the outline: pixels deep inside and outside keep their colour', async () => {
  const png = Buffer.from(/base64,([^"]+)/.exec(await pageOf(''))![1]!, 'base64')
  const { data } = await decodeImage(png)
  const at = (x: number, y: number) => [...data.subarray((y * side + x) * 3, (y * side + x) * 3 + 3)]
  assert.deepEqual(at(35, 30), [100, 100, 100])
  assert.deepEqual(at(5, 5), [100, 100, 100])
  assert.notDeepEqual(at(20, 30), [100, 100, 100])
  assert.notDeepEqual(at(35, 15), [100, 100, 100])
})

test('the preview page forbids everything but its own pictures and style', async () => {
  const page = await pageOf('a cup')
  const policy =
    /<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;; img-src data:; style-src/
  assert.match(page, policy)
  assert.ok(page.search(policy) < page.indexOf('<style>') && !/<script|<link|src="http/.test(page))
})

test('a caption is text on the preview page: no markup, no direction marks, no control characters', async () => {
  const page = await pageOf('<b onload="x">\u202ereversed\u0007')
  assert.ok(page.includes('&lt;b onload=&quot;x&quot;&gt;\ufffdreversed\ufffd'))
})
