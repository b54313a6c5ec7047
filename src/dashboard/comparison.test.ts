import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { encodePng } from '../image/index.ts'
import type { MaskRle, Shown } from '../tracking/index.ts'
import { type ComparisonPage, renderComparison } from './index.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-comparison-'))
after(() => rmSync(folder, { recursive: true, force: true }))

const hostile = '<script>alert(1)</script><img src=x onerror=y>"\''
const mask = { size: [2, 2] as [number, number], counts: '13' }

const shownWith = (drawn: MaskRle | null, text: string): Shown[] => [
  { kind: 'mask', by: 'record', mask },
  { kind: 'mask', by: 'policy', mask: drawn },
  { kind: 'text', by: 'policy', text },
]

function pageWith(image: string | null): ComparisonPage {
  const sentence = {
    ...{ id: hostile, text: hostile, image },
    sides: [
      { iou: 0, shown: shownWith(null, hostile) },
      { iou: 0.75, shown: shownWith(mask, 'Sure.') },
    ],
  }
  return {
    ...{ title: hostile, names: [hostile, 'B'], facts: [hostile], wins: 3, losses: 1, ties: 2, lost: [] },
    metrics: [{ name: hostile, before: 0.5, after: 0.75, change: { mean: 0.25, low: 0.125, high: 0.375 } }],
    gained: [sentence],
  }
}

test('text of files and models is shown, never run: all of it is escaped, and the page may load nothing', async () => {
  const page = await renderComparison(pageWith(null))
  assert.ok(!/<script|<img/.test(page))
  assert.equal(page.split('&lt;script&gt;alert(1)').length - 1 >= 7, true)
  assert.match(page, /default-src &#39;none&#39;; img-src data:/)
})

test('a page shows metrics in percent, the counts, both masks over the image, and says where a mask is missing', async () => {
  const image = join(folder, 'a.png')
  writeFileSync(image, await encodePng({ width: 2, height: 2, data: new Uint8Array(12) }))
  const page = await renderComparison(pageWith(image))
  assert.match(page, /50\.0<\/td>.*75\.0<\/td>.*\+25\.0.*\[\+12\.5, \+37\.5\]/)
  assert.match(page, /the interval is above 0/)
  assert.match(page, /better on 3 sentences, worse on 1, equal on 2/)
  assert.equal(page.match(/data:image\/png;base64/g)?.length, 2)
  assert.equal(page.match(/path class="policy"/g)?.length, 1)
  assert.match(page, /no mask/)
})

test('the page names an image that is missing', async () => {
  assert.match(await renderComparison(pageWith(join(folder, 'gone.png'))), /gone\.png could not be shown/)
})
