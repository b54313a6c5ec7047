import type { Command } from 'commander'
import { spellControls } from '../core/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { choice, inEngine, type ModelOptions, modelCommand, openModel, readRegion } from './model.ts'

interface Options extends ModelOptions {
  mask: string
  question?: string
}

interface Caption {
  caption: string
  /** As generated, special tokens and stop text included. */
  text: string
  tokens: number
  finished: boolean
  /** The region was too thin for the prompt's grid; the nearest cell is used. */
  thin: boolean
  seconds: number
}

export function command(): Command {
  return modelCommand('caption', 'describe the region of a picture that a mask marks')
    .requiredOption('--mask <file>', "PNG of the picture's size; anything but black is inside")
    .addOption(
      choice('--region <way>', 'how a region is shown: its outline drawn on the picture (Qwen-VL), or copied cells', [
        'overlay',
        'cells',
      ]),
    )
    .option('--question <text>', 'what to ask; <image> stands for the picture and its region')
    .action(run)
}

async function run(options: Options): Promise<void> {
  const result = await inEngine<Caption>(import.meta.url, 'captionWork', options)
  process.stdout.write(`${options.json ? JSON.stringify(result) : spellControls(result.caption)}\n`)
}

/** Runs in the engine thread. */
export async function captionWork(options: Options, port: EnginePort): Promise<Caption> {
  const { generate } = await import('../llm/index.ts')
  const { captionOf } = await import('../tasks/index.ts')
  const { tidy } = await import('../tensor/index.ts')
  const { mask, image } = await readRegion(options.mask, options.image)
  const family = await openModel(options, port.send)
  const start = performance.now()
  const input = family.prepare(image, { maxTiles: options.maxTiles })
  return tidy(() => {
    const [features] = family.encode([input])
    const question = options.question && withImage(options.question)
    const prompt = family.describe(features!, mask, question || undefined)
    port.send(`${family.shapeOf(input)}, ${prompt.ids.length} prompt tokens`)
    const settings = { maxNewTokens: options.maxNewTokens, stopStrings: family.stopWords, segId: family.segId }
    const [row] = generate(family.model, family.tokenizer, [prompt], settings)
    const { text, ids, finished } = row!
    const seconds = (performance.now() - start) / 1000
    return { caption: captionOf({ family }, text), text, tokens: ids.length, finished, thin: prompt.thin, seconds }
  })
}

/** A question without the placeholder is asked after the picture, as in training. */
export function withImage(question: string): string {
  return question.includes('<image>') ? question : `<image>\n${question}`
}
