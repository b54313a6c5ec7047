// The picture of the `field` action in docs/method.md: a mask, the noise on its grid, and the masks that come of it.
// node --import tsx tools/make-field-figure.ts [--model DIR] [--scene N] [--out FILE]
import { join } from 'node:path'
import { Command } from 'commander'
import sharp from 'sharp'
import { atomicWrite, humanBytes, log, packageRoot } from '../src/core/index.ts'
import { encodePng, overlay, type RgbImage } from '../src/image/index.ts'
import { maskIou } from '../src/mask/index.ts'
import { Encoder, openModel, resolveRun } from '../src/run/index.ts'
import { makeScene, sceneExample } from '../src/scenes/index.ts'
import { type CycleSample, taskKinds } from '../src/tasks/index.ts'
import { tidy } from '../src/tensor/index.ts'

const samples = 3
const side = 168 // pixels
const gap = 16

/** K masks of the scene's caption, with noise of `std` times the measured spread. */
function draw(model: string, scene: number, std: number): CycleSample[] {
  const config = resolveRun({
    model,
    device: 'cpu',
    dtype: 'float32',
    threads: 1,
    loop1: { weight: 0 },
    loop2: { action: 'field', actionStd: std, grid: 16 },
    rl: { numGenerations: samples, maxCompletionLength: 24 },
  })
  const family = openModel(config)
  const [task] = taskKinds.cycle.build(family, config)
  const examples = Array.from({ length: 8 }, (_, i) => sceneExample(makeScene(9001, scene + i)))
  return new Encoder(family, config).with(examples, (items) =>
    tidy(() => {
      task!.open(items)
      return task!.sample(items.slice(0, 1), { seed: 1, step: 0 })[0] as CycleSample[]
    }),
  )
}

/** Noise of a grid in colours: blue below 0, red above. */
function heat(noise: Float32Array): RgbImage {
  const g = Math.sqrt(noise.length)
  const most = Math.max(...noise.map(Math.abs))
  const data = new Uint8Array(g * g * 3)
  noise.forEach((value, i) => {
    const fade = Math.round(255 * (1 - Math.abs(value) / most))
    data.set(value > 0 ? [255, fade, fade] : [fade, fade, 255], 3 * i)
  })
  return { width: g, height: g, data }
}

async function picture(title: string, image: RgbImage, column: number): Promise<string> {
  const x = gap + column * (side + gap)
  const data = Buffer.from(await encodePng(image)).toString('base64')
  const text = `<text x="${x}" y="20" font-size="13" fill="#555">${title}</text>`
  const at = `x="${x}" y="30" width="${side}" height="${side}" preserveAspectRatio="none"`
  return `${text}<image ${at} image-rendering="pixelated" href="data:image/png;base64,${data}"/>`
}

async function illustration(model: string, scene: number): Promise<Buffer> {
  const { image, mask: given } = sceneExample(makeScene(9001, scene))
  const plain = draw(model, scene, 1e-9)[0]!
  const noisy = draw(model, scene, 0.5)
  const tinted = (sample: CycleSample) => overlay(image, sample.mask!, [255, 0, 200])
  const iou = (sample: CycleSample) => `IoU ${maskIou(given, sample.mask!).toFixed(2)}`
  const noise = noisy[0]!.action!.value.map((u, i) => u - plain.action!.value[i]!)
  const parts = [
    await picture(`without noise, ${iou(plain)}`, tinted(plain), 0),
    await picture('noise of sample 1', heat(noise), 1),
    ...(await Promise.all(noisy.map((s, k) => picture(`sample ${k + 1}, ${iou(s)}`, tinted(s), 2 + k)))),
  ]
  const size = `width="${gap + (2 + samples) * (side + gap)}" height="${side + 30 + gap}"`
  const open = `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="DejaVu Sans, sans-serif">`
  const svg = `${open}<rect width="100%" height="100%" fill="#fff"/>${parts.join('')}</svg>`
  return sharp(Buffer.from(svg), { density: 144 }).png({ palette: true }).toBuffer()
}

new Command('make-field-figure')
  .option('--model <dir>', 'model folder', join(packageRoot(), 'assets', 'miniature'))
  .option('--scene <n>', 'number of the scene', '4')
  .option('--out <file>', 'PNG', join(packageRoot(), 'docs', 'images', 'field-action.png'))
  .action(async ({ model, scene, out }: { model: string; scene: string; out: string }) => {
    const png = await illustration(model, Number(scene))
    atomicWrite(out, png)
    log.info(`${out}: ${humanBytes(png.length)}`)
  })
  .parse()
