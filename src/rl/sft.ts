// Supervised fine-tuning: cross-entropy on both answers of a record, and the mask loss on its [SEG]. B records, S hidden.
import { Mismatch, type RandomStream } from '../core/index.ts'
import type { Example } from '../data/index.ts'
import { type Features, type Loaded, type Prompt, prepareImage, teacherForceRows } from '../models/index.ts'
import { cat, noGrad, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { regionQuestions, segmentAnswers, segmentQuestions } from '../text/index.ts'
import { maskLoss } from './mask-loss.ts'

export interface SftOptions {
  /** Gradient into the vision encoders too: only when they train. */
  trainEncoders: boolean
  maskWeight: number
  checkpointing?: boolean
  /** Tiles per image at most; the model's own limit if absent. */
  maxTiles?: number
}

export interface SftLoss {
  loss: Tensor
  report: () => { caption: number; answer: number; bce: number; dice: number }
}

/** One batch of records, each read twice: region -> caption, caption -> [SEG] and mask. Wording is drawn from `random`. */
export function sftLoss(loaded: Loaded, batch: readonly Example[], random: RandomStream, options: SftOptions): SftLoss {
  const { model } = loaded
  const features = options.trainEncoders
    ? encodeBatch(loaded, batch, options.maxTiles)
    : noGrad(() => encodeBatch(loaded, batch, options.maxTiles))
  const described = batch.map((e, i) => describeRow(loaded, rowFeatures(features, i), e, random))
  const segmented = batch.map((e, i) => segmentRow(loaded, rowFeatures(features, i), e.caption, random))
  const { caption, answer, states } = readRows(loaded, described, segmented, options)
  const drawn = model.drawMasks(features, model.segPrompts(states))
  const mask = maskLoss(
    drawn.logits,
    batch.map((e) => e.mask),
  )
  const loss = caption.add(answer).add(mask.loss.mul(options.maskWeight))
  return {
    loss,
    report: () => ({ caption: caption.item(), answer: answer.item(), bce: mask.bce.item(), dice: mask.dice.item() }),
  }
}

/** One pass over both kinds of rows: nll per token of each kind, and the [SEG] states [B, S] of the second. */
export function readRows(
  loaded: Loaded,
  described: readonly SftRow[],
  segmented: readonly SftRow[],
  { checkpointing }: Pick<SftOptions, 'checkpointing'> = {},
): { caption: Tensor; answer: Tensor; states: Tensor } {
  const rows = [...described, ...segmented]
  const pass = teacherForceRows(
    loaded.model,
    rows.map((r) => r.prompt),
    rows.map((r) => r.answer),
    { checkpointing },
  )
  const { logps } = pass.logProbs() // [2B, T]
  const nll = (from: number, some: readonly SftRow[]) =>
    logps
      .narrow(0, from, some.length)
      .sum()
      .div(-some.reduce((n, r) => n + r.answer.length, 0))
  const first = described.length
  return {
    caption: nll(0, described),
    answer: nll(first, segmented),
    states: cat(segmented.map((r, i) => pass.stateAt(first + i, segIndex(loaded, r.answer)))),
  }
}

function segIndex(loaded: Loaded, ids: Int32Array): number {
  const at = ids.indexOf(loaded.prompter.segId)
  if (at < 0 || at === ids.length - 1)
    throw new Mismatch({ where: 'sft', field: 'answer', expected: '[SEG] before the last token', got: Array.from(ids) })
  return at
}

export interface SftRow {
  prompt: Prompt
  answer: Int32Array
}

export function completion(loaded: Loaded, text: string): Int32Array {
  const { tokenizer, template } = loaded.prompter
  return tokenizer.encode(text + template.suffix, { addSpecial: false })
}

function describeRow(loaded: Loaded, features: Features, example: Example, random: RandomStream): SftRow {
  const prompt = loaded.prompter.describe(features, example.mask, random.pick(regionQuestions))
  return { prompt, answer: completion(loaded, example.caption) }
}

export function segmentRow(loaded: Loaded, features: Features, caption: string, random: RandomStream): SftRow {
  const prompt = loaded.prompter.segment(features, { question: random.pick(segmentQuestions(caption)) })
  return { prompt, answer: completion(loaded, random.pick(segmentAnswers)) }
}

/** All images of a batch in one pass; every image must give the same number of tiles here. */
function encodeBatch(loaded: Loaded, batch: readonly Example[], maxTiles?: number): Features {
  const { model, cfg } = loaded
  const { device, dtype } = model.home
  const inputs = batch.map((e) => prepareImage(e.image, cfg, { maxTiles }))
  const [first] = inputs
  const odd = inputs.findIndex((x) => x.tiles !== first!.tiles)
  if (odd >= 0)
    throw new Mismatch({
      where: `record ${batch[odd]!.id}`,
      field: 'tiles',
      expected: `${first!.tiles} as in the batch's first record`,
      got: inputs[odd]!.tiles,
      hint: 'use batch size 1 for images of different shape',
    })
  const { size, tiles } = first!
  const side = cfg.sam.image_size
  return tidy(() => {
    const pixels = cat(inputs.map((x) => tensor(x.pixels, [tiles, 3, size, size], { device }))).to(dtype)
    const sam = cat(inputs.map((x) => tensor(x.samPixels, [1, 3, side, side], { device }))).to(dtype)
    return {
      vision: model.visionFeatures(pixels),
      sam: model.sam.encodeImage(sam),
      tiles,
      height: first!.height,
      width: first!.width,
    }
  })
}

function rowFeatures(all: Features, i: number): Features {
  return { ...all, vision: all.vision.narrow(0, i * all.tiles, all.tiles) }
}
