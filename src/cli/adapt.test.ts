import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { messageOf } from '../core/index.ts'
import { makeScenes, openSource } from '../data/index.ts'
import { encodePng } from '../image/index.ts'
import { maskToPng } from '../mask/index.ts'
import { command } from './adapt.ts'

const root = join(import.meta.dirname, '../..')
const scratch = mkdtempSync(join(tmpdir(), 'adapt-'))
const pictures = join(scratch, 'pictures')
after(() => rmSync(scratch, { recursive: true, force: true }))

/** Scenes as plain pictures: no masks, no captions; and a file that is not a picture. */
before(async () => {
  mkdirSync(pictures)
  const source = await openSource('scenes:5')
  for (let i = 0; i < 5; i++) writeFileSync(join(pictures, `${i}.png`), await encodePng((await source.get(i)).image))
  await source.close()
  writeFileSync(join(pictures, 'broken.jpg'), 'not a picture')
})

const miniatures = ['--model', 'assets/miniature', '--sam', 'assets/points-miniature/sam2']
const short = ['--maxSteps', '1', '--batchSize', '1', '--rl.numGenerations', '2', '--threads', '1']

const adapt = (...args: string[]) => adaptIn(root, ...args)

function adaptIn(cwd: string, ...args: string[]) {
  const env = { ...process.env, COLUMNS: '200' }
  return spawnSync(process.execPath, [join(root, 'bin/roundtrip.mjs'), 'adapt', ...args], {
    cwd,
    encoding: 'utf8',
    env,
  })
}

interface Line {
  id: string
  image: string
  caption: string
}

const lines = (path: string) =>
  readFileSync(path, 'utf8')
    .trim()
    .split('\n')
    .map((text) => JSON.parse(text) as Line)

test('pictures without annotations become a trained model, and the same command resumes', () => {
  const output = join(scratch, 'run')
  const first = adapt(...miniatures, '--images', pictures, '--output', output, ...short)
  assert.equal(first.status, 0, first.stderr)
  assert.match(first.stderr, /6 pictures, 1 unreadable \(broken\.jpg\)/)
  assert.match(first.stderr, /assumed: .*own captions/)
  assert.match(first.stdout, /cycle\/iou/)
  for (const file of ['report.html', 'model/model.safetensors', 'proposals/train.html', 'checkpoint_step_1'])
    assert.ok(existsSync(join(output, file)), file)
  const [train, held] = ['train', 'eval'].map((part) => lines(join(output, 'proposals', `${part}.jsonl`)))
  assert.ok(train!.length > 0 && held!.length > 0)
  assert.ok([...train!, ...held!].every(({ caption }) => caption !== ''))
  const seen = new Set(train!.map(({ image }) => image))
  assert.ok(
    held!.every(({ image }) => !seen.has(image)),
    'a held-out picture is trained on',
  )

  const copy = join(scratch, 'miniature') // the same files elsewhere are the same model
  cpSync(join(root, 'assets/miniature'), copy, { recursive: true })
  const words = [...miniatures, '--model', copy, '--images', pictures, '--output', output, ...short, '--maxSteps', '2']
  const again = adapt(...words)
  assert.equal(again.status, 0, again.stderr)
  assert.doesNotMatch(again.stderr, /proposing masks/)
  assert.ok(existsSync(join(output, 'checkpoint_step_2')))
  assert.match(readFileSync(join(output, 'model/README.md'), 'utf8'), /GRPO in 2 steps/)

  const fewer = join(scratch, 'fewer')
  cpSync(pictures, fewer, { recursive: true })
  rmSync(join(fewer, '0.png'))
  assert.match(adapt(...miniatures, '--images', fewer, '--output', output, ...short).stderr, /those of other inputs/)

  writeFileSync(join(output, 'model/config.json'), '{}')
  assert.match(adapt(...words).stderr, /^error: .*model: expected a folder without a model, got config\.json/m)
})

test('a signal while masks are proposed, or while a model is exported, is answered with what is kept', async () => {
  const interrupted = async (sign: string, ...words: string[]) => {
    const child = spawn(process.execPath, [join(root, 'bin/roundtrip.mjs'), ...words], { cwd: root })
    let printed = ''
    child.stderr.on('data', (piece: Buffer) => {
      if (!printed.includes(sign) && `${printed}${piece}`.includes(sign)) child.kill('SIGINT')
      printed += piece
    })
    const [, signal] = await once(child, 'close')
    return [signal, printed.trim().split('\n').at(-1)]
  }
  const proposed = ['adapt', ...miniatures, '--images', pictures, '--output', join(scratch, 'cut'), ...short]
  assert.deepEqual(await interrupted('picture 1 of 6', ...proposed), [
    'SIGINT',
    'SIGINT: proposed masks are kept; the same command continues',
  ])
  assert.ok(existsSync(join(scratch, 'cut/proposals/masks.jsonl')))
  const out = join(scratch, 'cut-model')
  const from = ['--checkpoint', join(scratch, 'run'), '--out', out]
  assert.deepEqual(await interrupted('merged', 'export', '--model', 'assets/miniature', ...from), [
    'SIGINT',
    'SIGINT: no model was written; the same command continues',
  ])
  assert.ok(!existsSync(out))
})

test('records with masks are trained on with captions of the model and measured with their own', async () => {
  const output = join(scratch, 'masks')
  const given = ['--dataPath', 'scenes:6', '--data.evalFraction', '0.4', '--output', output]
  const done = adapt('--model', 'assets/miniature', ...given, ...short)
  assert.equal(done.status, 0, done.stderr)
  assert.match(done.stderr, /held-out records keep theirs/)
  const source = await openSource('scenes:6')
  const said = new Map<string, string>()
  for (let i = 0; i < 6; i++) said.set(source.id(i), (await source.get(i)).caption)
  await source.close()
  const [train, held] = ['train', 'eval'].map((part) => lines(join(output, 'proposals', `${part}.jsonl`)))
  const differs = ({ id, caption }: Line) => said.get(id) !== caption
  assert.deepEqual([train!.length + held!.length, held!.some(differs)], [6, false])
  assert.ok(train!.some(differs), 'trains on the captions of the records')
})

test('masks without captions are used, and a record whose image is broken is left out', async () => {
  const [folder, output] = [join(scratch, 'drawn'), join(scratch, 'uncaptioned')]
  for (const part of ['images', 'masks']) mkdirSync(join(folder, part), { recursive: true })
  const source = await openSource('scenes:6')
  for (let i = 0; i < 6; i++) {
    const { image, mask } = await source.get(i)
    writeFileSync(join(folder, 'images', `${i}.png`), i === 2 ? 'not a picture' : await encodePng(image))
    writeFileSync(join(folder, 'masks', `${i}.png`), await maskToPng(mask))
  }
  await source.close()
  const given = ['--dataPath', folder, '--output', output]
  const done = adapt('--model', 'assets/miniature', ...given, ...short)
  assert.equal(done.status, 0, done.stderr)
  assert.match(done.stderr, /left out: .*2\.png: object \d+: image: expected a complete JPEG/)
  assert.match(done.stderr, /6 pictures, 1 unreadable \(2\)\n.*\n.*\nassumed: the model's own captions/)
  const [train, held] = ['train', 'eval'].map((part) => lines(join(output, 'proposals', `${part}.jsonl`)))
  assert.deepEqual([train!.length, held!.length], [4, 1])
  assert.ok([...train!, ...held!].every(({ id, caption }) => id !== '2' && caption !== ''))

  const strict = [...given, '--data.onBadRecord', 'stop', '--output', join(scratch, 'strict')]
  assert.match(adapt('--model', 'assets/miniature', ...strict, ...short).stderr, /^error: .*2\.png: object/m)
})

test('JSONL lines without captions are used as masks, also by the same command from another folder', async () => {
  const [folder, output] = [join(scratch, 'lines'), join(scratch, 'from-lines')]
  await makeScenes({ n: 6, out: folder, format: 'jsonl', seed: 0, size: 112 })
  const path = join(folder, 'scenes.jsonl')
  const records = lines(path).map((line, i) => ({ ...line, caption: i < 2 ? line.caption : undefined }))
  writeFileSync(path, records.map((record) => JSON.stringify(record)).join('\n'))
  const given = ['--dataPath', path, '--data.evalFraction', '0.5', '--output', output]
  const done = adapt('--model', 'assets/miniature', ...given, ...short)
  assert.equal(done.status, 0, done.stderr)
  assert.doesNotMatch(done.stderr, /left out|unreadable/)
  const [train, held] = ['train', 'eval'].map((part) => lines(join(output, 'proposals', `${part}.jsonl`)))
  assert.deepEqual([train!.length, held!.length], [3, 3])
  for (const { id, caption } of held!) {
    const said = records.find((record) => record.id === id)!.caption
    assert.ok(said === undefined ? caption !== '' : caption === said, id)
  }

  const near = ['--dataPath', 'scenes.jsonl', '--data.evalFraction', '0.5', '--output', '../from-lines'] // from its folder
  const again = adaptIn(folder, '--model', join(root, 'assets/miniature'), ...near, ...short)
  assert.equal(again.status, 0, again.stderr)
  assert.match(again.stderr, /shown on \.\.\/from-lines\/proposals\/train\.html/)
})

test('folders that cannot be used are named before anything is written', async () => {
  const output = join(scratch, 'none')
  const message = (...args: string[]): Promise<string> => {
    const words = [...miniatures, '--output', output, ...short, ...args]
    const done = command().parseAsync(['node', 'roundtrip', ...words])
    return done.then(() => assert.fail('no error'), messageOf)
  }
  const empty = join(scratch, 'empty')
  mkdirSync(empty)
  assert.match(await message('--images', empty), /expected a folder of PNG, JPEG or WebP pictures, got none/)
  writeFileSync(join(empty, 'broken.jpg'), 'not a picture')
  assert.match(await message('--images', empty), /got no readable picture.*broken\.jpg/s)
  assert.match(await message('--images', join(scratch, 'missing')), /not a folder/)
  const both = ['--images', empty, '--data', 'scenes:4']
  assert.match(await message(...both), /--dataPath: expected nothing next to --images, got scenes:4/)
  assert.match(await message(), /--dataPath: expected pictures \(--images\), or records with masks, got nothing/)
  assert.ok(!existsSync(output))
})
