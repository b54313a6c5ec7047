// The picture of a round trip in README: one held-out scene, the answers of a model in both directions, greedy.
// node --import tsx tools/make-figures.ts [--model DIR] [--scene N] [--out FILE]; `--pick N` looks for a scene of the first N that succeeds.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import sharp from 'sharp'
import { atomicWrite, humanBytes, log, packageRoot } from '../src/core/index.ts'
import { runInEngineThread } from '../src/engine/index.ts'
import { encodePng, overlay, type RgbImage } from '../src/image/index.ts'
import { type Mask, maskArea, maskFromPng, maskIou, maskToPng } from '../src/mask/index.ts'
import { meteor } from '../src/rewards/index.ts'
import { makeScene, type Scene, sceneExample } from '../src/scenes/index.ts'

/** Of the demo's held-out records. */
const seed = 9001

interface Trip {
  image: RgbImage
  given: Mask
  reference: string
  caption: string
  redrawn: Mask
  drawn: Mask
  retold: string
}

const cli = (name: string) => new URL(`../src/cli/${name}.ts`, import.meta.url)

/** Two commands of the command line, each in its own engine thread. */
class Model {
  readonly #options: Record<string, unknown>
  readonly #folder: string

  constructor(model: string, folder: string) {
    this.#options = { model, device: 'cpu', dtype: 'float32', maxNewTokens: 32, image: join(folder, 'image.png') }
    this.#folder = folder
  }

  async describe(mask: Mask): Promise<string> {
    if (maskArea(mask) === 0) return '(empty mask)'
    const file = join(this.#folder, 'region.png')
    writeFileSync(file, await maskToPng(mask))
    const found = await runInEngineThread(cli('caption'), 'captionWork', { ...this.#options, mask: file })
    return (found as { caption: string }).caption
  }

  async find(phrase: string): Promise<Mask> {
    const out = join(this.#folder, 'found.png')
    await runInEngineThread(cli('segment'), 'segmentWork', { ...this.#options, phrase, out })
    return maskFromPng(readFileSync(out), out)
  }
}

async function roundTrip(model: string, scene: Scene): Promise<Trip> {
  const { image, mask: given, caption: reference } = sceneExample(scene)
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-figure-'))
  try {
    writeFileSync(join(folder, 'image.png'), await encodePng(image))
    const both = new Model(model, folder)
    const caption = await both.describe(given)
    const redrawn = await both.find(caption)
    const drawn = await both.find(reference)
    return { image, given, reference, caption, redrawn, drawn, retold: await both.describe(drawn) }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

// pixels
const side = 168
const gap = 44
const margin = 12
const line = 19
const row = side + 46

const escaped = (text: string) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`)
const left = (column: number) => margin + column * (side + gap)

function label(text: string, column: number, top: number): string {
  return `<text x="${left(column)}" y="${top - 8}" font-size="14" fill="#555">${escaped(text)}</text>`
}

async function picture(title: string, image: RgbImage, column: number, top: number): Promise<string> {
  const data = Buffer.from(await encodePng(image)).toString('base64')
  const at = `x="${left(column)}" y="${top}" width="${side}" height="${side}"`
  return `${label(title, column, top)}<image ${at} image-rendering="pixelated" href="data:image/png;base64,${data}"/>`
}

function wrapped(text: string, width: number): string[] {
  const lines: string[] = ['']
  for (const word of text.split(' ')) {
    const now = lines.at(-1)!
    if (now !== '' && now.length + word.length >= width) lines.push(word)
    else lines[lines.length - 1] = now === '' ? word : `${now} ${word}`
  }
  return lines
}

function words(title: string, text: string, column: number, top: number): string {
  const lines = wrapped(text, 19)
  const first = top + side / 2 - ((lines.length - 1) * line) / 2 + 5
  const shown = lines.map(
    (part, i) =>
      `<text x="${left(column) + 12}" y="${first + i * line}" font-size="16" fill="#111">${escaped(part)}</text>`,
  )
  const box = `<rect x="${left(column)}" y="${top}" width="${side}" height="${side}" rx="8" fill="#f4f4f2" stroke="#ccc"/>`
  return label(title, column, top) + box + shown.join('')
}

function arrow(column: number, top: number): string {
  const x = left(column) + side + 8
  const y = top + side / 2
  const tip = x + gap - 16
  return `<path d="M${x} ${y}H${tip}M${tip - 7} ${y - 6}L${tip} ${y}L${tip - 7} ${y + 6}" stroke="#555" stroke-width="2" fill="none"/>`
}

async function illustration(trip: Trip): Promise<Buffer> {
  const { image, given, reference, caption, redrawn, drawn, retold } = trip
  const iou = (mask: Mask) => `IoU ${maskIou(given, mask).toFixed(2)}`
  const tinted = (mask: Mask) => overlay(image, mask, [255, 0, 200])
  const tops = [30, 30 + row] as const
  const parts = [
    await picture('image', image, 0, tops[0]),
    await picture('mask', tinted(given), 1, tops[0]),
    words('caption by P', caption, 2, tops[0]),
    await picture(`mask' by E, ${iou(redrawn)}`, tinted(redrawn), 3, tops[0]),
    await picture('image', image, 0, tops[1]),
    words('caption', reference, 1, tops[1]),
    await picture(`mask by P, ${iou(drawn)}`, tinted(drawn), 2, tops[1]),
    words(`caption' by E, METEOR ${meteor(reference, retold).toFixed(2)}`, retold, 3, tops[1]),
    ...tops.flatMap((top) => [1, 2].map((column) => arrow(column, top))),
  ]
  const width = left(3) + side + margin + 24
  const height = tops[1] + side + margin
  const open = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="DejaVu Sans, sans-serif">`
  const svg = `${open}<rect width="100%" height="100%" fill="#fff"/>${parts.join('')}</svg>`
  return sharp(Buffer.from(svg), { density: 144 }).png({ palette: true }).toBuffer()
}

/** The worst of both masks and the words that came back. */
const quality = (t: Trip) =>
  Math.min(maskIou(t.given, t.redrawn), maskIou(t.given, t.drawn), meteor(t.reference, t.retold))

/** The first scene whose both ways come close to what was given, or the best one seen. */
async function choose(model: string, first: number, pick: number): Promise<Trip> {
  let best = await roundTrip(model, makeScene(seed, first))
  for (let i = first + 1; i < pick && quality(best) < 0.6; i++) {
    const trip = await roundTrip(model, makeScene(seed, i))
    if (quality(trip) > quality(best)) best = trip
  }
  return best
}

interface Flags {
  model: string
  scene: string
  pick: string
  out: string
}

new Command('make-figures')
  .option('--model <dir>', 'Sa2VA folder', join(packageRoot(), 'assets', 'miniature'))
  .option('--scene <n>', 'number of the scene', '0')
  .option('--pick <n>', 'try scenes up to this one until one succeeds', '0')
  .option('--out <file>', 'PNG', join(packageRoot(), 'docs', 'images', 'round-trip.png'))
  .action(async ({ model, scene, pick, out }: Flags) => {
    const png = await illustration(await choose(model, Number(scene), Number(pick)))
    atomicWrite(out, png)
    log.info(`${out}: ${humanBytes(png.length)}`)
  })
  .parse()
