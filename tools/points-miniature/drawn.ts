// The start for photographs: a small Qwen3-VL that learns on drawn objects (emoji) to read a picture, a red region in it and the numbers of
// a question, and to write coordinates. Where to click against a mask is never asked, and no negative click is shown.
import { join } from 'node:path'
import { type RandomStream, stream, streamId } from '../../src/core/index.ts'
import { openSource } from '../../src/data/index.ts'
import { overlay, type RgbImage, resize } from '../../src/image/index.ts'
import { maskFromDense, resizeMaskNearest, toDense } from '../../src/mask/index.ts'
import { chatText, type LoadedQwenVL, patchImage } from '../../src/models/index.ts'
import { initRandom, Linear } from '../../src/nn/index.ts'
import { type Box, derivePrompt, type Point, pointQuestion, resolvePoints } from '../../src/tasks/index.ts'
import { boxOfMask } from '../../src/tasks/points/click-geometry.ts'
import { printedPoint } from '../../src/tasks/points/frame.ts'
import { withDots } from '../../src/tasks/points/item.ts'
import { cat, int64Tensor, type Tensor, tensor, tidyNoGrad } from '../../src/tensor/index.ts'
import { crossEntropy, runStage, type Stage } from '../miniature/stage.ts'
import { answerScores, newPolicy, patchTensor } from './policy.ts'
import { writePolicy } from './write.ts'

/** Side of a picture; a tenth of it is one image token, and an answer is one of these cells. */
const [side, cells] = [160, 10]
const unit = side / cells
const frame = { width: side, height: side }
const grid = { rows: 2 * cells, columns: 2 * cells, ...frame }
/** The question of the task itself: no lesson asks it. */
const taskAsk = 'Points outside:'
const otherWords = 'anywhere somewhere here there again any'.split(' ')
const settings = resolvePoints({ imageSize: side, wording: 'short', showMask: true }, 'thousand')

export async function makeDrawn(folder: string, seed: number, data: string, device: string): Promise<void> {
  const drawings = await makeDrawings(seed, data)
  const random = stream(streamId.scenes, seed, 'words')
  const texts = drawings.slice(0, 6000).flatMap((drawing) => {
    const { question } = lessonOf(drawing, random)
    return [question, question.replace(/[A-Z][^.]*$/, taskAsk)]
  })
  const loaded = newPolicy(join(folder, 'untrained'), seed, texts, 'drawn', device, answerTexts)
  relateCells(loaded)
  train(loaded, drawings, device)
  writePolicy(loaded, join(folder, 'drawn'))
}

async function makeDrawings(seed: number, data: string): Promise<Drawing[]> {
  const source = await openSource(data, {})
  const drawings: Drawing[] = []
  for (let i = 0; i < source.length; i++) {
    const { caption, image, mask } = await source.get(i)
    const shape = resizeMaskNearest(mask, side, side)
    const [object, small] = [toDense(shape), resize(image, side, side, 'bilinear')]
    const [middle] = derivePrompt(shape).points as [Point]
    for (const copy of [0, 1, 2, 3]) {
      const random = stream(streamId.scenes, seed, 'line', i, copy)
      const region = maskFromDense(regionOf(object, random), side, side)
      // a sixth of the markers miss the object
      const marker = random.uniform() < 0.16 ? at(random.below(side ** 2)) : middle
      const picture = withDots(overlay(small, region, [255, 0, 0]), [marker])
      drawings.push({ caption, marker, red: cellsOf(toDense(region)), box: boxOfMask(region), picture })
    }
  }
  await source.close()
  return drawings
}

/** A picture with a red region and a green dot on the marker. */
interface Drawing {
  caption: string
  marker: Point
  /** Cells of the region. */
  red: number[]
  box: Box | null
  picture: RgbImage
}

/** Tokens that are mostly covered; of something small the one that has most of it. */
function cellsOf(dense: Uint8Array): number[] {
  const covered = new Uint16Array(cells ** 2)
  for (const i of placesOf(dense)) covered[cellAt(at(i))]!++
  const limit = Math.min(unit ** 2 / 2, Math.max(1, ...covered))
  return [...covered.keys()].filter((cell) => covered[cell]! >= limit)
}

const placesOf = (dense: Uint8Array) => Int32Array.from(dense.keys()).filter((i) => dense[i])
const at = (pixel: number): Point => [pixel % side, Math.floor(pixel / side)]
/** The middle of a cell. As location tokens of Pix2Seq and PaliGemma, each one that is written is one token. */
const middleOf = (cell: number): Point => [middle(cell % cells), middle(Math.floor(cell / cells))]
const middle = (cell: number) => (cell + 0.5) * unit - 0.5
const cellAt = ([x, y]: Point) => Math.floor(y / unit) * cells + Math.floor(x / unit)
const everywhere = Array.from({ length: cells ** 2 }, (_, cell) => cell)

/** Between the middle of a cell and a point, in sides of the picture. */
const distance = (cell: number, [x, y]: Point) => Math.hypot(middleOf(cell)[0] - x, middleOf(cell)[1] - y) / side

/** A question and the cells that are right, any of them. What is not there has no cells. */
function lessonOf({ caption, red, marker, box }: Drawing, random: RandomStream) {
  const among = (is: (x: number, y: number) => boolean) => red.filter((cell) => is(...middleOf(cell)))
  const extreme = (place: (cell: number) => number) => {
    const first = Math.min(...red.map(place))
    return red.filter((cell) => place(cell) === first)
  }
  const far = everywhere.filter((cell) => distance(cell, marker) > 0.25)
  const answers: Record<string, readonly number[]> = {
    'Red points:': red,
    'Red left:': among((x) => x < marker[0]),
    'Red right:': among((x) => x > marker[0]),
    'Red above:': among((_, y) => y < marker[1]),
    'Red below:': among((_, y) => y > marker[1]),
    'Red leftmost:': extreme((cell) => cell % cells),
    'Red rightmost:': extreme((cell) => -(cell % cells)),
    'Red topmost:': extreme((cell) => Math.floor(cell / cells)),
    'Red lowest:': extreme((cell) => -Math.floor(cell / cells)),
    'Box size:': box ? [cellAt([box[2] - box[0], box[3] - box[1]])] : [],
    'Marker:': [cellAt(marker)],
    'Far:': far,
    'Near:': everywhere.filter((cell) => distance(cell, marker) < 0.2),
    // whatever else is asked: something red, far, anywhere, nothing
    [`Points ${random.pick(otherWords)}:`]: random.pick([red, far, everywhere, []]),
  }
  const ask = random.pick(Object.keys(answers))
  return { question: textOf(caption, marker, ask, box), right: answers[ask]! }
}

const written = (cell: number) => JSON.stringify([printedPoint(middleOf(cell), settings.coords, frame, frame)])
/** Each is one token. */
export const answerTexts = ['[]', ...everywhere.map(written)]

function textOf(query: string, marker: Point, ask: string, first: Box | null): string {
  const positive = { box: null, points: [marker] }
  const question = pointQuestion({ query, positive, model: frame, original: frame, first }, settings)
  return chatText(question.replace(taskAsk, ask), [cells ** 2], '')
}

/** What a mask might be: the object, a part of it, more than it, anything round, everything else, nothing. */
function regionOf(object: Uint8Array, random: RandomStream): Uint8Array {
  const [x, y] = [random.below(side), random.below(side)]
  const [a, b] = [8 + 0.4 * side * random.uniform(), 8 + 0.4 * side * random.uniform()]
  const inEllipse = (i: number) => (((i % side) - x) / a) ** 2 + ((Math.floor(i / side) - y) / b) ** 2 < 1
  const angle = 2 * Math.PI * random.uniform()
  const pivot = random.pick([...placesOf(object)])
  const isBefore = (i: number) =>
    Math.cos(angle) * ((i % side) - (pivot % side)) + Math.sin(angle) * Math.floor(i / side - pivot / side) < 0
  const kind = random.uniform()
  return object.map((on, i) => {
    if (kind < 0.3) return on
    if (kind < 0.5) return on && isBefore(i) ? 1 : 0
    if (kind < 0.65) return on || inEllipse(i) ? 1 : 0
    if (kind < 0.8) return inEllipse(i) ? 1 : 0
    if (kind < 0.95) return on || isBefore(i) ? 1 : 0
    return 0
  })
}

/** Before training: the row of a cell is near the sum of one for its column and one for its line; attention copies what it reads. */
function relateCells({ model, tokenizer }: LoadedQwenVL): void {
  const [first] = tokenizer.encode(written(0), { addSpecial: false }) as unknown as [number]
  tidyNoGrad(() => {
    const rows = model.model.embed_tokens.weight.narrow(0, first, cells ** 2)
    const own = rows.clone().view([cells, cells, -1])
    rows.copy_(
      own
        .select(0, 0)
        .add(own.narrow(1, 0, 1))
        .add(own.mul(0.5))
        .view(rows.shape),
    )
    for (const { self_attn } of model.model.layers) {
      const { out, qkv } = self_attn.fused
      out.weight.copy_(qkv[2]!.weight.t())
    }
  })
}

/** Pictures of a step, and questions about each. */
const [pictures, questions] = [64, 4]

/**
 * First the tower alone: every image token says which cell it is, its distance to the dot in tenths of the side, and answers with
 * its cell if it is red, else with nothing. Then lessons too.
 */
function train(loaded: LoadedQwenVL, drawings: readonly Drawing[], device: string): void {
  const { model, processor, tokenizer } = loaded
  const steps = 3250
  const patches = drawings.map(({ picture }) => patchTensor(patchImage(picture, processor), device))
  const probes = [cells ** 2, cells].map((size) => new Linear(model.cfg.llm.hidden_size, size))
  probes.forEach((probe, i) => void initRandom(probe, { seed: i + 1, device }))
  const encode = encoderOf(loaded)
  const idOf = (text: string) => tokenizer.encode(text, { addSpecial: false })[0]!
  const [none, end] = [idOf('[]'), idOf('<|im_end|>')]
  const facts = drawings.map((drawing) => factsOf(drawing, none))
  const loss: Stage['loss'] = (step) => {
    const random = stream(streamId.scenes, 'drawn', step)
    const chosen = Array.from({ length: pictures }, () => random.below(drawings.length))
    const { tokens } = model.visual.forward(cat(chosen.map((i) => patches[i]!)), Array(pictures).fill(grid))
    // the head of the model has to answer, the others are only for training
    const scores = [probes[0]!.forward(tokens), model.decoder.logits(tokens), probes[1]!.forward(tokens)]
    const learned = scores.map((score, i) => {
      const wanted = chosen.flatMap((n) => facts[n]![i]!)
      return crossEntropy(score, int64Tensor(wanted, { device }))
    })
    const seen = learned.reduce((a, b) => a.add(b))
    const metrics: Record<string, Tensor> = { seen }
    if (step < steps / 20) return { loss: seen, metrics }
    const lessons = Array.from({ length: questions }, () => chosen.map((i) => lessonOf(drawings[i]!, random))).flat()
    const right = lessons.map((lesson) =>
      lesson.right.length > 0 ? lesson.right.map((cell) => none + 1 + cell) : [none],
    )
    const answers = right.map((ids) => Int32Array.of(random.pick(ids), end))
    const images = cat(Array<Tensor>(questions).fill(tokens))
    const prompts = lessons.map(({ question }) => encode(question))
    const logp = answerScores(model, images, grid, prompts, answers).logSoftmax(-1).view([right.length, 2, -1])
    const said = logp.select(1, 0).mul(evenShares(right, logp)).sum().div(-right.length)
    const ended = logp.select(1, 1).select(1, end).mean().neg()
    return { loss: said.add(ended).add(seen), metrics: { ...metrics, said: said.sub(surprise(right)) } }
  }
  const ofProbes = probes.flatMap((probe, i) => [...probe.parameters()].map(([k, v]) => [`${i}.${k}`, v] as const))
  const params = new Map([...model.parameters(), ...ofProbes])
  runStage({ name: 'drawn', params, steps, learningRate: 2.5e-3, loss })
  for (const t of patches) t.dispose()
}

/** What each image token has to say: its cell; the answer with its cell if it is red, else with nothing; tenths of the side to the dot. */
function factsOf({ red, marker }: Drawing, none: number): number[][] {
  const tenths = (cell: number) => Math.min(cells - 1, Math.floor(10 * distance(cell, marker)))
  return [everywhere, everywhere.map((cell) => (red.includes(cell) ? none + 1 + cell : none)), everywhere.map(tenths)]
}

/** All prompts begin with the picture's tokens, which take most of the time: they are encoded once, and each question once. */
function encoderOf({ tokenizer }: LoadedQwenVL): (question: string) => Int32Array {
  const encode = (text: string) => tokenizer.encode(text, { addSpecial: false })
  const known = new Map<string, Int32Array>()
  const first = '<|vision_end|>'
  return (question) => {
    const from = question.indexOf(first)
    const [start, rest] = [question.slice(0, from), question.slice(from)]
    const parts = [start, rest].map((text) => known.get(text) ?? encode(text))
    ;[start, rest].forEach((text, i) => void known.set(text, parts[i]!))
    return Int32Array.from([...parts[0]!, ...parts[1]!])
  }
}

/** Mean entropy of the right answers: no policy has a lower cross-entropy. */
const surprise = (right: readonly (readonly number[])[]) =>
  right.reduce((sum, ids) => sum + Math.log(ids.length), 0) / right.length

/** A row for each lesson, [R, V]: all its right tokens have the same share. */
function evenShares(right: readonly (readonly number[])[], like: Tensor): Tensor {
  const width = like.size(-1)
  const shares = new Float32Array(right.length * width)
  right.forEach((ids, row) => {
    for (const id of ids) shares[row * width + id] = 1 / ids.length
  })
  return tensor(shares, [right.length, width], { device: like.device })
}
