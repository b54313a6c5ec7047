// One record ready for the policy: the question, the image as the model reads it, SAM2's reading of the image and its first mask. What
// is read once is kept here, so that K candidates cost K small decodes and nothing else.
import { refuseAt } from '../../core/index.ts'
import { overlay, type RgbImage, resize } from '../../image/index.ts'
import { type Mask, maskIou, toDense } from '../../mask/index.ts'
import type { VqaFamily } from '../../models/index.ts'
import type { ClickMask, ClickPrompt, Segmenter } from '../../sam/index.ts'
import type { Tensor } from '../../tensor/index.ts'
import { boxOfMask, contour, derivePrompt, type PositivePrompt } from './click-geometry.ts'
import type { PointsConfig } from './config.ts'
import { type FrameSize, type Point, rescale } from './frame.ts'
import { givenPrompt, pointQuestion, type QuestionParts } from './prompts.ts'
import type { PointRecord } from './record.ts'

export interface PointSetup {
  policy: VqaFamily
  sam: Segmenter
  config: PointsConfig
  /** Longest answer in tokens. */
  maxNewTokens: number
  /** The question about a record; absent: that of the mode. */
  question?: (parts: QuestionParts) => string
}

export interface PointItem {
  record: PointRecord
  /** Size of the image the model reads, the frame of its points. */
  frame: FrameSize
  positive: PositivePrompt
  question: string
  prompt: ReturnType<VqaFamily['ask']>
  features: object
  sam: object
  /** What SAM2 draws from the positive prompt alone; null in joint, where the policy gives the prompt. */
  first: ClickMask | null
  iou0: number
  /** Best overlap that error-centre clicks reach, computed once when the relative gain asks for it. */
  iouOracle: number | null
}

/** Reads the image once with each model; `samFeatures`: it was read before. Whoever opens an item releases it. */
export function openItem(setup: PointSetup, record: PointRecord, samFeatures?: object): PointItem {
  return openAll(setup, [record], samFeatures && [samFeatures])[0]!
}

/** Several at once: on a GPU their pictures share the passes of both models. */
export function openAll(setup: PointSetup, records: readonly PointRecord[], read?: readonly object[]): PointItem[] {
  const { config, sam } = setup
  if (records.length === 0) return []
  records.forEach(checkRecord)
  const features = read ?? sam.encodeAll(records.map(({ image }) => image))
  const positives = records.map(positiveOf)
  const firsts =
    config.mode === 'joint'
      ? records.map(() => null)
      : sam.drawEach(
          features,
          records.map((record, i) => positiveClicks(setup, record, positives[i]!)),
          records.map((record) => drawOptions(setup, record)),
        )
  const asked = askAll(
    setup,
    records.map((record, i) => {
      const first = firsts[i]?.mask ?? null
      return { record, positive: positives[i]!, shown: withFirst(config, record.image, first, positives[i]!), first }
    }),
  )
  return records.map((record, i) => {
    const [first, positive] = [firsts[i]!, positives[i]!]
    const iou0 = first ? maskIou(record.mask, first.mask) : 0
    return { record, positive, ...asked[i]!, sam: features[i]!, first, iou0, iouOracle: null }
  })
}

/** A question about a record, with an image of it as the policy reads it. */
interface Asking {
  record: PointRecord
  positive: PositivePrompt
  shown: RgbImage
  first?: Mask | null
}

export function askAbout(setup: Pick<PointSetup, 'policy' | 'config' | 'question'>, asking: Asking) {
  return askAll(setup, [asking])[0]!
}

function askAll(
  { policy, config, question: ask }: Pick<PointSetup, 'policy' | 'config' | 'question'>,
  all: readonly Asking[],
): Pick<PointItem, 'frame' | 'question' | 'prompt' | 'features'>[] {
  const { imageSize } = config
  const read = (image: RgbImage) => (imageSize === 'native' ? image : resize(image, imageSize, imageSize, 'bilinear'))
  const seen = policy.encode(all.map(({ shown }) => policy.prepare(read(shown))))
  return all.map(({ record: { query, image }, positive, first }, i) => {
    const features = seen[i]!
    const frame = policy.frameOf(features)
    const box = config.showMask && first ? { first: boxOfMask(first) } : {}
    const parts = { query, positive, model: frame, original: image, ...box }
    const question = ask ? ask(parts) : pointQuestion(parts, config)
    return { frame, question, prompt: policy.ask(features, question), features }
  })
}

/** The tensors an item holds. */
export function tensorsOfItem({ policy }: PointSetup, { features, sam, first }: PointItem): Tensor[] {
  return [...Object.values(policy.tensorsOf(features)), ...Object.values(sam), ...(first?.logits ? [first.logits] : [])]
}

export function releaseItem(setup: PointSetup, item: PointItem): void {
  for (const t of tensorsOfItem(setup, item)) t.dispose()
}

function checkRecord({ id, image, mask }: PointRecord): void {
  if (image.width === mask.width && image.height === mask.height) return
  const expected = `the size of the image, ${image.height} x ${image.width}`
  refuseAt(`record ${id}`)('mask', expected, `${mask.height} x ${mask.width}`)
}

/** What was derived from a mask: every sample of a record asks for it, and it takes long. */
const derivedPrompts = new WeakMap<Mask, PositivePrompt>()

/** The record's own prompt if it has one; missing parts are derived from the mask. */
export function positiveOf({ mask, box, points }: PointRecord): PositivePrompt {
  const derived = box && points ? null : (derivedPrompts.get(mask) ?? derivePrompt(mask))
  if (derived) derivedPrompts.set(mask, derived)
  return { box: box ?? derived?.box ?? null, points: [...(points ?? derived?.points ?? [])] }
}

/** The image that the policy reads: second-look draws the border of the first mask, showMask tints its pixels and marks the clicks. */
export function withFirst(config: PointsConfig, image: RgbImage, first: Mask | null, to: PositivePrompt): RgbImage {
  if (first && config.showMask) return withDots(overlay(image, first, [255, 0, 0]), givenPrompt(config, to).points)
  return first && config.mode === 'second-look' ? withContour(image, first) : image
}

/** Green discs with a fortieth of the longer side as radius. */
export function withDots(image: RgbImage, points: readonly Point[]): RgbImage {
  const { width, height } = image
  const radius = Math.max(width, height) / 40
  const data = image.data.slice()
  const from = (at: number) => Math.max(0, Math.ceil(at - radius))
  for (const [x, y] of points)
    for (let v = from(y); v <= Math.min(height - 1, y + radius); v++)
      for (let u = from(x); u <= Math.min(width - 1, x + radius); u++)
        if ((u - x) ** 2 + (v - y) ** 2 <= radius ** 2) data.set([0, 255, 0], 3 * (v * width + u))
  return { ...image, data }
}

export function withContour(image: RgbImage, mask: Mask): RgbImage {
  const data = image.data.slice()
  toDense(contour(mask)).forEach((on, i) => {
    if (on) data.set([255, 0, 0], 3 * i)
  })
  return { ...image, data }
}

/** SAM2's mask from the positive prompt alone. */
export function drawFirst(
  setup: Pick<PointSetup, 'sam' | 'config'>,
  features: object,
  record: PointRecord,
  positive: PositivePrompt,
): ClickMask {
  return setup.sam.draw(features, [positiveClicks(setup, record, positive)], drawOptions(setup, record))[0]!
}

export function drawOptions({ config }: Pick<PointSetup, 'config'>, { mask }: PointRecord) {
  const keepLogits = config.previousMask === 'logits'
  return { height: mask.height, width: mask.width, multimask: config.multimask, keepLogits }
}

/** The positive prompt of the setting, as SAM2 takes it. */
export function positiveClicks(
  setup: Pick<PointSetup, 'sam' | 'config'>,
  record: PointRecord,
  positive: PositivePrompt,
): ClickPrompt {
  const to = setup.sam.inputSize(record.image)
  return clickPrompt(to, record.image, givenPrompt(setup.config, positive))
}

/** Points inside an object and its box, in the frame `to` of the segmenter's input. */
export function clickPrompt(to: FrameSize, frame: FrameSize, { box, points }: PositivePrompt): ClickPrompt {
  const move = (p: Point): [number, number] => [...rescale(p, frame, to)]
  const moved = box && ([...move([box[0], box[1]]), ...move([box[2], box[3]])] as const)
  return { points: points.map(move), labels: points.map(() => 1), box: moved }
}

/** More clicks on a prompt. */
export function withClicks(
  prompt: ClickPrompt,
  points: readonly (readonly [number, number])[],
  label: 0 | 1,
): ClickPrompt {
  return { ...prompt, points: [...prompt.points, ...points], labels: [...prompt.labels, ...points.map(() => label)] }
}
