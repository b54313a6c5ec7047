import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { makeRefCoco } from '../../tests/support/benchmark-folder.ts'
import { benchmarkFlags, openRequest, readRequests } from './benchmark.ts'
import { takeCompare } from './benchmark-compare.ts'
import { openRegions } from './benchmark-model.ts'
import { scoreOne } from './benchmark-regions.ts'
import { readRunSettings } from './settings.ts'
import { evaluationTable } from './table.ts'

const golden = fileURLToPath(new URL('../../tests/fixtures/golden/benchmarks-tiny', import.meta.url))
const scenes = mkdtempSync(join(tmpdir(), 'roundtrip-requests-'))
after(() => rmSync(scenes, { recursive: true, force: true }))
before(() => makeRefCoco(scenes, 4))

function requests(...words: string[]) {
  const { config, flags } = readRunSettings(words, benchmarkFlags)
  return Promise.all(readRequests(config, flags).map(openRequest))
}

const names = (list: readonly { name: string }[]) => list.map((p) => p.name)

test('a benchmark is found under the data root, under ref_seg and in its own folder', async () => {
  for (const data of ['', 'ref_seg', 'ref_seg/refcoco+']) {
    const [open] = await requests('--benchmark', 'refcoco+', '--data', join(golden, data))
    assert.equal(open!.benchmark.folder, join(golden, 'ref_seg/refcoco+'))
    assert.deepEqual(open!.splits, ['val', 'testA', 'testB', 'test'])
  }
})

test('the folder of one benchmark is not taken for another that has files of the same names', async () => {
  const wrong = requests('--benchmark', 'refcoco', '--data', join(golden, 'ref_seg/refcoco+'))
  await assert.rejects(wrong, /a folder of refcoco with instances\.json/)
})

test('protocols: all that fit, those that are named, or the reported one beside --compat', async () => {
  const base = ['--benchmark', 'refcoco', '--data', golden]
  assert.deepEqual(names((await requests(...base))[0]!.protocols), ['union', 'sa2va', 'lisa'])
  assert.deepEqual(names((await requests(...base, '--protocol', 'lisa'))[0]!.protocols), ['lisa'])
  assert.deepEqual(names((await requests(...base, '--compat', 'sa2va'))[0]!.protocols), ['union', 'sa2va'])
  const [forced] = await requests(...base, '--protocol', 'forced')
  assert.deepEqual([forced!.request.answers, names(forced!.protocols)], ['forced', ['union', 'sa2va', 'lisa']])
})

test('--refs chooses another division of the same sentences', async () => {
  const [usual] = await requests('--benchmark', 'refcocog', '--data', golden)
  const [google] = await requests('--benchmark', 'refcocog', '--data', golden, '--refs', 'google', '--split', 'val')
  assert.match(usual!.benchmark.source!, /refs\(umd\)\.p$/)
  assert.match(google!.benchmark.source!, /refs\(google\)\.p$/)
})

test('what is wrong with a request is said before a model is read', async () => {
  const on = (...words: string[]) => requests('--benchmark', 'refcoco', '--data', scenes, ...words)
  await assert.rejects(
    requests('--benchmark', 'refcok', '--data', golden),
    /--benchmark: expected refcoco, .* got refcok/,
  )
  await assert.rejects(async () => requests('--benchmark', 'refcoco'), /--data: expected the folder/)
  await assert.rejects(on('--split', 'testC'), /--split: expected val, testA, testB, test, got testC/)
  await assert.rejects(on('--protocol', 'rela'), /--protocol: expected union, sa2va, lisa, .* got rela/)
  await assert.rejects(requests('--benchmark', 'refcocog', '--data', scenes), /a folder of refcocog/)
})

test('--compare takes two files at any position', () => {
  assert.deepEqual(takeCompare(['--seed', '1', '--compare', 'a.json', 'b.json', '--json']), {
    files: ['a.json', 'b.json'],
    rest: ['--seed', '1', '--json'],
  })
  assert.equal(takeCompare(['--json']), null)
  assert.throws(() => takeCompare(['--compare', 'a.json', '--json']), /--compare: expected two result files/)
})

test('boxes of a file: metrics by split, and a result file with a row an expression', async () => {
  const folder = join(scenes, 'Ref-L4')
  mkdirSync(folder)
  const row = { caption: 'a thing', bbox: [0, 0, 10, 10], file_name: 'a.jpg', height: 40, width: 40 }
  writeFileSync(join(folder, 'ref-l4-val.json'), JSON.stringify([{ id: 'v', ...row }]))
  writeFileSync(join(folder, 'ref-l4-test.json'), JSON.stringify([{ id: 't', ...row }]))
  const boxes = ['v', 't'].map((id, i) => ({ id, pred_bbox: [0, 0, 10, 10 - 8 * i], format: 'xywh' }))
  writeFileSync(join(folder, 'boxes.json'), JSON.stringify(boxes))
  const words = [
    '--benchmark',
    'ref-l4',
    '--data',
    scenes,
    '--predictions',
    join(folder, 'boxes.json'),
    '--out',
    folder,
  ]
  const { config, flags } = readRunSettings(words, benchmarkFlags)
  const [request] = readRequests(config, flags)
  const scores = await scoreOne(request!, await openRegions(request!, null), config, { predictions: 'boxes.json' })
  assert.deepEqual(
    scores.map((s) => [s.split, s.items, s.metrics['Acc@0.5']!.mean]),
    [['val', 1, 1], ['test', 1, 0], ['all', 2, 0.5]], // biome-ignore format: a table
  )
  const [large] = evaluationTable({ all: scores[2]!.metrics }, 2).match(/large mAcc .*/) ?? []
  assert.match(large!, /^large mAcc +-$/, 'no expression has a large box')
  const stored = JSON.parse(readFileSync(join(folder, 'eval-ref-l4-all.json'), 'utf8')) as { rows: { iou: number }[] }
  assert.deepEqual(
    stored.rows.map((r) => Number(r.iou.toFixed(6))),
    [0.2, 1],
  )
})
