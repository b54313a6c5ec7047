// What the commands that run a model share: options, opening with progress, reading picture and mask.
import { readFileSync } from 'node:fs'
import { Command, InvalidArgumentError, Option } from 'commander'
import { expecting, log, modelFolder } from '../core/index.ts'
import type { RgbImage } from '../image/index.ts'
import type { Mask } from '../mask/index.ts'
import type { GroundedFamily } from '../models/index.ts'

export interface ModelOptions {
  model: string
  adapter?: string
  image: string
  device: string
  dtype?: 'bfloat16' | 'float32'
  maxNewTokens: number
  maxTiles?: number
  region?: 'overlay' | 'cells'
  rounding?: 'once' | 'bf16-ref'
  json?: boolean
}

export function count(text: string): number {
  const value = Number(text)
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError('a whole number from 1, please')
  return value
}

export function whole(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value >= 0) return value
  throw new InvalidArgumentError('expected a whole number')
}

/** `--device` of a command that opens a model. */
export function deviceOption(doc = 'cpu, cuda or cuda:N'): Option {
  return new Option('--device <name>', doc).default('cpu').argParser((text) => {
    if (/^(cpu|cuda(:\d+)?)$/.test(text)) return text
    throw new InvalidArgumentError('expected cpu, cuda or cuda:N')
  })
}

/** Numbers with commas between them. */
export function numbers(count: number) {
  return (text: string): number[] => {
    const values = text.split(',').map(Number)
    if (values.length === count && values.every(Number.isFinite)) return values
    throw new InvalidArgumentError(`expected ${count} numbers with commas between them`)
  }
}

export interface Click {
  x: number
  y: number
  inside: boolean
}

/** `120,80` or `120,80,+` is on the object, `120,80,-` off it. Every use of the flag adds one. */
export function addClick(text: string, clicks: Click[] = []): Click[] {
  const parts = /^([^,]+),([^,]+)(?:,([+-]))?$/.exec(text)
  const [x, y] = [Number(parts?.[1] ?? Number.NaN), Number(parts?.[2] ?? Number.NaN)]
  if (!Number.isFinite(x) || !Number.isFinite(y)) throw new InvalidArgumentError('expected x,y or x,y,+ or x,y,-')
  return [...clicks, { x, y, inside: parts?.[3] !== '-' }]
}

/** An option with a few possible values. */
export function choice(flags: string, doc: string, values: readonly string[], usual?: string): Option {
  return new Option(flags, doc).choices(values).default(usual)
}

/** A command with the options every model run has. */
export function modelCommand(name: string, description: string, { model = 'required' } = {}): Command {
  const needed = new Option('--model <dir>', 'model folder (config.json, weights, tokenizer) or ORG/NAME').argParser(
    modelFolder,
  )
  return new Command(name)
    .description(description)
    .addOption(needed.makeOptionMandatory(model === 'required'))
    .requiredOption('--image <file>', 'PNG, JPEG or WebP')
    .option(
      '--adapter <dir>',
      'PEFT adapter, checkpoint of a run, or .pth file of the Python trainer to put on the model',
    )
    .addOption(deviceOption())
    .addOption(choice('--dtype <name>', 'of the weights; default: as config.json says', ['bfloat16', 'float32']))
    .option('--max-new-tokens <n>', 'longest answer', count, 256)
    .option('--max-tiles <n>', 'most tiles the picture is cut into', count)
    .option('--json', 'print one JSON object')
}

/** Runs an exported function of a module in the engine thread; its messages are logged. */
export async function inEngine<T>(module: string, work: string, input: object, stopped?: string): Promise<T> {
  const { runInEngineThread } = await import('../engine/index.ts')
  const onMessage = (text: unknown) => log.info(String(text))
  const stop = () => {
    if (stopped !== undefined) log.info(`SIGINT: ${stopped}; the same command continues`)
    process.kill(process.pid, 'SIGINT') // ends the process: this handler is removed
  }
  process.once('SIGINT', stop)
  return (await runInEngineThread(module, work, input, { onMessage }).finally(() => process.off('SIGINT', stop))) as T
}

/** In the engine thread. `report` gets lines for people. */
export async function openModel(options: ModelOptions, report: (text: string) => void): Promise<GroundedFamily> {
  const { openFamily, storedDtype } = await import('../models/index.ts')
  const { requireGrounded } = await import('../tasks/index.ts')
  const { loadTrained } = await import('../run/index.ts')
  const dtype = options.dtype ?? storedDtype(options.model)
  const { region, rounding } = options
  const start = performance.now()
  let shown = 0
  const onProgress = (done: number, total: number) => {
    if (performance.now() - start < 1000 + shown * 2000) return
    shown++
    report(`reading weights: ${done} of ${total} tensors`)
  }
  const family = requireGrounded(
    openFamily(options.model, { dtype, device: options.device, onProgress, region, rounding }),
  )
  if (options.adapter) loadTrained(family, options.adapter)
  report(`model ready after ${((performance.now() - start) / 1000).toFixed(1)} s`)
  return family
}

export async function readImage(path: string): Promise<RgbImage> {
  const { decodeImage } = await import('../image/index.ts')
  return decodeImage(bytesOf(path), path)
}

/** A mask and the picture it belongs to, turned the way that makes their sizes equal. */
export async function readRegion(maskPath: string, imagePath: string): Promise<{ mask: Mask; image: RgbImage }> {
  const { maskFromPng } = await import('../mask/index.ts')
  const { decodeImageFor } = await import('../image/index.ts')
  const mask = await maskFromPng(bytesOf(maskPath), maskPath)
  return { mask, image: await decodeImageFor(bytesOf(imagePath), mask, imagePath) }
}

function bytesOf(path: string): Buffer {
  return expecting({ where: path, expected: 'a readable file' }, () => readFileSync(path))
}
