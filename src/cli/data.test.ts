import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { promisify } from 'node:util'

const root = mkdtempSync(join(tmpdir(), 'roundtrip-cli-data-'))
after(() => rmSync(root, { recursive: true, force: true }))

const main = join(root, 'main.mts')
const door = JSON.stringify(new URL('./data.ts', import.meta.url).href)
writeFileSync(main, `import { command } from ${door}\nawait command().parseAsync(process.argv)\n`)

/** The command in a process of its own, as a user runs it. */
async function run(...args: string[]): Promise<{ stdout: string; stderr: string }> {
  const env = { ...process.env, ROUNDTRIP_CACHE: join(root, 'cache') }
  return await promisify(execFile)(process.execPath, ['--import', 'tsx', main, ...args], { env })
}

test('make-scenes, inspect and preview work on each other in both formats', async () => {
  for (const format of ['gar-arrow', 'jsonl']) {
    const out = join(root, format)
    const made = await run('make-scenes', '--n', '12', '--out', out, '--format', format)
    assert.match(made.stdout, /12 scenes/)
    const { stdout } = await run('inspect', out)
    assert.match(stdout, /records: 12\n/)
    assert.match(stdout, /unusable: 0 of 12 looked at \(0\.0 %\)/)
    assert.match(stdout, /words in the caption\n(.*\n)*.*#/)
  }
  const page = join(root, 'page.html')
  await run('preview', join(root, 'gar-arrow'), '--out', page, '--n', '5')
  const html = readFileSync(page, 'utf8')
  assert.equal(html.match(/<figure>/g)?.length, 5)
  assert.equal(html.match(/src="data:image\/png;base64,/g)?.length, 5)
  assert.doesNotMatch(html, /https?:/)
})

test('inspect counts unusable records with their reasons, and preview shows them', async () => {
  const file = join(root, 'bad.jsonl')
  writeFileSync(
    file,
    `${JSON.stringify({ id: '<b>', image: 'gone.png', mask: { size: [16, 24], counts: [10, 20, 354] }, caption: 'c' })}\n`,
  )
  const { stdout } = await run('inspect', file)
  assert.match(
    stdout,
    /unusable: 1 of 1 looked at \(100\.0 %\)\n {2}image-missing: 1, for example .*line 1: image: expected a readable file/,
  )
  const page = join(root, 'bad.html')
  await run('preview', file, '--out', page)
  assert.match(readFileSync(page, 'utf8'), /image-missing: .*&lt;b&gt;/)
})
