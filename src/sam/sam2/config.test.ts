import assert from 'node:assert/strict'
import { test } from 'node:test'
import { disposeModel, tinyBlock } from '../../../tests/support/sam2.ts'
import { Mismatch } from '../../core/index.ts'
import { count, type Module } from '../../nn/index.ts'
import { sam2Config } from './config.ts'
import { blockShapes } from './hiera.ts'
import { Sam2Model } from './model.ts'

function elements(module: Module): number {
  return count(module.parameters().values()).elements
}

test('without a block the model has the element counts of SAM2 with Hiera-L', () => {
  const model = new Sam2Model()
  assert.equal(elements(model.image_encoder.trunk), 212_149_296)
  assert.equal(elements(model.image_encoder.neck), 553_984)
  assert.equal(elements(model.sam_mask_decoder), 4_215_109)
  assert.equal(elements(model.sam_prompt_encoder), 6_476)
  assert.equal(elements(model), 212_149_296 + 553_984 + 4_215_109 + 6_476 + 256)
  disposeModel(model)
})

test('the miniature with small heads has its known element counts', () => {
  const model = new Sam2Model(
    sam2Config({
      image_size: 128,
      embed_dim: 16,
      num_heads: 1,
      stages: [1, 2, 3, 1],
      window_spec: [8, 4, 4, 2],
      global_att_blocks: [4],
      bkg_pos_size: [7, 7],
      d_model: 32,
      fpn_top_down_levels: [2, 3],
      decoder_depth: 2,
      decoder_heads: 4,
      decoder_mlp_dim: 64,
      num_multimask_outputs: 3,
      iou_head_hidden_dim: 32,
      mask_in_chans: 16,
      video: false,
    }),
  )
  assert.equal(elements(model.image_encoder.trunk), 359_584)
  assert.equal(elements(model.image_encoder.neck), 7_808)
  assert.equal(elements(model.sam_mask_decoder), 43_181)
  assert.equal(elements(model.sam_prompt_encoder), 1_100)
  assert.equal(elements(model), 411_705)
  disposeModel(model)
})

test('the first block of a stage keeps the window of the stage before it; global blocks have none', () => {
  const shapes = blockShapes(sam2Config())
  assert.equal(shapes.length, 48)
  assert.deepEqual(
    shapes.flatMap((s, i) => (s.pooled ? [[i, s.window, s.din, s.dout]] : [])),
    [
      [2, 8, 144, 288],
      [8, 4, 288, 576],
      [44, 16, 576, 1152],
    ],
  )
  assert.deepEqual(
    shapes.flatMap((s, i) => (s.window === 0 ? [i] : [])),
    [23, 33, 43],
  )
  assert.ok(shapes.every((s) => s.dout / s.heads === 72))
})

const refused: [string, Record<string, unknown>, RegExp][] = [
  ['an unknown key', { embed_dims: 16 }, /embed_dims: expected one of .*embed_dim.*, got an unknown key/],
  ['a size that is not a whole number', { d_model: '32' }, /d_model: .* got 32/],
  ['three stages', { stages: [1, 2, 3] }, /stages/],
  ['an image that cannot be halved often enough', { image_size: 100 }, /image_size: expected a multiple of 32/],
  ['a first window that does not divide the map', { window_spec: [6, 4, 4, 2] }, /window_spec\.0/],
  ['an odd window before a pooling block', { window_spec: [8, 4, 5, 2] }, /window_spec\.2: expected an even window/],
  ['a global block that is not there', { global_att_blocks: [7] }, /global_att_blocks: expected below the 7 blocks/],
  ['heads that do not divide the width', { decoder_heads: 5 }, /decoder_heads: expected a divisor/],
  ['channels that heads do not divide', { num_heads: 3 }, /embed_dim: expected a multiple of num_heads 3/],
  ['one key in two spellings', { bkg_pos_size: [4, 4] }, /bkg_pos_size: expected .* once/],
]
for (const [what, changes, text] of refused) {
  test(`${what} is refused`, () => {
    assert.throws(
      () => sam2Config({ ...tinyBlock(), ...changes }),
      (e) => e instanceof Mismatch && text.test(e.message),
    )
  })
}

test('a block that is not an object is refused', () => {
  for (const block of [null, 3, 'x', [1]]) assert.throws(() => sam2Config(block), Mismatch)
})
