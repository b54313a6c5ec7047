import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { stream } from '../../src/core/index.ts'
import { parseSa2VAConfig, Sa2VA } from '../../src/models/index.ts'
import { initRandom } from '../../src/nn/index.ts'
import { candidates } from '../../src/scenes/describe.ts'
import { identifies, looksOf, makeScene, word } from '../../src/scenes/index.ts'
import { expectNoLeak, type Tensor, tidy } from '../../src/tensor/index.ts'
import { parseCaption } from '../../tests/support/parse-caption.ts'
import { drawnPool } from './drawn.ts'
import { pretrainSam } from './encoders.ts'
import { miniatureConfig } from './make.ts'
import { startSegmenter, trainSegmenter } from './segmenter.ts'
import { attributeCodes, bagSize, bagsOf, enriched, fullBags, placeCells, regionAverages, scenePool } from './world.ts'

const cfg = parseSa2VAConfig(miniatureConfig(500))
const pool = scenePool(cfg, 5, 20)

function freshModel(): Sa2VA {
  const model = new Sa2VA(cfg)
  initRandom(model, { seed: 3, dtype: 'float32' })
  return model
}

function release(model: Sa2VA): void {
  for (const t of model.parameters().values()) t.dispose()
}

const bytes = (t: Tensor) => Buffer.from((t.array() as Float32Array).buffer).toString('base64')
const snapshot = (model: Sa2VA) => new Map([...model.parameters()].map(([name, t]) => [name, bytes(t)]))

describe('rows of a batch', () => {
  const batch = pool.batch(0, 12)

  test('a batch is a function of its step', () => {
    const again = scenePool(cfg, 5, 20).batch(0, 12)
    assert.deepEqual(
      again.rows.map((r) => r.description),
      batch.rows.map((r) => r.description),
    )
    assert.notDeepEqual(
      pool.batch(1, 12).rows.map((r) => r.description),
      batch.rows.map((r) => r.description),
    )
  })

  test('descriptions single their object out, enriched ones too, as text too', () => {
    const random = stream(1)
    for (const row of batch.rows) {
      const { objects } = makeScene(5, row.image)
      for (const description of [row.description, enriched(row, 0.7, random)]) {
        assert.ok(identifies(description, objects, row.index))
        const caption = word(description, random)
        assert.deepEqual(candidates(parseCaption(caption)!, objects), [row.index], caption)
      }
    }
  })

  test('bags count the attributes of a description and the demand itself', () => {
    tidy(() => {
      const descriptions = [
        { colour: 'red' },
        { shape: 'star', relation: { kind: 'above', of: { colour: 'red' } } },
      ] as const
      const bags = bagsOf(descriptions, pool.kinds)
      assert.deepEqual(bags.shape, [2, bagSize(pool.kinds)])
      assert.deepEqual(bags.sum(-1).numbers(), [2, 4])
      const full = fullBags(batch.rows, pool.kinds).sum(-1).numbers()
      assert.ok(full.every((n) => n >= 5 && n <= 8))
    })
  })

  test('averages over regions and places sum to one, codes are orthonormal', () => {
    tidy(() => {
      for (const sums of [regionAverages(batch, 8), placeCells(8)].map((t) => t.sum(-1).numbers()))
        assert.ok(sums.every((s) => Math.abs(s - 1) < 1e-5))
      const codes = attributeCodes(64, pool.kinds)
      const products = codes.matmul(codes.transpose(0, 1)).numbers()
      products.forEach((p, i) => {
        assert.ok(Math.abs(p - (i % (codes.size(0) + 1) === 0 ? 1 : 0)) < 1e-6)
      })
    })
  })
})

describe('drawn objects', () => {
  const side = 112
  const owner = new Uint8Array(side * side).map((_, i) => (i % side < 30 && i < 30 * side ? 1 : i % side > 80 ? 2 : 0))
  const data = new Uint8Array(3 * owner.length).map((_, i) => (owner[Math.floor(i / 3)] ? [230, 20, 20][i % 3]! : 240))
  const pictures = Array.from({ length: 8 }, () => ({ image: { width: side, height: side, data }, owner }))
  const { rows, scenes, random } = drawnPool(pictures, cfg, 1).batch(0, 8)

  test('every object is described by what the varied picture shows, and by nothing that fits the other one', () => {
    assert.equal(rows.length, 16)
    for (const row of rows) {
      const { image } = scenes[row.image]!
      assert.deepEqual(row.object, looksOf(image, row.mask))
      const other = rows.find((r) => r.image === row.image && r.index !== row.index)!
      const said = Object.entries(row.description)
      assert.ok(said.some(([name, value]) => other.object[name as 'colour'] !== value))
      assert.ok(said.every(([name, value]) => row.object[name as 'colour'] === value))
    }
    const corners = rows.filter((r) => r.index === 0).map((r) => r.object.position)
    assert.ok(new Set(corners).size > 1 && corners.every((p) => p!.includes(' ')), `${corners}`)
  })

  test('a caption names some of what is true, rarely the place; a phrase to draw may name everything', () => {
    const pool = drawnPool(pictures, cfg, 1)
    const [row] = rows
    const captions = Array.from({ length: 400 }, () => pool.caption(row!, random, {}))
    assert.ok(
      captions.every(
        (c) => Object.keys(c).length > 0 && Object.entries(c).every(([k, v]) => row!.object[k as 'colour'] === v),
      ),
    )
    const share = (kind: 'colour' | 'position') => captions.filter((c) => c[kind]).length / captions.length
    assert.ok(share('colour') > 0.7 && share('position') > 0.1 && share('position') < 0.3)
    assert.ok(enriched(row!, 1, random).position === row!.object.position)
  })
})

describe('stages', () => {
  test('an encoder stage moves the encoder alone, and twice it gives the same bytes', () => {
    const after = [0, 1].map(() => {
      const model = freshModel()
      const start = snapshot(model)
      pretrainSam(model, pool, { steps: 3, images: 2, learningRate: 1e-3 })
      const end = snapshot(model)
      const moved = [...end].filter(([name, value]) => start.get(name) !== value).map(([name]) => name)
      assert.ok(moved.length > 20)
      assert.ok(moved.every((name) => name.startsWith('grounding_encoder.sam2_model.image_encoder.')))
      release(model)
      return end
    })
    assert.deepEqual(after[0], after[1])
  })

  test('the segmenter trains without its encoder, then without its vectors, and leaks nothing', () => {
    const model = freshModel()
    const table = startSegmenter(model, 1, pool.kinds)
    const stage = { steps: 3, images: 2, learningRate: 1e-3, fullSteps: 2, background: 2 }
    const movedBy = (withEncoder: boolean) => {
      const start = snapshot(model)
      const vectors = bytes(table)
      expectNoLeak(() => trainSegmenter(model, table, pool, { ...stage, withEncoder }))
      const moved = [...snapshot(model)].filter(([name, value]) => start.get(name) !== value).map(([name]) => name)
      return { encoder: moved.some((n) => n.includes('.image_encoder.')), vectors: bytes(table) !== vectors }
    }
    assert.deepEqual(movedBy(false), { encoder: false, vectors: true })
    assert.deepEqual(movedBy(true), { encoder: true, vectors: false })
    table.dispose()
    release(model)
  })
})
