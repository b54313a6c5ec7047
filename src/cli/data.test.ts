import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, type TestContext, test } from 'node:test'
import { command } from './data.ts'

const root = mkdtempSync(join(tmpdir(), 'roundtrip-cli-data-'))
after(() => rmSync(root, { recursive: true, force: true }))

process.env.ROUNDTRIP_CACHE = join(root, 'cache')

/** Runs the command and gives back what it printed; the test runner's own messages are bytes and pass. */
async function run(t: TestContext, ...args: string[]): Promise<string> {
  const write = process.stdout.write.bind(process.stdout)
  let printed = ''
  const { mock } = t.mock.method(process.stdout, 'write', (chunk: string | Uint8Array) => {
    if (typeof chunk !== 'string') return write(chunk)
    printed += chunk
    return true
  })
  try {
    await command().parseAsync(['node', 'data', ...args])
  } finally {
    mock.restore()
  }
  return printed
}

test('make-scenes, inspect and preview work on each other in both formats', async (t) => {
  for (const format of ['gar-arrow', 'jsonl']) {
    const out = join(root, format)
    const made = await run(t, 'make-scenes', '--n', '12', '--out', out, '--format', format)
    assert.match(made, /12 scenes/)
    const text = await run(t, 'inspect', out)
    assert.match(text, /records: 12\n/)
    assert.match(text, /unusable: 0 of 12 checked \(0\.0 %\)/)
    assert.match(text, /words in the caption\n(.*\n)*.*#/)
  }
  const page = join(root, 'page.html')
  await run(t, 'preview', join(root, 'gar-arrow'), '--out', page, '--n', '5')
  const html = readFileSync(page, 'utf8')
  assert.equal(html.match(/<article /g)?.length, 5)
  assert.equal(html.match(/src="data:image\/png;base64,/g)?.length, 5)
  assert.doesNotMatch(html, /https?:/)
})

test('inspect counts unusable records with their reasons, and preview shows them', async (t) => {
  const file = join(root, 'bad.jsonl')
  writeFileSync(
    file,
    `${JSON.stringify({ id: '<b>', image: 'gone.png', mask: { size: [16, 24], counts: [10, 20, 354] }, caption: 'c' })}\n`,
  )
  const text = await run(t, 'inspect', file)
  assert.match(
    text,
    /unusable: 1 of 1 checked \(100\.0 %\)\n {2}image-missing: 1, for example .*line 1: image: expected a readable file/,
  )
  const page = join(root, 'bad.html')
  await run(t, 'preview', file, '--out', page)
  assert.match(readFileSync(page, 'utf8'), /image-missing: .*&lt;b&gt;/)
})

test('a RefCOCO folder without images is refused with the flag of this command', async (t) => {
  const folder = join(root, 'data', 'ref_seg', 'refcoco')
  mkdirSync(folder, { recursive: true })
  const sentences = [{ sent_id: 1, raw: 'left box', sent: 'left box' }]
  writeFileSync(
    join(folder, 'refs(unc).json'),
    JSON.stringify([{ ref_id: 1, ann_id: 1, image_id: 1, split: 'train', sentences }]),
  )
  const images = [{ id: 1, file_name: 'one.jpg', height: 16, width: 24 }]
  const annotations = [{ id: 1, image_id: 1, category_id: 1, segmentation: [[2, 2, 7, 2, 7, 6, 2, 6]], iscrowd: 0 }]
  writeFileSync(join(folder, 'instances.json'), JSON.stringify({ images, annotations }))
  await assert.rejects(run(t, 'inspect', folder), (error: Error) => {
    assert.match(
      error.message,
      /images: expected a folder with one\.jpg, got none: .*\. set --image-root to the folder/,
    )
    assert.ok(error.message.length < 300 + folder.length, error.message)
    return true
  })
})
