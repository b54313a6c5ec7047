// ReasonSeg: a picture with a JSON file of the same name; polygons labelled target, ignore or flag.
import { basename, dirname, join, resolve } from 'node:path'
import { isFolder, Mismatch, namesIn, parseJson, readBytes, refuseAt } from '../core/index.ts'
import { imageInfo } from '../image/index.ts'
import type { BenchmarkOptions, BenchmarkRecord, MaskBenchmark } from './benchmark.ts'
import { decodeText } from './cp1252.ts'
import { findFolder } from './folders.ts'
import { fillPolygon } from './opencv-polygon.ts'
import type { Target } from './target.ts'

interface Shape {
  label: string
  points: number[][]
}

interface Annotation {
  text: string[]
  is_sentence: boolean
  shapes: Shape[]
}

const splits = ['val', 'test', 'test-short', 'test-long']
const pictures = /\.(jpe?g|png|webp)$/i

function readAnnotation(file: string): Annotation {
  const value = parseJson(decodeText(readBytes(file), file), file) as Partial<Annotation> | null
  const texts = typeof value?.text === 'string' ? [value.text] : value?.text
  if (!Array.isArray(texts) || typeof texts[0] !== 'string')
    throw new Mismatch({ where: file, field: 'text', expected: 'a list that begins with a text', got: texts ?? 'none' })
  if (!Array.isArray(value?.shapes) || !value.shapes.every(isShape))
    return refuseAt(file)('shapes', 'label and points of each', value?.shapes ?? 'none')
  return { text: texts, is_sentence: Boolean(value.is_sentence), shapes: value.shapes }
}

/** A flag is a remark about the picture and is not drawn, whatever its points are. */
const isFlag = ({ label }: Pick<Shape, 'label'>) => label.toLowerCase() === 'flag'

function isShape(shape: Partial<Shape> | null): boolean {
  const points = shape?.points
  if (typeof shape?.label === 'string' && isFlag(shape as Shape)) return true
  const numbers =
    Array.isArray(points) && points.every((p) => Array.isArray(p) && p.length >= 2 && p.every(Number.isFinite))
  return numbers && typeof shape?.label === 'string' && points.length > 0
}

function areaOf(shape: Shape, width: number, height: number): number {
  const drawn = new Uint8Array(width * height)
  fillPolygon(drawn, width, height, shape.points, 1)
  return drawn.reduce((sum, v) => sum + v, 0)
}

/** Largest first, so that small shapes lie on top; of equal ones the later first, as a reversed argsort gives them. */
function drawTarget(shapes: readonly Shape[], width: number, height: number): Target {
  const drawn = shapes
    .filter((shape) => !isFlag(shape))
    .map((shape, index) => ({ shape, index, area: areaOf(shape, width, height) }))
    .sort((a, b) => b.area - a.area || b.index - a.index)
  const values = new Uint8Array(width * height)
  for (const { shape } of drawn) {
    fillPolygon(values, width, height, shape.points, shape.label.toLowerCase().includes('ignore') ? 255 : 1)
  }
  return {
    height,
    width,
    parts: values.map((v) => (v === 1 ? 1 : 0)),
    ignore: values.map((v) => (v === 255 ? 1 : 0)),
    nothing: false,
  }
}

/** LISA's question for a whole sentence, and for a phrase. */
function question(text: string, isSentence: boolean): string {
  const asked = isSentence ? text : `What is ${text} in this image?`
  return `<image>\n ${asked} Please output segmentation mask.`
}

function recordOf(folder: string, split: string, image: string): BenchmarkRecord {
  const stem = image.replace(pictures, '')
  const { text, is_sentence, shapes } = readAnnotation(join(folder, split, `${stem}.json`))
  const sentence = text[0]!.trim()
  const path = join(folder, split, image)
  return {
    split,
    id: stem,
    image: `${split}/${image}`,
    sentences: [sentence],
    questions: [question(sentence, is_sentence)],
    isSentence: is_sentence,
    target: async () => {
      const { turnedWidth, turnedHeight } = await imageInfo(readBytes(path), path)
      return drawTarget(shapes, turnedWidth, turnedHeight)
    },
  }
}

function recordsIn(folder: string, split: string): BenchmarkRecord[] {
  const names = namesIn(join(folder, split))
  const images = names.filter((name) => pictures.test(name))
  const stems = new Set(images.map((name) => name.replace(pictures, '')))
  const alone = names.find((name) => name.endsWith('.json') && !stems.has(basename(name, '.json')))
  if (alone)
    throw new Mismatch({ where: join(folder, split, alone), expected: 'a picture of the same name', got: 'none' })
  return images.map((image) => recordOf(folder, split, image))
}

/** Records of the folder of one split; null if it is not one: every picture there has a JSON file. */
export function lisaSplit(path: string): BenchmarkRecord[] | null {
  const folder = resolve(path)
  const names = namesIn(folder)
  const images = names.filter((name) => pictures.test(name))
  const isAnnotated = (image: string) => names.includes(image.replace(pictures, '.json'))
  return images.length > 0 && images.every(isAnnotated) ? recordsIn(dirname(folder), basename(folder)) : null
}

export function openReasonSeg(data: string, options: BenchmarkOptions): MaskBenchmark {
  const has = (folder: string) => ['val', 'test'].some((split) => isFolder(join(folder, split)))
  const below = ['ReasonSeg', 'reason_seg', 'reason_seg/ReasonSeg']
  const folder = findFolder(data, below, has, 'a ReasonSeg folder with val or test')
  return {
    name: 'reasonseg',
    folder,
    images: () => options.images ?? folder,
    orient: true, // LISA opens with cv2.imread, which turns the picture
    source: null,
    records: ['val', 'test'].flatMap((split) => recordsIn(folder, split)),
    splits,
    inSplit: (split, record) => {
      const [word, length] = split.split('-')
      if (record.split !== word) return false
      return length === undefined || record.isSentence === (length === 'long')
    },
  }
}
