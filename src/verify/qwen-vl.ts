// Recomputes everything in a golden folder of a plain Qwen2.5-VL or Qwen3-VL: a miniature checkpoint with what transformers computed
// from it. Sets of the two have different quantities: a row is compared if the set has it.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fromFileName, loadAdapter } from '../checkpoint/index.ts'
import type { CheckRow } from '../core/index.ts'
import { decodeImage, type RgbImage } from '../image/index.ts'
import { generate, teacherForce } from '../llm/index.ts'
import {
  type ChatOptions,
  chatText,
  generations,
  type LoadedQwenVL,
  openQwenVL,
  type PatchedImage,
  patchImage,
  type QwenFeatures,
  type QwenPrompt,
  QwenVLFamily,
  questionPrompt,
  releasedName,
  renderChat,
  resizeForPatches,
  smartResize,
} from '../models/index.ts'
import { tensorAt, trainOnly } from '../nn/index.ts'
import { type FrameSize, isInside, type Point, pixelAt, printedPoint, toModelFrame } from '../tasks/index.ts'
import { backward, int64Tensor, type Tensor, tensor, tidy, tidyNoGrad } from '../tensor/index.ts'
import type { ChatTurn } from '../text/index.ts'
import { compareGradNorm, compareIds, compareNumbers } from './compare.ts'
import { device } from './device.ts'
import { type GoldenTensors, readGolden, withGolden } from './golden-tensors.ts'
import { gradientRows, noGradient } from './gradients.ts'
import { positionsWith, ropeRows, statesAfter, towerRows } from './qwen-states.ts'
import { verifyTokenizer } from './tokens.ts'

interface Golden {
  text: string
  system?: string
  question?: string
  text_no_system?: string
  processor_maxdiff?: number
  messages_two?: ChatTurn[]
  template_cases?: { messages: ChatTurn[]; options: ChatOptions; text: string }[]
  tokenizer_cases?: unknown[]
  /** At the released limits. */
  smart_resize_cases?: { height: number; width: number; resized_hw: number[] }[]
  coordinate_cases?: CoordinateCase[]
  grad_norms: Record<string, number>
  lora?: Record<string, { loss: number; grad_norms: Record<string, number> }>
}

/** A written coordinate in an image, as pixels, and the number printed for the pixel's index. */
interface CoordinateCase extends FrameSize {
  relative: Point
  pixel: Point
  inside: boolean
  index: Point
  printed: Point
}

interface Case {
  dir: string
  loaded: LoadedQwenVL
  golden: Golden
  want: GoldenTensors
  picture: RgbImage
  image: PatchedImage
}

export async function verifyQwenVL(dir: string): Promise<CheckRow[]> {
  const golden = readGolden<Golden>(dir)
  const picture = await decodeImage(readFileSync(join(dir, 'image.png')))
  const loaded = openQwenVL(dir, { dtype: 'float32', device: device() })
  return withGolden(join(dir, 'golden.safetensors'), loaded.model, (want) => {
    const c: Case = { dir, loaded, golden, want, picture, image: patchImage(picture, loaded.processor) }
    const tokens = golden.tokenizer_cases ? verifyTokenizer(dir) : []
    return [...tokens, ...ruleRows(c), ...tidyNoGrad(() => forwardRows(c)), ...weightRows(c), ...adapterRows(c)]
  })
}

/** Rules without weights: sides of pictures, and coordinates as the family writes them. */
function ruleRows({ golden, loaded }: Case): CheckRow[] {
  const { processor, coords } = generations[loaded.cfg.base]
  return [
    ...(golden.smart_resize_cases ?? []).map(({ height, width, resized_hw }) =>
      compareIds(`smart_resize ${width}x${height}`, smartResize(height, width, processor), resized_hw),
    ),
    ...(golden.coordinate_cases ?? []).map((one, i) => {
      const place = toModelFrame(one.relative, coords, one)
      const printed = printedPoint(one.index, coords, one, one)
      const got = [...place, Number(isInside(place, one)), ...pixelAt(place, one, one), ...printed]
      const want = [...one.pixel, Number(one.inside), ...one.index, ...one.printed]
      return compareIds(`coordinate_cases.${i}`, got, want)
    }),
  ]
}

/** The stored ids: what every model quantity was computed from, whatever our own prompt looks like. */
function promptOf({ want }: Case, features: QwenFeatures): QwenPrompt {
  return { ids: Int32Array.from(want.numbers('input_ids')), images: [features] }
}

function answerLogps({ want, loaded }: Case, prompt: QwenPrompt): Tensor {
  const answer = Int32Array.from(want.numbers('answer_ids'))
  return teacherForce(loaded.model, prompt, [answer]).logProbs().logps
}

/** A row of ids if the set has a tensor of this name. */
function idRow({ want }: Case, name: string, got: () => ArrayLike<number>): CheckRow[] {
  return want.optional(name, () => want.ids(name, got()))
}

function forwardRows(c: Case): CheckRow[] {
  const { model, cfg } = c.loaded
  const features = model.encode(c.image)
  const prompt = promptOf(c, features)
  return [
    ...imageRows(c),
    ...(c.want.has('vis.patch_embed') ? towerRows(model.visual, cfg, c.image, c.want) : []),
    c.want.tensor('image_embeds', features.tokens),
    ...features.deepstack.map((t, j) => c.want.tensor(`deepstack${j}`, t)),
    ...promptRows(c, features),
    ...stateRows(c, prompt),
    ...scoreRows(c, prompt),
    ...twoRows(c, features),
  ]
}

/** The tensor path of newer processors resamples otherwise; a set says how far that is from Pillow's. */
function imageRows(c: Case): CheckRow[] {
  const { want } = c
  const { pixels, rows, columns } = c.image
  const limit = { abs: (c.golden.processor_maxdiff ?? 0) + 1e-5, words: "the reference's own difference" }
  const resized = (fast: boolean) => resizeForPatches(c.picture, { ...c.loaded.processor, fast }).data
  return [
    want.ids('image_grid_thw', [1, rows, columns]),
    want.values('pixel_values', pixels, { abs: 1e-6, words: '1e-6' }),
    ...idRow(c, 'resized_u8', () => resized(true)),
    ...idRow(c, 'resized_pillow_u8', () => resized(false)),
    ...want.optional('pixel_values_processor', (name) => want.values(name, pixels, limit)),
  ]
}

function promptRows(c: Case, features: QwenFeatures): CheckRow[] {
  const { model, tokenizer, cfg } = c.loaded
  const { golden } = c
  const question = golden.question ?? /<\|vision_end\|>([\s\S]*?)<\|im_end\|>/.exec(golden.text)?.[1] ?? ''
  const rendered = (system: string) => chatText(question, [features.tokens.size(0)], system)
  const encoded = (text: string) => tokenizer.encode(text, { addSpecial: false })
  const text = rendered(golden.system ?? generations[cfg.base].system)
  const prompt = promptOf(c, features)
  const { axes, next } = model.promptPositions(prompt)
  const bare = golden.text_no_system
  return [
    compareIds('text', Buffer.from(text), Buffer.from(golden.text)),
    compareIds('input_ids', encoded(text), prompt.ids),
    ...(golden.template_cases ?? []).map((one, i) =>
      compareIds(`template_cases.${i}`, Buffer.from(renderChat(one.messages, one.options)), Buffer.from(one.text)),
    ),
    ...(bare === undefined ? [] : [compareIds('text_no_system', Buffer.from(rendered('')), Buffer.from(bare))]),
    ...idRow(c, 'no_system.input_ids', () => questionPrompt(c.loaded, question, [features]).ids),
    c.want.ids('position_ids', positionsWith(axes, next, []).flat()),
    c.want.ids('rope_deltas', [next - prompt.ids.length]),
  ]
}

/** States of the language model, layer by layer, and the positions and rotations they follow from. */
function stateRows({ loaded, want }: Case, prompt: QwenPrompt): CheckRow[] {
  if (!want.has('hidden.embeds')) return []
  const { model, cfg } = loaded
  const { embeddings, additions } = model.promptInputs(prompt)
  const { axes, next } = model.promptPositions(prompt)
  const place = { device: device() }
  const positions = int64Tensor(positionsWith(axes, next, []).flat(), [3, 1, prompt.ids.length], place)
  const { layers, norm } = model.parts
  const states = layers.map((_, i) => statesAfter(model.decoder, i + 1, embeddings, { positions, additions }))
  return [
    want.ids('full.position_ids', positionsWith(axes, next, want.numbers('answer_ids')).flat()),
    ...ropeRows(cfg.llm, positions, embeddings, want, ''),
    want.tensor('hidden.embeds', embeddings),
    ...states.map((t, i) => want.tensor(`hidden.layer${i}`, t)),
    want.tensor('hidden.norm', norm.forward(states.at(-1)!)),
  ]
}

function scoreRows(c: Case, prompt: QwenPrompt): CheckRow[] {
  const { model, tokenizer } = c.loaded
  const maxNewTokens = c.want.get('greedy_ids').numel
  const [row] = generate(model, tokenizer, [prompt], { maxNewTokens, stopStrings: [] })
  return [
    ...logitRows(c, 'logits', prompt),
    ...logitRows(c, 'logits_last8', prompt),
    c.want.ids('greedy_ids', row!.ids),
    c.want.tensor('answer_logps', answerLogps(c, prompt)),
  ]
}

/** Of the last positions of the prompt, as many as the set has. */
function logitRows({ loaded, want }: Case, name: string, prompt: QwenPrompt): CheckRow[] {
  return want.optional(name, () => {
    const { hidden } = teacherForce(loaded.model, prompt, [Int32Array.of(0)])
    const n = want.get(name).size(0)
    return want.tensor(name, loaded.model.decoder.logits(hidden.narrow(0, prompt.ids.length - n, n)))
  })
}

/** Two pictures in one turn: the set's and its mirror image. */
function twoRows(c: Case, first: QwenFeatures): CheckRow[] {
  if (!c.want.has('two.input_ids')) return []
  const { model, processor, tokenizer } = c.loaded
  const images = [first, model.encode(patchImage(mirrored(c.picture), processor))]
  const pictureTokens = images.map((f) => f.tokens.size(0))
  const text = renderChat(c.golden.messages_two ?? [], { pictureTokens })
  const prompt = { ids: Int32Array.from(c.want.numbers('two.input_ids')), images }
  const { axes, next } = model.promptPositions(prompt)
  return [
    c.want.ids('two.input_ids', tokenizer.encode(text, { addSpecial: false })),
    c.want.ids('two.position_ids', positionsWith(axes, next, []).flat()),
    c.want.ids('two.rope_deltas', [next - prompt.ids.length]),
    ...logitRows(c, 'two.logits_last8', prompt),
  ]
}

function mirrored({ data, width, height }: RgbImage): RgbImage {
  const out = new Uint8Array(data.length)
  for (let i = 0; i < width * height; i++) {
    const from = 3 * (i - (i % width) + width - 1 - (i % width))
    out.set(data.subarray(from, from + 3), 3 * i)
  }
  return { data: out, width, height }
}

function weightRows(c: Case): CheckRow[] {
  const loss = () => {
    backward(lossOf(c).loss)
    return []
  }
  return gradientRows(c.loaded.model, c.want, c.golden.grad_norms, loss, releasedName)
}

/** Minus the mean log-probability of the answer. */
function lossOf(c: Case): { loss: Tensor; logps: Tensor } {
  const features: QwenFeatures = { ...c.image, ...c.loaded.model.look(c.image) }
  const logps = answerLogps(c, promptOf(c, features))
  return { loss: logps.mean().neg(), logps }
}

/** Gradients of adapters in PEFT's files, with everything else frozen. */
function adapterRows(c: Case): CheckRow[] {
  return Object.entries(c.golden.lora ?? {}).flatMap(([name, want]) => {
    const loaded = openQwenVL(c.dir, { dtype: 'float32', device: device() })
    try {
      loadAdapter(loaded.model, join(c.dir, `adapter-${name}`), { dropout: 0 })
      return tidy(() => oneAdapter({ ...c, loaded }, name, want))
    } finally {
      for (const t of loaded.model.parameters().values()) t.dispose()
    }
  })
}

const close = { rel: 1e-3, words: '1e-3 of the largest magnitude' }

function oneAdapter(c: Case, name: string, want: { loss: number; grad_norms: Record<string, number> }) {
  const { names } = new QwenVLFamily(c.loaded).adapter
  const slots = trainOnly(c.loaded.model, [/\.lora_[AB]\./])
  const weights = new Map(slots.map((slot) => [slot.name, tensorAt(slot)]))
  const { loss, logps } = lossOf(c)
  backward(loss)
  const part = `lora.${name}`
  const weightOf = (file: string) => weights.get(fromFileName(file, names))
  return [
    c.want.tensor(`${part}.answer_logps`, logps),
    compareNumbers(`${part}.loss`, [loss.item()], tensor([want.loss]), { rel: 1e-4, words: '1e-4 relative' }),
    ...c.want.names(`${part}.grad.`).map((key) => {
      const grad = weightOf(key.slice(`${part}.grad.`.length))?.grad()
      return grad ? c.want.tensor(key, grad, close) : noGradient(key)
    }),
    ...Object.entries(want.grad_norms).map(([file, norm]) => {
      const row = compareGradNorm(file, weightOf(file), norm)
      return { ...row, name: `${part}.${row.name}` }
    }),
  ]
}
