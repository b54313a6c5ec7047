// Computes the outputs of a model folder with this product, named as in reference.py, and writes the inputs for reference.py.
import { tensorSource, writeSafetensors } from '../../src/checkpoint/index.ts'
import { imagenetMean, imagenetStd, type Pixels, type RgbImage } from '../../src/image/index.ts'
import { teacherForce } from '../../src/llm/index.ts'
import {
  type Features,
  type GroundedFamily,
  openFamily,
  type QwenGroundedFeatures,
  Sa2VAFamily,
  type Sa2VAQwenFamily,
} from '../../src/models/index.ts'
import { emptyCache, int64Tensor, type Tensor, tensor, tidyNoGrad } from '../../src/tensor/index.ts'

export interface Place {
  dtype: 'float32' | 'bfloat16'
  device: 'cuda' | 'cpu'
}

type Named = Record<string, Tensor>
type Opened = Sa2VAFamily | Sa2VAQwenFamily

/** A smooth test image without repetition. */
function testImage(width = 640, height = 448): RgbImage {
  const level = (x: number, y: number, c: number) =>
    128 + 60 * Math.sin(x / (17 + 9 * c) + y / 31) + 50 * Math.cos((x * y) / 9000 + c)
  const data = Uint8Array.from({ length: width * height * 3 }, (_, i) => {
    const pixel = Math.floor(i / 3)
    return Math.round(level(pixel % width, Math.floor(pixel / width), i % 3))
  })
  return { width, height, data }
}

/** Writes the outputs to `out`, and the inputs for reference.py to `inputs`. */
export function ours(folder: string, out: string, place: Place, inputs?: string): void {
  const family = openFamily(folder, place) as Opened
  try {
    tidyNoGrad(() => compute(family as never, out, inputs))
  } finally {
    for (const t of family.module.parameters().values()) t.dispose()
    emptyCache() // the reference needs the memory
  }
}

function compute(family: Opened & GroundedFamily, out: string, inputs?: string): void {
  const image = family.prepare(testImage(), { maxTiles: 2 })
  const features = family.encode([image])[0] as Features | QwenGroundedFeatures
  const prompt = family.segment(features, 'the red circle on the left')
  const answer = family.completion(`Sure, it is [SEG]. ${'A small red circle lies left of a blue box. '.repeat(2)}`)
  const seg = answer.indexOf(family.segId)
  if (inputs) save(inputs, inputsOf(family, image, [...prompt.ids], [...answer], seg))
  // one more token, so that the last token of the answer has a state too
  const pass = teacherForce(family.model as never, prompt, [Int32Array.from([...answer, 0])])
  const n = answer.length
  const logits = family.model.decoder.logits(pass.hidden.narrow(0, pass.rowOf(0, -1), n)).to('float32')
  const ids = int64Tensor(answer, [n, 1], { device: logits.device })
  const seen = family.segPrompts(pass.stateAt(0, seg))
  const { masks, ious } = family.module.sam.decode(features.sam, { language: seen.unsqueeze(1) }, { multimask: true })
  save(out, {
    ...visionOf(family, features),
    logits,
    logps: logits.logSoftmax(-1).gather(-1, ids).squeeze(-1),
    states: pass.hidden.narrow(0, pass.rowOf(0, 0), n),
    prompt: seen,
    'sam.level2': features.sam.level2,
    masks,
    ious,
  })
}

function visionOf(family: Opened, features: Features | QwenGroundedFeatures): Named {
  if (family instanceof Sa2VAFamily)
    return { vision: family.model.imageTokens((features as Features).vision).flatten({ endDim: 1 }) }
  const { tokens, deepstack } = features as QwenGroundedFeatures
  return { vision: tokens, ...Object.fromEntries(deepstack.map((t, j) => [`deepstack${j}`, t])) }
}

/** SAM2's image as integers 0 to 255: the reference normalises it in the dtype of its weights. */
function integerPixels(pixels: Float32Array): Tensor {
  const area = pixels.length / 3
  const levels = pixels.map((v, i) =>
    Math.round((v * imagenetStd[Math.floor(i / area)]! + imagenetMean[Math.floor(i / area)]!) * 255),
  )
  return tensor(levels, [3, Math.sqrt(area), Math.sqrt(area)])
}

const floats = (pixels: Pixels) =>
  pixels instanceof Uint16Array
    ? (tidyNoGrad(() => tensor(pixels, { dtype: 'bfloat16' }).to('float32').array()) as Float32Array)
    : pixels

type Input = ReturnType<Opened['prepare']>

function inputsOf(family: Opened, image: Input, prompt: number[], answer: number[], seg: number): Named {
  const whole = (values: readonly number[], shape = [values.length]) => int64Tensor(values, [...shape])
  const common = {
    ids: whole([...prompt, ...answer], [1, prompt.length + answer.length]),
    answer_start: whole([prompt.length]),
    seg: whole([prompt.length + seg]),
    sam_image: integerPixels(floats(image.samPixels)),
  }
  if ('tiles' in image) {
    const { tiles, size, pixels } = image
    const id = family.tokenizer.requireId('<IMG_CONTEXT>')
    const places = [...prompt.keys()].filter((i) => prompt[i] === id)
    return { ...common, pixels: tensor(floats(pixels), [tiles, 3, size, size]), image_positions: whole(places) }
  }
  const { rows, columns, pixels } = image.patches
  const patches = tensor(floats(pixels), [rows * columns, pixels.length / (rows * columns)])
  return { ...common, pixels: patches, grid: whole([1, rows, columns]) }
}

function save(path: string, tensors: Named): void {
  const plain = (t: Tensor) => (t.dtype === 'bfloat16' ? t.to('float32') : t).to('cpu').contiguous()
  const entries = Object.entries(tensors).map(([name, t]) => tensorSource(name, plain(t)))
  writeSafetensors(path, entries)
}
