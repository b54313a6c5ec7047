import assert from 'node:assert/strict'
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { packageRoot } from '../core/index.ts'
import { openSource } from '../data/index.ts'
import { encodePng } from '../image/index.ts'
import { resolveRun } from '../run/index.ts'
import { proposeWork } from './propose.ts'

const scratch = mkdtempSync(join(tmpdir(), 'propose-'))
after(() => rmSync(scratch, { recursive: true, force: true }))
const images = join(scratch, 'pictures')
const model = join(packageRoot(), 'assets', 'miniature')
const sam = join(packageRoot(), 'assets', 'points-miniature', 'sam2')

/** Proposes, until the message with `last` comes; gives back the messages. */
async function propose(out: string, last?: string): Promise<string[]> {
  const sent: string[] = []
  const send = (message: unknown) => {
    sent.push(String(message))
    if (last && String(message).includes(last)) throw new Error('interrupted')
  }
  const config = resolveRun({ model, dataPath: 'scenes:1', output: out })
  await proposeWork({ config, records: null, images, sam, out }, { send } as never)
  return sent
}

test('masks of an interrupted start are used by the next one, which ends with the same records', async () => {
  mkdirSync(join(images, '9.png'), { recursive: true }) // a folder
  const source = await openSource('scenes:4')
  for (let i = 0; i < 4; i++) writeFileSync(join(images, `${i}.png`), await encodePng((await source.get(i)).image))
  const [whole, cut] = ['whole', 'cut'].map((name) => join(scratch, name)) as [string, string]
  await propose(whole)
  await assert.rejects(propose(cut, 'picture 3 of 5'), /interrupted/)
  const kept = join(cut, 'masks.jsonl')
  const lines = () => readFileSync(kept, 'utf8').trim().split('\n')
  assert.equal(lines().length, 3)
  // what was kept is used: the first picture has lost its masks, the third line was cut off
  const [first, second, third] = lines() as [string, string, string]
  const emptied = JSON.stringify({ ...JSON.parse(first), found: [] })
  writeFileSync(kept, `\n${emptied}\n${second}\n`)
  appendFileSync(kept, third.slice(0, 40))
  const messages = (await propose(cut)).filter((text) => text.startsWith('picture '))
  assert.match(messages[0]!, /^picture 1 of 5: 0 masks/)
  assert.match(messages[4]!, /^picture 5 of 5 is left out: .*9\.png/)
  const records = (out: string) =>
    ['train', 'eval'].flatMap((part) =>
      readFileSync(join(out, `${part}.jsonl`), 'utf8')
        .trim()
        .split('\n'),
    )
  const others = (all: string[]) => all.filter((line) => !line.includes('/0.png')).sort()
  assert.deepEqual(others(records(cut)), others(records(whole)))
  assert.ok(records(whole).some((line) => line.includes('/0.png')))
  assert.equal(existsSync(kept), false)
})
