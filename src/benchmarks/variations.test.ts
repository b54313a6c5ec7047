// Data of the published layouts as others may have them: other names, other sizes, remarks, damage.
import assert from 'node:assert/strict'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { type JsonObject, Mismatch } from '../core/index.ts'
import { openBenchmark } from './index.ts'

const golden = fileURLToPath(new URL('../../tests/fixtures/golden/benchmarks-tiny', import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), 'roundtrip-variations-'))
after(() => rmSync(scratch, { recursive: true }))

const readJson = (path: string) => JSON.parse(readFileSync(join(golden, path), 'utf8')) as unknown

/** A ReasonSeg folder of one picture, named and annotated as given. */
function reasonSeg(folder: string, stem: string, annotation: string | Buffer | object): string {
  const dir = join(scratch, folder)
  mkdirSync(join(dir, 'val'), { recursive: true })
  cpSync(join(golden, 'reason_seg/ReasonSeg/val/6336535_0_o.jpg'), join(dir, 'val', `${stem}.jpg`))
  const isText = typeof annotation === 'string' || Buffer.isBuffer(annotation)
  writeFileSync(join(dir, 'val', `${stem}.json`), isText ? annotation : JSON.stringify(annotation))
  return dir
}

const annotation = readJson('reason_seg/ReasonSeg/val/6336535_0_o.json') as { shapes: JsonObject[]; text: string[] }

async function area(dir: string): Promise<number> {
  const [record] = openBenchmark(dir, 'reasonseg').records
  const { parts } = await record!.target()
  return parts.reduce((sum, v) => sum + v, 0)
}

test('ReasonSeg: a flag is a remark, with points, without, or with anything', async () => {
  const plain = await area(reasonSeg('plain', 'a', annotation))
  for (const [i, points] of [[], null, 'x', [[1, 2]]].entries()) {
    const shapes = [...annotation.shapes, { label: 'Flag', points }]
    assert.equal(await area(reasonSeg(`flag-${i}`, 'a', { ...annotation, shapes })), plain, JSON.stringify(points))
  }
})

test('ReasonSeg: names and questions in any script, and a mark of the byte order, change nothing', async () => {
  const text = ['где 猫 сидит?']
  const dir = reasonSeg('unicode', 'кот_猫 1', `\ufeff${JSON.stringify({ ...annotation, text })}`)
  const [record] = openBenchmark(dir, 'reasonseg').records
  assert.equal(record!.id, 'кот_猫 1')
  assert.equal(record!.sentences[0], text[0])
  assert.equal(await area(dir), await area(reasonSeg('plain', 'a', annotation)))
})

test('ReasonSeg: a file in cp1252 keeps its quotes and dashes', () => {
  const latin1 = JSON.stringify({ ...annotation, text: ['the dog\u0092s toy \u0096 \u0093here\u0094'] })
  const [record] = openBenchmark(reasonSeg('cp1252', 'a', Buffer.from(latin1, 'latin1')), 'reasonseg').records
  assert.equal(record!.sentences[0], 'the dog’s toy – “here”')
})

test('ReasonSeg: no shape at all is an empty target; a damaged file is named', async () => {
  assert.equal(await area(reasonSeg('empty', 'a', { ...annotation, shapes: [] })), 0)
  for (const [i, text] of ['', '{', 'null', '[]', '{"text": [], "shapes": []}'].entries()) {
    const dir = reasonSeg(`damaged-${i}`, 'b', text)
    assert.throws(() => openBenchmark(dir, 'reasonseg'), named('b.json'), text)
  }
})

const named = (word: string) => (error: unknown) => error instanceof Mismatch && error.message.includes(word)

const instances = readJson('ref_seg/grefcoco/instances.json') as Record<'images' | 'annotations', JsonObject[]>
const refs = readJson('ref_seg/grefcoco/grefs(unc).json') as JsonObject[]

function grefCoco(folder: string, change: (of: typeof instances) => void, own = refs): string {
  const dir = join(scratch, folder, 'grefcoco')
  mkdirSync(dir, { recursive: true })
  const copy = structuredClone(instances)
  change(copy)
  writeFileSync(join(dir, 'instances.json'), JSON.stringify(copy))
  writeFileSync(join(dir, 'grefs(unc).json'), JSON.stringify(own))
  return join(scratch, folder)
}

async function drawAll(dir: string): Promise<void> {
  for (const record of openBenchmark(dir, 'grefcoco').records) await record.target()
}

test('instances.json: a row that is not an object is named', () => {
  for (const list of ['images', 'annotations'] as const)
    for (const row of [null, 'x', 7]) {
      const dir = grefCoco('rows', (of) => of[list].splice(1, 0, row as never))
      assert.throws(() => openBenchmark(dir, 'grefcoco'), named(`${list}[1]`), `${list} ${row}`)
    }
})

test('instances.json: any value at any place of an image or an annotation is read or refused with a clear message', async () => {
  const imageId = refs[0]!.image_id
  const at = instances.images.findIndex((image) => image.id === imageId)
  const wrong = [null, 'x', -1, 1.5, [], {}, 1e9, 1e300, ['a'], [null], [[1, 2]], [[0, 0, 1e300, 0, 5, 5]]]
  const annIds = [refs.find((ref) => ![ref.ann_id].flat().includes(-1))!.ann_id].flat()
  const ann = instances.annotations.findIndex((a) => annIds.includes(a.id))
  const places = [
    ...Object.keys(instances.images[at]!).map((key) => ['images', at, key] as const),
    ...Object.keys(instances.annotations[ann]!).map((key) => ['annotations', ann, key] as const),
  ]
  for (const [list, index, key] of places)
    for (const value of wrong) {
      const dir = grefCoco('wrong', (of) => {
        of[list][index]![key] = value
      })
      await drawAll(dir).catch((error) =>
        assert.ok(error instanceof Mismatch, `${list}.${key} = ${JSON.stringify(value)}: ${error}`),
      )
    }
})
