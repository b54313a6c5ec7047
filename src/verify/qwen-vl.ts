// Recomputes everything in a golden folder of a plain Qwen2.5-VL or Qwen3-VL: a miniature checkpoint with what transformers computed
// from it. Sets of the two have different quantities: a row is compared if the set has it.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights, readTensors } from '../checkpoint/index.ts'
import type { CheckRow } from '../core/index.ts'
import { decodeImage, type RgbImage } from '../image/index.ts'
import { generate, teacherForce } from '../llm/index.ts'
import {
  chatText,
  generations,
  openQwenVL,
  patchImage,
  type QwenFeatures,
  type QwenPrompt,
  questionPrompt,
  renderChat,
  resizeForPatches,
} from '../models/index.ts'
import { noGrad, tidy } from '../tensor/index.ts'
import { compareIds, compareNumbers, compareTensor } from './compare.ts'
import { device } from './device.ts'
import { answerLogps, flat, get, numbers, type PlainQwenCase, promptOf, type QwenVLGolden } from './qwen-vl-case.ts'
import { adapterRows, gradientRows } from './qwen-vl-gradients.ts'
import { stateRows } from './qwen-vl-states.ts'
import { towerRows } from './sa2va-qwen-states.ts'
import { verifyTokenizer } from './tokens.ts'

export async function verifyQwenVL(dir: string): Promise<CheckRow[]> {
  const golden = JSON.parse(readFileSync(join(dir, 'golden.json'), 'utf8')) as QwenVLGolden
  const loaded = openQwenVL(dir, { dtype: 'float32', device: device() })
  const want = readTensors(openWeights(join(dir, 'golden.safetensors')), device())
  const picture = await decodeImage(readFileSync(join(dir, 'image.png')))
  const c: PlainQwenCase = { dir, loaded, golden, want, picture, image: patchImage(picture, loaded.processor) }
  try {
    const tokens = golden.tokenizer_cases ? verifyTokenizer(dir) : []
    return [...tokens, ...noGrad(() => forwardRows(c)), ...gradientRows(c), ...adapterRows(c)]
  } finally {
    for (const t of [...want.values(), ...loaded.model.parameters().values()]) t.dispose()
  }
}

/** Rows of ids for which the set has a tensor of this name. */
function idRow(c: PlainQwenCase, name: string, got: () => ArrayLike<number>): CheckRow[] {
  return c.want.has(name) ? [compareIds(name, got(), numbers(c, name))] : []
}

function forwardRows(c: PlainQwenCase): CheckRow[] {
  return tidy(() => {
    const { model, cfg } = c.loaded
    const features = model.encode(c.image)
    const tower = c.want.has('vis.patch_embed') ? towerRows(model.visual, cfg, c.image, c.want) : []
    return [
      ...imageRows(c),
      ...tower,
      compareTensor('image_embeds', features.tokens, get(c, 'image_embeds')),
      ...features.deepstack.map((t, j) => compareTensor(`deepstack${j}`, t, get(c, `deepstack${j}`))),
      ...promptRows(c, features),
      ...stateRows(c, promptOf(c, features)),
      ...scoreRows(c, promptOf(c, features)),
      ...twoRows(c, features),
    ]
  })
}

/** The tensor path of newer processors resamples otherwise; a set says how far that is from Pillow's. */
function imageRows(c: PlainQwenCase): CheckRow[] {
  const { pixels, rows, columns } = c.image
  const other = c.want.get('pixel_values_processor')
  const limit = { abs: (c.golden.processor_maxdiff ?? 0) + 1e-5, words: "the reference's own difference" }
  const resized = (fast: boolean) => resizeForPatches(c.picture, { ...c.loaded.processor, fast }).data
  return [
    compareIds('image_grid_thw', [1, rows, columns], numbers(c, 'image_grid_thw')),
    compareNumbers('pixel_values', pixels, get(c, 'pixel_values'), { abs: 1e-6, words: '1e-6' }),
    ...idRow(c, 'resized_u8', () => resized(true)),
    ...idRow(c, 'resized_pillow_u8', () => resized(false)),
    ...(other ? [compareNumbers('pixel_values_processor', pixels, other, limit)] : []),
  ]
}

function promptRows(c: PlainQwenCase, features: QwenFeatures): CheckRow[] {
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
    compareIds('position_ids', flat(axes), numbers(c, 'position_ids')),
    compareIds('rope_deltas', [next - prompt.ids.length], numbers(c, 'rope_deltas')),
  ]
}

function scoreRows(c: PlainQwenCase, prompt: QwenPrompt): CheckRow[] {
  const { model, tokenizer } = c.loaded
  const greedy = Int32Array.from(numbers(c, 'greedy_ids'))
  const [row] = generate(model, tokenizer, [prompt], { maxNewTokens: greedy.length, stopStrings: [] })
  return [
    ...logitRows(c, 'logits', prompt),
    ...logitRows(c, 'logits_last8', prompt),
    compareIds('greedy_ids', row!.ids, greedy),
    compareTensor('answer_logps', answerLogps(c, prompt), get(c, 'answer_logps')),
  ]
}

/** Of the last positions of the prompt, as many as the set has. */
function logitRows(c: PlainQwenCase, name: string, prompt: QwenPrompt): CheckRow[] {
  const want = c.want.get(name)
  if (!want) return []
  const { hidden } = teacherForce(c.loaded.model, prompt, [Int32Array.of(0)])
  const n = want.size(0)
  return [compareTensor(name, c.loaded.model.decoder.logits(hidden.narrow(0, prompt.ids.length - n, n)), want)]
}

/** Two pictures in one turn: the set's and its mirror image. */
function twoRows(c: PlainQwenCase, first: QwenFeatures): CheckRow[] {
  if (!c.want.has('two.input_ids')) return []
  const { model, processor, tokenizer } = c.loaded
  const images = [first, model.encode(patchImage(mirrored(c.picture), processor))]
  const pictureTokens = images.map((f) => f.tokens.size(0))
  const text = renderChat(c.golden.messages_two ?? [], { pictureTokens })
  const prompt = { ids: Int32Array.from(numbers(c, 'two.input_ids')), images }
  const { axes, next } = model.promptPositions(prompt)
  return [
    compareIds('two.input_ids', tokenizer.encode(text, { addSpecial: false }), prompt.ids),
    compareIds('two.position_ids', flat(axes), numbers(c, 'two.position_ids')),
    compareIds('two.rope_deltas', [next - prompt.ids.length], numbers(c, 'two.rope_deltas')),
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
