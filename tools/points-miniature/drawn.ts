// The start for photographs: it learns on drawn objects (emoji) to write coordinates. Any point of the marked object, its size, size and
// middle of a box that the question names. Where to click against a mask is never asked, and no negative click is shown.
import { join } from 'node:path'
import { type RandomStream, stream, streamId } from '../../src/core/index.ts'
import { openSource } from '../../src/data/index.ts'
import { resize } from '../../src/image/index.ts'
import { resizeMaskNearest, toDense } from '../../src/mask/index.ts'
import { chatText, type LoadedQwenVL, patchImage } from '../../src/models/index.ts'
import { type Box, derivePrompt, type Point, pointQuestion, sceneSide as side } from '../../src/tasks/index.ts'
import { cat } from '../../src/tensor/index.ts'
import { runStage } from '../miniature/stage.ts'
import { answerLoss, frame, newPolicy, patchTensor, settings } from './policy.ts'
import { writePolicy } from './write.ts'

/** What the questions ask for. The question of the task itself, `Points outside:`, is none of them. */
const asks = ['Points inside:', 'Object size:', 'Box size:', 'Box middle:'] as const

/** An image and where its object is: pixels, row by row. */
interface Drawing {
  caption: string
  image: ReturnType<typeof resize>
  inside: number[]
  middle: Point
}

export async function makeDrawn(folder: string, seed: number, data: string, device: string): Promise<void> {
  const source = await openSource(data, {})
  const drawings: Drawing[] = []
  for (let i = 0; i < source.length; i++) {
    const { caption, image, mask } = await source.get(i)
    const object = resizeMaskNearest(mask, side, side)
    const inside = [...toDense(object).entries()].flatMap(([pixel, on]) => (on ? [pixel] : []))
    const middle = derivePrompt(object).points[0]!
    drawings.push({ caption, image: resize(image, side, side, 'bilinear'), inside, middle })
  }
  await source.close()
  const texts = drawings.slice(0, 400).flatMap((d) => {
    return [...asks, 'Points outside:'].map((ask) => textOf(d.caption, d.middle, ask, null))
  })
  const numbers = Array.from({ length: side }, (_, i) => `[[${i},${side - 1 - i}]]`)
  const loaded = newPolicy(join(folder, 'untrained'), seed, [...texts, ...numbers], device)
  train(loaded, drawings, device)
  writePolicy(loaded, join(folder, 'drawn'))
}

function textOf(query: string, marker: Point, ask: string, first: Box | null): string {
  const positive = { box: null, points: [marker] }
  const question = pointQuestion({ query, positive, model: frame, original: frame, first }, settings)
  return chatText(question.replace('Points outside:', ask), [(side / 28) ** 2])
}

function train(loaded: LoadedQwenVL, drawings: readonly Drawing[], device: string): void {
  const { model, tokenizer, processor } = loaded
  const [rows, steps] = [64, 1500]
  const grid = { rows: side / 14, columns: side / 14, ...frame }
  const patches = drawings.map(({ image }) => patchTensor(patchImage(image, processor), device))
  const encode = (text: string) => tokenizer.encode(text, { addSpecial: false })
  const loss = (step: number) => {
    const random = stream(streamId.scenes, 'drawn', step)
    const chosen = Array.from({ length: rows }, () => random.below(drawings.length))
    const { tokens } = model.visual.forward(cat(chosen.map((i) => patches[i]!)), Array(rows).fill(grid))
    const lessons = chosen.map((i) => lessonOf(drawings[i]!, random))
    const prompts = lessons.map(({ question }) => encode(question))
    const answers = lessons.map(({ answer }) => encode(`${JSON.stringify(answer)}<|im_end|>`))
    return answerLoss(model, tokens, grid, prompts, answers)
  }
  runStage({
    name: 'drawn',
    params: new Map(model.parameters()),
    steps,
    learningRate: 2e-3,
    loss,
  })
}

/** A fifth of the markers miss the object, and a place that is not there has no points. */
function lessonOf({ caption, inside, middle }: Drawing, random: RandomStream) {
  const missed = random.uniform() < 0.2
  const marker = missed ? at(random.below(side * side)) : random.uniform() < 0.6 ? middle : at(random.pick(inside))
  const hit = inside.includes(marker[1] * side + marker[0])
  const box = firstBox(inside, random)
  const ask = random.uniform() < 0.5 ? asks[0] : random.pick(asks.slice(1))
  const answers = {
    'Points inside:': hit && at(random.pick(inside)),
    'Object size:': hit && sizeOf(boxOf(inside.map(at))),
    'Box size:': box && sizeOf(box),
    'Box middle:': box && ([Math.floor((box[0] + box[2]) / 2), Math.floor((box[1] + box[3]) / 2)] as Point),
  }
  const answer = answers[ask]
  return { question: textOf(caption, marker, ask, box), answer: answer ? [answer] : [] }
}

const at = (pixel: number): Point => [pixel % side, Math.floor(pixel / side)]

/** A box that a mask might have: the object's, any one, one that surrounds both, or none. */
function firstBox(inside: readonly number[], random: RandomStream): Box | null {
  const any = [0, 1].map(() => at(random.below(side * side)))
  const kind = random.uniform()
  if (kind < 0.1) return null
  return boxOf([...(kind < 0.7 ? inside.map(at) : []), ...(kind < 0.4 ? [] : any)])
}

function boxOf(points: readonly Point[]): Box {
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)]
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)]
}

const sizeOf = ([x1, y1, x2, y2]: Box): Point => [x2 - x1, y2 - y1]
